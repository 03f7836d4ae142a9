"""A file of labelled texts, to learn from or to be judged on."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from openprompt_meta.data.readers.records import column_of
from openprompt_meta.data.readers.tables import TABLE_SUFFIXES
from openprompt_meta.errors import DataError
from openprompt_meta.use.inputs import Label

__all__ = ["as_labels_of", "read_labelled"]


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
