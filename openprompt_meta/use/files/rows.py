"""Rows of texts from a file or a pipe, one at a time, with the place of each for messages."""

from __future__ import annotations

import contextlib
import csv
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from openprompt_meta.data.readers.records import column_of
from openprompt_meta.data.strict_json import parse_json
from openprompt_meta.errors import DataError

__all__ = ["FORMATS", "Row", "RowReader", "format_of", "long_cells", "open_rows"]

FORMATS = ("txt", "csv", "tsv", "jsonl")
DELIMITERS = {"csv": ",", "tsv": "\t"}
_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class Row:
    """One row: its text, all its cells by column, and where it stands."""

    text: str
    cells: Mapping[str, Any]
    where: str


def format_of(path: str | os.PathLike[str]) -> str:
    """One of :data:`FORMATS`, by the end of a file's name. :class:`DataError` for another."""
    suffix = Path(path).suffix.lower().removeprefix(".")
    known = {"json": "jsonl", "text": "txt"}.get(suffix, suffix)
    if known not in FORMATS:
        raise DataError(
            f"{os.fspath(path)}: unknown kind of file; expected a name that ends in .{', .'.join(FORMATS)}, or say "
            "which it is with --format."
        )
    return known


@contextlib.contextmanager
def open_rows(path: str, text_column: str, kind: str | None, stdin: BinaryIO) -> Iterator[RowReader]:
    """Rows of the file at ``path``, or of ``stdin`` if it is ``-`` (lines of text, unless ``kind`` says otherwise).

    Raises:
        DataError: there is no such file, or it cannot be opened.
    """
    if path == "-":
        yield RowReader(stdin, "standard input", kind or "txt", text_column)
        return
    kind = kind or format_of(path)
    try:
        file = open(path, "rb")  # noqa: SIM115 - closed below
    except OSError as error:
        raise DataError(f"{path} cannot be opened: {error.strerror}.") from None
    with file:
        yield RowReader(file, path, kind, text_column)


@contextlib.contextmanager
def long_cells() -> Iterator[None]:
    """Let tables have cells of any length inside; Python's own limit is one for the whole process."""
    before = csv.field_size_limit(2**31 - 1)
    try:
        yield
    finally:
        csv.field_size_limit(before)


class RowReader:
    """Iterates over the rows of a stream, holding one of them at a time.

    Args:
        stream: bytes, UTF-8.
        name: of the file, for messages.
        kind: ``txt`` (a text a line), ``csv`` or ``tsv`` with a header, or ``jsonl``.
        text_column: where the text is; for ``txt``, what its one column is called.

    Attributes:
        consumed: bytes read so far, up to the end of the last row that was given.
        cut: whether the last line that was read has no end: the stream stops in it.
        columns: names of the columns, known after the first row; those of ``jsonl`` are the first row's.
    """

    def __init__(self, stream: BinaryIO, name: str, kind: str, text_column: str) -> None:
        self._stream = stream
        self._name = name
        self._kind = kind
        self._column = text_column
        self._line = 0
        self.consumed = 0
        self.cut = False
        self.columns: list[str] = [text_column] if kind == "txt" else []

    def __iter__(self) -> Iterator[Row]:
        try:
            for where, cells in self._rows():
                text = cells[column_of(self._column, list(cells), where, "--text-column")]
                if not isinstance(text, str):
                    shown = "missing" if text is None else f"{text!r:.60} ({type(text).__name__})"
                    raise DataError(f"{where}: the text is {shown}; a string is expected.")
                yield Row(text, cells, where)
        except OSError as error:
            raise DataError(f"{self._name} cannot be read: {error}.") from None

    def _rows(self) -> Iterator[tuple[str, dict[str, Any]]]:
        if self._kind == "txt":
            for line in self._lines():
                yield self._where(self._line), {self._column: line.rstrip("\r\n")}
        elif self._kind == "jsonl":
            yield from self._json_rows()
        else:
            yield from self._table_rows(DELIMITERS[self._kind])

    def _json_rows(self) -> Iterator[tuple[str, dict[str, Any]]]:
        for line in self._lines():
            if not line.strip():
                continue
            where = self._where(self._line)
            cells = parse_json(line.rstrip("\r\n"), self._name, self._line)
            if not isinstance(cells, dict):
                raise DataError(
                    f'{where}: expected an object such as {{"{self._column}": …}}, found {type(cells).__name__}.'
                )
            self.columns = self.columns or list(cells)
            yield where, cells

    def _table_rows(self, delimiter: str) -> Iterator[tuple[str, dict[str, Any]]]:
        reader = csv.reader(self._lines(), delimiter=delimiter, strict=True)
        start = 1
        try:
            for cells in reader:
                where, start = self._where(start), self._line + 1
                if not cells:
                    continue
                if not self.columns:
                    self.columns = cells
                    twice = [name for name in cells if cells.count(name) > 1]
                    if twice:
                        raise DataError(f"{where}: two columns are called {twice[0]!r:.80}. Rename one.")
                    column_of(self._column, cells, where, "--text-column")
                    continue
                if len(cells) != len(self.columns):
                    raise DataError(
                        f"{where}: {len(cells)} cells, but the header has {len(self.columns)}. Put a text that holds "
                        "the separator into double quotes."
                    )
                yield where, dict(zip(self.columns, cells, strict=True))
        except csv.Error as error:
            raise DataError(f"{self._where(start)}: not a table: {error}.") from None

    def _lines(self) -> Iterator[str]:
        for raw in _raw_lines(self._stream):
            self._line += 1
            self.consumed += len(raw)
            self.cut = not raw.endswith(b"\n")
            try:
                yield (raw.removeprefix(_BOM) if self._line == 1 else raw).decode("utf-8")
            except UnicodeDecodeError as error:
                raise DataError(
                    f"{self._where(self._line)}: not UTF-8 (byte 0x{raw[error.start]:02x}). Save the file as UTF-8, "
                    "for example with `iconv -f latin1 -t utf-8`."
                ) from None

    def _where(self, line: int) -> str:
        return f"{self._name}, line {line}"


def _raw_lines(stream: BinaryIO) -> Iterable[bytes]:
    """Lines as they come: not by iteration, which may read ahead of what a pipe has."""
    return iter(stream.readline, b"")
