"""Untrusted JSON: what the standard allows, every key once, and a reason in words for everything else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NoReturn

from openprompt_meta.errors import DataError
from openprompt_meta.files import read_limited

__all__ = ["parse_json", "read_json"]

_MAX_BYTES = 50_000_000  # of a file of settings; the longest of ours has ten thousand


def read_json(path: Path) -> Any:
    """The content of a file of settings. :class:`DataError` names the file and, where it can, the line.

    Raises:
        FileNotFoundError: there is no such file.
        DataError: it cannot be read, or is no JSON.
    """
    try:
        content = read_limited(path, _MAX_BYTES + 1)
    except FileNotFoundError:
        raise
    except (OSError, ValueError) as error:
        raise DataError(f"{path} cannot be read: {error}.") from None
    if len(content) > _MAX_BYTES:
        raise DataError(f"{path} is larger than {_MAX_BYTES:,} bytes, too large for what it should hold.")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise DataError(f"{path}, line {line}: not UTF-8 ({error.reason}). Save the file as UTF-8.") from None
    return parse_json(text, str(path))


def parse_json(text: str, where: str, line: int = 1) -> Any:
    """The value that ``text`` is. :class:`DataError` names ``where`` and the line, the first of which is ``line``."""
    try:
        return json.loads(text, object_pairs_hook=_object, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        place = f"line {line + error.lineno - 1}, column {error.colno}"
        raise DataError(f"{where}, {place}: not JSON: {error.msg}.") from None
    except RecursionError:
        raise DataError(f"{where}, line {line}: JSON nested too deeply.") from None
    except ValueError as error:  # of the two functions below, or a number of more digits than Python converts
        raise DataError(f"{where}, line {line}: {error}") from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the key {twice[:80]!r} is given twice in one object. Keep one of them.")
    return found


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON. Leave the value out, or put it into quotes.")
