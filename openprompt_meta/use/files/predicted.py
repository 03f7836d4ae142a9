"""Rows with what was predicted for them, written as they come; a file that was cut off is gone on with."""

from __future__ import annotations

import csv
import errno
import io
import json
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, BinaryIO

from openprompt_meta.errors import DataError
from openprompt_meta.use.files.rows import DELIMITERS, Row, RowReader
from openprompt_meta.use.inputs import Label

__all__ = ["LABEL", "PROBABILITY", "Done", "PredictedFile", "RowWriter"]

LABEL, PROBABILITY = "predicted_label", "predicted_probability"
_OF_CLASS = "probability of "


@dataclass
class RowWriter:
    """Writes rows as ``csv``, ``tsv`` or ``jsonl``.

    Attributes:
        stream: where to.
        kind: the format.
        classes: the classifier's.
        every_class: whether to write the probability of every class, in columns of their own.
        columns: those of the rows that are there already; the header of a table is written if there are none.
    """

    stream: BinaryIO
    kind: str
    classes: Sequence[Label]
    every_class: bool = False
    columns: Sequence[str] = ()
    _checked: bool = field(default=False, repr=False)

    def write(self, rows: Sequence[Row], labels: Sequence[Label], probabilities: Sequence[Sequence[float]]) -> None:
        """Write rows with their predictions, and hand them to the system before returning."""
        lines = io.StringIO()
        for row, label, own in zip(rows, labels, probabilities, strict=True):
            cells = {**row.cells, **self._added(row, label, own)}
            if not self._checked:
                self._start(lines, row, cells)
            if self.kind == "jsonl":
                lines.write(json.dumps(cells, ensure_ascii=False) + "\n")
            else:
                self._write_cells(lines, row, cells)
        self.stream.write(lines.getvalue().encode("utf-8"))
        self.stream.flush()

    def _start(self, lines: io.StringIO, row: Row, cells: Mapping[str, Any]) -> None:
        self._checked = True
        if not self.columns:
            self.columns = list(cells)
            if self.kind != "jsonl":
                self._table(lines).writerow(self.columns)
        elif self.kind != "jsonl" and list(cells) != list(self.columns):
            raise DataError(
                f"{row.where}: the row would have the columns {list(cells)}, but those in the file are "
                f"{list(self.columns)}. Go on with the same options, or name another file."
            )

    def _write_cells(self, lines: io.StringIO, row: Row, cells: Mapping[str, Any]) -> None:
        strange = [name for name in cells if name not in self.columns]
        if strange:
            raise DataError(
                f"{row.where}: the column {strange[0]!r:.80} is not in the first row, so a table has no place for it. "
                "Write JSON lines instead: --json, or an --out that ends in .jsonl."
            )
        # A cell that is no string can only come from JSON, and is written as there; one that is missing is empty.
        values = (cells.get(name, "") for name in self.columns)
        plain = [value if isinstance(value, str) else json.dumps(value, ensure_ascii=False) for value in values]
        self._table(lines).writerow(plain)

    def _table(self, lines: io.StringIO) -> Any:
        return csv.writer(lines, delimiter=DELIMITERS[self.kind], lineterminator="\n")

    def _added(self, row: Row, label: Label, probabilities: Sequence[float]) -> dict[str, Any]:
        added: dict[str, Any] = {LABEL: label, PROBABILITY: _rounded(max(probabilities))}
        if self.every_class:
            of_class = zip(self.classes, probabilities, strict=True)
            added |= {f"{_OF_CLASS}{name}": _rounded(value) for name, value in of_class}
        taken = [name for name in added if name in row.cells]
        if taken:
            raise DataError(
                f"{row.where}: there is a column {taken[0]!r:.80} already, in which predictions would be written. "
                "Rename it."
            )
        return added


@dataclass(frozen=True)
class Done:
    """A row that an interrupted file holds already."""

    text: str
    label: str
    probability: float


class PredictedFile:
    """A file of predictions that may have some rows already, because an earlier try was cut off.

    Iterate over :meth:`done` first; then :meth:`go_on` gives the stream to write the others to.

    Raises:
        DataError: the file cannot be opened.
    """

    def __init__(self, path: str, kind: str, text_column: str, classes: Sequence[Label]) -> None:
        self._path = path
        self._kind = kind
        self._text_column = text_column
        self._classes = {str(name) for name in classes}
        self._end = 0
        self.columns: list[str] = []
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0), 0o666)
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                os.close(descriptor)
                raise OSError(errno.EINVAL, "not a regular file")
            self._stream = os.fdopen(descriptor, "r+b")
        except OSError as error:
            raise DataError(f"{path} cannot be written: {error.strerror}.") from None

    def close(self) -> None:
        """Bring what was written to the disk."""
        with self._stream:
            self._stream.flush()
            os.fsync(self._stream.fileno())

    def done(self) -> Iterator[Done]:
        """The rows that are there, without a last one that was cut off.

        Raises:
            DataError: the file holds something else than predictions of this classifier.
        """
        try:
            yield from self._done()
        except DataError as error:
            raise DataError(
                f"{self._path} is there already and does not hold predictions to go on with: {error} Name another "
                "file, or remove this one."
            ) from None

    def go_on(self) -> BinaryIO:
        """The stream, behind the last whole row; what came after it is gone."""
        self._stream.seek(self._end)
        self._stream.truncate()
        return self._stream

    def _done(self) -> Iterator[Done]:
        reader = RowReader(self._stream, self._path, self._kind, self._text_column)
        rows = iter(reader)
        while True:
            try:
                row = next(rows)
            except StopIteration:
                break
            except DataError as error:
                # Cut off in a line, or in a text of several lines. Only behind rows that are ours: nobody else's file
                # is taken for a row that was cut off.
                if self._end and (reader.cut or "unexpected end of data" in str(error)):
                    break
                raise
            if reader.cut:
                break
            found = _done(row, self._classes)
            self._end = reader.consumed
            self.columns = self.columns or list(row.cells)
            yield found
        if not self._end and reader.consumed and not {LABEL, PROBABILITY} <= set(reader.columns):
            raise DataError(f"no row of it has a {LABEL}.")


def _done(row: Row, classes: set[str]) -> Done:
    try:
        label, probability = str(row.cells[LABEL]), float(row.cells[PROBABILITY])
    except (KeyError, TypeError, ValueError):
        raise DataError(f"{row.where}: there is no {LABEL} with its {PROBABILITY}.") from None
    if label not in classes:
        raise DataError(f"{row.where}: {label!r:.80} is no class of this classifier.")
    return Done(row.text, label, probability)


def _rounded(probability: float) -> float:
    return round(float(probability), 6)
