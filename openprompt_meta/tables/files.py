"""A table's files: the same content as Markdown, LaTeX, CSV and JSON, each whole or not at all."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

from openprompt_meta.errors import RunError
from openprompt_meta.files import write_whole
from openprompt_meta.tables.records import to_csv, to_json
from openprompt_meta.tables.rendering import to_latex, to_markdown
from openprompt_meta.tables.results import TableResult

__all__ = ["cells_folder", "write_files"]

_FORMATS = {".md": to_markdown, ".tex": to_latex, ".csv": to_csv, ".json": to_json}


def cells_folder(folder: Path) -> Path:
    """Where the cells of all tables of a folder are: tables share what they have in common."""
    return folder / "cells"


def write_files(result: TableResult, folder: Path) -> list[Path]:
    """Write the table in every format.

    The files' name says table, data sets and model, and tells apart what was made with other rows, tasks or keys.

    Raises:
        RunError: the folder cannot be written to.
    """
    parts = [result.table.name, *result.setting.datasets, Path(result.setting.plm).name, _digest(result)]
    stem = "-".join(re.sub(r"[^A-Za-z0-9.-]+", "_", part) for part in parts)
    files = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for suffix, draw in _FORMATS.items():
            files.append(folder / f"{stem}{suffix}")
            write_whole(files[-1], draw(result))
    except OSError as error:
        raise RunError(f"The table cannot be written to {folder}: {error}. Choose another --folder.") from None
    return files


def _digest(result: TableResult) -> str:
    """A few letters that stand for everything else the table was made with."""
    setting = result.setting
    rows = [line.row.name for line in result.lines]
    rest = [rows, setting.shots, setting.tasks, setting.seeds, sorted(setting.overrides)]
    return hashlib.sha256(json.dumps(rest).encode()).hexdigest()[:6]
