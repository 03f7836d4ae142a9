"""From what a user writes in a config (a name, a path) to the reader that understands it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from openprompt_meta.data.facts import KNOWN_SETS
from openprompt_meta.data.readers.files import (
    TABLE_SUFFIXES,
    is_layout,
    read_authors_file,
    read_bytes,
    read_layout,
    read_table,
)
from openprompt_meta.data.readers.huggingface import is_saved_dataset, read_huggingface
from openprompt_meta.data.readers.records import ClassNames, Records
from openprompt_meta.errors import DataError, did_you_mean
from openprompt_meta.json_files import parse_json

__all__ = ["DEMO", "FORMATS", "read_records"]

DEMO = Path(__file__).resolve().parents[1] / "demo"
FORMATS = ("auto", "layout", "authors", "table", "huggingface")
_HUB = "hf:"


def read_records(
    source: str | Path,
    *,
    format: str = "auto",
    name: str | None = None,
    root: str | Path = "data",
    text_column: str = "text",
    label_column: str = "label",
    class_names: ClassNames | None = None,
    config: str | None = None,
    revision: str | None = None,
    drop_empty: bool = False,
) -> Records:
    """The labelled texts of ``source``.

    Args:
        source: ``"demo"``; a folder or file; the name of one of the six sets, looked for in ``root``; or
            ``"hf:NAME"`` for a data set of the Hugging Face hub.
        format: one of :data:`FORMATS`. ``auto`` looks at the files.
        name: what the data set is called; for the authors' files, which of the six sets it is. By default the
            folder's or file's own name.
        root: where named data sets lie, as ``root/NAME`` or ``root/NAME.json``.
        text_column: where a table or Hugging Face data set has its texts.
        label_column: where it has its class names.
        class_names: names for integer labels.
        config: the configuration of a Hugging Face data set.
        revision: its commit, for results that can be repeated.
        drop_empty: pass over empty texts instead of refusing them.

    Raises:
        DataError: with file and line, if the source is missing or anything in it is wrong.
    """
    if format not in FORMATS:
        raise DataError(
            f"Unknown format {format!r}; expected one of {', '.join(FORMATS)}." + did_you_mean(format, FORMATS)
        )
    if isinstance(source, str) and source.startswith(_HUB):
        path: str | Path = source.removeprefix(_HUB)
        format = "huggingface"
    elif format == "huggingface":
        path = source
    else:
        path = _path_of(source, Path(root))
        if format == "auto":
            format = _format_of(path)
    if format == "huggingface":
        records = read_huggingface(
            path,
            config=config,
            revision=revision,
            text_column=text_column,
            label_column=label_column,
            class_names=class_names,
            drop_empty=drop_empty,
        )
    elif format == "layout":
        records = read_layout(Path(path), drop_empty=drop_empty)
        if path == DEMO:
            # Where the package happens to be installed is of no interest to a reader of the results.
            records = replace(records, provenance="shipped with openprompt_meta")
    elif format == "authors":
        return read_authors_file(Path(path), name, drop_empty=drop_empty)
    else:
        records = read_table(
            Path(path),
            text_column=text_column,
            label_column=label_column,
            class_names=class_names,
            drop_empty=drop_empty,
        )
    return records if name is None else replace(records, name=name)


def _path_of(source: str | Path, root: Path) -> Path:
    # Only the bare word: "./demo" is a folder of the user's.
    if source == "demo":
        return DEMO
    path = Path(source)
    # The authors' file of a set lies beside where its folder would, as data/hwu64.json beside data/hwu64.
    candidates = [path, Path(f"{path}.json"), root / path, root / f"{path}.json"]
    for candidate in candidates:
        if _exists(candidate):
            return candidate
    if path.name in KNOWN_SETS:
        folder = root if path.parent == Path() else path.parent
        raise DataError(
            f"The data set {path.name!r} is not in {folder}. Fetch it with `openprompt-meta data download {path.name} "
            f"--to {folder}`, or give the path of its folder or file."
        )
    raise DataError(
        f"There is no data at {path}. Give a folder, a file ({', '.join(TABLE_SUFFIXES)}), 'demo', one of "
        f"{', '.join(KNOWN_SETS)}, or 'hf:NAME' for the Hugging Face hub."
        + did_you_mean(str(source), ("demo", *KNOWN_SETS))
    )


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError) as error:  # a name that is too long or holds a zero byte, a folder that is closed
        raise DataError(f"{str(path)[:200]!r} cannot be looked at: {error}.") from None


def _format_of(path: Path) -> str:
    if path.is_dir():
        if is_layout(path):
            return "layout"
        return "huggingface" if is_saved_dataset(path) else "table"
    return "authors" if path.suffix == ".json" and _has_raw(path) else "table"


def _has_raw(path: Path) -> bool:
    """Whether the first line is a row of the authors' form. A broken line is left for the reader to complain about."""
    try:
        first = parse_json(read_bytes(path).split(b"\n", 1)[0].decode("utf-8-sig"), str(path))
    except (ValueError, DataError):
        return False
    return isinstance(first, dict) and "raw" in first and isinstance(first.get("label"), int)
