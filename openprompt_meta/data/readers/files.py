"""Folders and files of labelled texts: our layout, JSON lines, CSV, and the JSON lines of the paper's authors."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from openprompt_meta.data.classes import read_class_splits, read_label_words
from openprompt_meta.data.dataset import SPLIT_NAMES
from openprompt_meta.data.facts import facts_of
from openprompt_meta.data.readers.records import (
    RecordBuilder,
    Records,
    Source,
    column_of,
    split_name_of,
)
from openprompt_meta.errors import DataError
from openprompt_meta.files import parse_json, read_limited

# -- Rows of JSON-lines and CSV files, with the line of every row so that an error can point at it --------------------

TableRecord = Mapping[str, object]
DEMO = Path(__file__).resolve().parents[1] / "demo"


def read_table(source: Source) -> Records:
    """A ``.jsonl``, ``.json`` (lines), ``.csv`` or ``.tsv`` file, or a folder of such files.

    In a folder, files named ``train``, ``valid`` (``dev``, ``validation`` …) and ``test`` become those splits; texts
    of other files have no split. :class:`DataError` names file and line of whatever is wrong.
    """
    path = source.path
    files = (
        sorted(file for file in path.iterdir() if file.suffix.lower() in TABLE_SUFFIXES) if path.is_dir() else [path]
    )
    # Files of settings that lie beside the texts in the layout of this package.
    files = [file for file in files if file.name not in {"splits.json", "labels.json", "labels_tokenized.json"}]
    if not files:
        raise DataError(f"{path} holds no file that ends in {', '.join(TABLE_SUFFIXES)}.")
    builder = RecordBuilder(class_names=source.class_names, drop_empty=source.drop_empty)
    for file in files:
        part = split_name_of(file.stem) if path.is_dir() else None
        add_table(builder, file, text_column=source.text_column, label_column=source.label_column, part=part)
    return builder.build(source.name or path.stem, str(path))


def add_table(
    builder: RecordBuilder, file: Path, *, text_column: str, label_column: str, part: str | None = None
) -> None:
    """Put the rows of one file into ``builder``."""
    rows = TABLE_SUFFIXES.get(file.suffix.lower())
    if rows is None:
        raise DataError(f"{file}: unknown kind of file; expected one that ends in {', '.join(TABLE_SUFFIXES)}.")
    for line, row in rows(file):
        where = f"{file}, line {line}"
        text = row[column_of(text_column, list(row), where, "text_column")]
        label = row[column_of(label_column, list(row), where, "label_column")]
        builder.add(text, label, where, part)


def read_bytes(path: Path) -> bytes:
    """The content of a file. :class:`DataError` if there is none."""
    try:
        return read_limited(path)
    except FileNotFoundError:
        raise DataError(f"There is no file {path}.") from None
    except (OSError, ValueError) as error:  # ValueError: a zero byte in the name
        raise DataError(f"{path} cannot be read: {getattr(error, 'strerror', error)}.") from error


def _json_rows(path: Path) -> Iterator[tuple[int, TableRecord]]:
    # Only the line feed ends a line: str.splitlines would also cut at U+2028 and its like inside a text.
    for number, raw in enumerate(read_bytes(path).removeprefix(b"\xef\xbb\xbf").split(b"\n"), start=1):
        if not raw.strip():
            continue
        text = _decoded(raw, path, number)
        if text.strip() == "[":
            raise DataError(f"{path}, line {number}: the file seems to hold one JSON array; write one object a line.")
        row = parse_json(text, str(path), number)
        if not isinstance(row, dict):
            raise DataError(
                f'{path}, line {number}: expected an object such as {{"text": …, "label": …}}, '
                f"found {type(row).__name__}."
            )
        yield number, row


def _separated_rows(delimiter: str) -> Callable[[Path], Iterator[tuple[int, TableRecord]]]:
    def rows(path: Path) -> Iterator[tuple[int, TableRecord]]:
        content = read_bytes(path).removeprefix(b"\xef\xbb\xbf")
        # newline="" leaves line ends inside quoted texts alone.
        reader = csv.reader(io.StringIO(_decoded(content, path, 1), newline=""), delimiter=delimiter, strict=True)
        header: list[str] | None = None
        line = 1
        try:
            for cells in reader:
                start, line = line, reader.line_num + 1
                if not cells:
                    continue
                if header is None:
                    header = cells
                    twice = [name for name in header if name and header.count(name) > 1]
                    if twice:
                        raise DataError(f"{path}, line {start}: two columns are called {twice[0]!r:.80}. Rename one.")
                    continue
                if len(cells) != len(header):
                    raise DataError(
                        f"{path}, line {start}: {len(cells)} cells, but the header has {len(header)}. "
                        f"Put a text that holds the separator into double quotes."
                    )
                yield start, dict(zip(header, cells, strict=True))
        except csv.Error as error:
            remedy = " Write long texts as JSON lines (.jsonl)." if "field limit" in str(error) else ""
            raise DataError(f"{path}, line {line}: not a table: {error}.{remedy}") from error

    return rows


def _decoded(raw: bytes, path: Path, line: int) -> str:
    """``raw`` as UTF-8. :class:`DataError` with the line of the first bad byte, counted from ``line``."""
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        line += raw.count(b"\n", 0, error.start)
        likely = "utf-16" if raw[:2] in {b"\xff\xfe", b"\xfe\xff"} else "latin1"
        raise DataError(
            f"{path}, line {line}: not UTF-8 (byte 0x{raw[error.start]:02x}). Save the file as UTF-8, for example "
            f"with `iconv -f {likely} -t utf-8`."
        ) from error


TABLE_SUFFIXES: Mapping[str, Callable[[Path], Iterator[tuple[int, TableRecord]]]] = {
    ".jsonl": _json_rows,
    ".json": _json_rows,
    ".csv": _separated_rows(","),
    ".tsv": _separated_rows("\t"),
}


# -- A folder in this package's own layout: texts in ``train/valid/test.jsonl``, ``splits.json``, ``labels.json`` -----


def is_layout(path: Path) -> bool:
    """Whether the folder has what sets this layout apart from any folder of tables."""
    return (path / "train.jsonl").is_file() and (path / "splits.json").is_file()


def read_layout(source: Source) -> Records:
    """Texts and splits as the files have them; ``splits.json`` and ``labels.json`` if they are there.

    Whether the class lists agree with the files is not decided here: ``data check`` reports it, loading refuses it.
    """
    path = source.path
    if not (path / "train.jsonl").is_file():
        raise DataError(f"{path} has no train.jsonl. A data folder holds train.jsonl, valid.jsonl and test.jsonl.")
    builder = RecordBuilder(drop_empty=source.drop_empty)
    for split in SPLIT_NAMES:
        file = path / f"{split}.jsonl"
        if file.is_file():
            add_table(builder, file, text_column="text", label_column="label", part=split)
    lists = read_class_splits(path / "splits.json") if (path / "splits.json").is_file() else {}
    words = read_label_words(path / "labels.json") if (path / "labels.json").is_file() else {}
    # Where the package happens to be installed is of no interest to a reader of the results.
    provenance = "shipped with openprompt_meta" if path == DEMO else str(path)
    return builder.build(source.name or path.resolve().name, provenance, lists=lists, label_words=words)


# -- The authors' own files: JSON lines with ``raw`` and an integer ``label`` whose meaning the shipped facts know ----


def is_authors_file(path: Path) -> bool:
    """Whether the first line is a row of the authors' form. A broken line is left for the reader to complain about."""
    if path.suffix != ".json" or path.is_dir():
        return False
    try:
        first = parse_json(read_bytes(path).split(b"\n", 1)[0].decode("utf-8-sig"), str(path))
    except (ValueError, DataError):
        return False
    return isinstance(first, dict) and "raw" in first and isinstance(first.get("label"), int)


def read_authors_file(source: Source) -> Records:
    """Texts with class names, without splits. The source's name is one of the six sets; by default the file's is.

    :class:`DataError` for an unknown set and for a number that the set does not have.
    """
    facts = facts_of(source.name or source.path.stem)
    builder = RecordBuilder(class_names=facts.classes, drop_empty=source.drop_empty)
    add_table(builder, source.path, text_column="raw", label_column="label")
    return builder.build(facts.name, str(source.path))
