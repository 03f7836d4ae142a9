"""Files of texts: labelled ones to learn from, rows to be classified, rows that were."""

from __future__ import annotations

import contextlib
import csv
import errno
import io
import json
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

from openprompt_meta.classifier.inputs import Label
from openprompt_meta.data.readers.files import TABLE_SUFFIXES
from openprompt_meta.data.readers.records import column_of
from openprompt_meta.errors import DataError
from openprompt_meta.files import parse_json, plain_cell, write_cells

if TYPE_CHECKING:
    from openprompt_meta.classifier.classifier import MetaPromptClassifier


# -- Rows of texts from a file or a pipe, one at a time, with the place of each for messages --------------------------

FORMATS = ("txt", "csv", "tsv", "jsonl")
DELIMITERS = {"csv": ",", "tsv": "\t"}
_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class TextRow:
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

    def __iter__(self) -> Iterator[TextRow]:
        try:
            for where, cells in self._rows():
                text = cells[column_of(self._column, list(cells), where, "--text-column")]
                if not isinstance(text, str):
                    shown = "missing" if text is None else f"{text!r:.60} ({type(text).__name__})"
                    raise DataError(f"{where}: the text is {shown}; a string is expected.")
                yield TextRow(text, cells, where)
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
        # Not by iteration over the stream, which may read ahead of what a pipe has.
        for raw in iter(self._stream.readline, b""):
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


# -- A file of labelled texts, to learn from or to be evaluated on ----------------------------------------------------


def read_labelled(path: str | os.PathLike[str], text_column: str, label_column: str) -> tuple[list[str], list[Any]]:
    """Texts and labels of a ``.csv``, ``.tsv`` or ``.jsonl`` file. :class:`DataError` names the line of what is wrong.

    Labels of a table are strings; JSON may have whole numbers.
    """
    file = Path(path)
    rows = TABLE_SUFFIXES.get(file.suffix.lower())
    if rows is None:
        raise DataError(f"{file}: unknown kind of file; expected one that ends in {', '.join(TABLE_SUFFIXES)}.")
    texts, labels = [], []
    for line, row in rows(file):
        where = f"{file}, line {line}"
        text = row[column_of(text_column, list(row), where, "--text-column")]
        label = row[column_of(label_column, list(row), where, "--label-column")]
        if not isinstance(text, str) or not text.strip():
            raise DataError(f"{where}: the text is {_shown(text)}; expected one with words in it.")
        if isinstance(label, bool) or not isinstance(label, str | int) or not str(label).strip():
            raise DataError(f"{where}: the label is {_shown(label)}; expected a class name or a whole number.")
        texts.append(text)
        labels.append(label)
    if not texts:
        raise DataError(f"{file} holds no rows.")
    return texts, labels


def as_labels_of(classes: Sequence[Label], labels: Sequence[Any], where: str) -> list[Label]:
    """Labels as a file has them, where numbers may be written as strings, as the classes they name.

    Raises:
        DataError: naming the labels that are no class.
    """
    by_name = {str(name): name for name in classes}
    strange = [label for label in dict.fromkeys(map(str, labels)) if label not in by_name]
    if strange:
        raise DataError(
            f"{where} has labels that the classifier does not know: {', '.join(map(repr, strange[:8]))}. Its classes "
            f"are {', '.join(map(repr, list(by_name)[:20]))}."
        )
    return [by_name[str(label)] for label in labels]


def _shown(value: object) -> str:
    return "missing" if value is None else f"{value!r:.60} ({type(value).__name__})"


# -- Rows with what was predicted for them, written as they come; a file that was cut off is gone on with -------------

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
        raw: whether cells of a table are written as they are; by default they are no formulas.
    """

    stream: BinaryIO
    kind: str
    classes: Sequence[Label]
    every_class: bool = False
    columns: Sequence[str] = ()
    raw: bool = False
    _checked: bool = field(default=False, repr=False)

    def write(
        self, rows: Sequence[TextRow], labels: Sequence[Label], probabilities: Sequence[Sequence[float]]
    ) -> None:
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

    def _start(self, lines: io.StringIO, row: TextRow, cells: Mapping[str, Any]) -> None:
        self._checked = True
        if not self.columns:
            self.columns = list(cells)
            if self.kind != "jsonl":
                write_cells(lines, self.columns, DELIMITERS[self.kind], self.raw)
        elif self.kind != "jsonl" and [*map(plain_cell, cells)] != [*map(plain_cell, self.columns)]:
            raise DataError(
                f"{row.where}: the row would have the columns {list(cells)}, but those in the file are "
                f"{list(self.columns)}. Go on with the same options, or name another file."
            )

    def _write_cells(self, lines: io.StringIO, row: TextRow, cells: Mapping[str, Any]) -> None:
        known = {plain_cell(name) for name in self.columns}
        strange = [name for name in cells if plain_cell(name) not in known]
        if strange:
            raise DataError(
                f"{row.where}: the column {strange[0]!r:.80} is not in the first row, so a table has no place for it. "
                "Write JSON lines instead: --json, or an --out that ends in .jsonl."
            )
        # A cell that is no string can only come from JSON, and is written as there; one that is missing is empty.
        values = (cells.get(name, cells.get(plain_cell(name), "")) for name in self.columns)
        plain = [value if isinstance(value, str) else json.dumps(value, ensure_ascii=False) for value in values]
        write_cells(lines, plain, DELIMITERS[self.kind], self.raw)

    def _added(self, row: TextRow, label: Label, probabilities: Sequence[float]) -> dict[str, Any]:
        added: dict[str, Any] = {LABEL: label, PROBABILITY: round(max(probabilities), 6)}
        if self.every_class:
            of_class = zip(self.classes, probabilities, strict=True)
            added |= {f"{_OF_CLASS}{name}": round(value, 6) for name, value in of_class}
        taken = [name for name in added if name in row.cells]
        if taken:
            raise DataError(
                f"{row.where}: there is a column {taken[0]!r:.80} already, in which predictions would be written. "
                "Rename it."
            )
        return added


class Done(NamedTuple):
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


def _done(row: TextRow, classes: set[str]) -> Done:
    try:
        label, probability = str(row.cells[LABEL]), float(row.cells[PROBABILITY])
    except (KeyError, TypeError, ValueError):
        raise DataError(f"{row.where}: there is no {LABEL} with its {PROBABILITY}.") from None
    if not 0 <= probability <= 1:  # NaN is neither
        raise DataError(f"{row.where}: {PROBABILITY} is {probability}, expected a number from 0 to 1.")
    label = label if label in classes else plain_cell(label)
    if label not in classes:
        raise DataError(f"{row.where}: {label!r:.80} is no class of this classifier.")
    return Done(row.text, label, probability)


# -- Rows in, rows with predictions out, a few at a time --------------------------------------------------------------

_COMPARED = 8
_TOLERANCE = 1e-3


def predict_rows(
    classifier: MetaPromptClassifier, rows: Iterator[TextRow], writer: RowWriter, at_a_time: int
) -> Iterator[int]:
    """Predict and write all rows in their order, ``at_a_time`` together; gives their number after each time."""
    while part := list(islice(rows, at_a_time)):
        probabilities = classifier.predict_proba([row.text for row in part])
        writer.write(part, classifier.labels_of(probabilities).tolist(), probabilities.tolist())
        yield len(part)


def skip_done(classifier: MetaPromptClassifier, rows: Iterator[TextRow], file: PredictedFile) -> int:
    """Pass over the rows that a file holds already, and make sure that they are these rows and this classifier's.

    The first few are predicted again for that.

    Returns:
        How many there are.

    Raises:
        DataError: the file's rows are of other texts, or by another classifier.
    """
    compared: list[tuple[TextRow, Done]] = []
    count = 0
    for done in file.done():
        row = next(rows, None)
        count += 1
        if row is None or plain_cell(row.text) != plain_cell(done.text):
            given = "nothing" if row is None else f"{row.text[:60]!r} ({row.where})"
            raise DataError(
                f"Row {count} of the file that is there already has the text {done.text[:60]!r}; to be predicted is "
                f"{given}. It is of other texts: name another file, or remove it."
            )
        if len(compared) < _COMPARED:
            compared.append((row, done))
    found = classifier.predict_proba([row.text for row, _ in compared]) if compared else ()
    for (row, done), probabilities in zip(compared, found, strict=True):
        label, probability = str(classifier.labels_of(probabilities[None])[0]), float(probabilities.max())
        if label != done.label or abs(probability - done.probability) > _TOLERANCE:
            raise DataError(
                f"The file that is there already has {done.label!r} ({done.probability:.4f}) for {row.text[:60]!r}, "
                f"where this classifier says {label!r} ({probability:.4f}). It is another classifier's: name another "
                "file, or remove it."
            )
    return count
