"""Rows in, rows with predictions out, a few at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING

from openprompt_meta.errors import DataError
from openprompt_meta.use.files.predicted import Done, PredictedFile, RowWriter
from openprompt_meta.use.files.rows import Row

if TYPE_CHECKING:
    from openprompt_meta.use.classifier import MetaPromptClassifier

__all__ = ["predict_rows", "skip_done"]

_COMPARED = 8
_TOLERANCE = 1e-3


def predict_rows(
    classifier: MetaPromptClassifier,
    rows: Iterator[Row],
    writer: RowWriter,
    at_a_time: int,
    on_progress: Callable[[int], None],
) -> int:
    """Predict and write all rows, in their order.

    Args:
        classifier: a fitted one.
        rows: what to predict.
        writer: where to.
        at_a_time: rows that are read, predicted and written together.
        on_progress: told the number of rows after each time.

    Returns:
        How many rows there were.
    """
    count = 0
    while part := list(islice(rows, at_a_time)):
        probabilities = classifier.predict_proba([row.text for row in part])
        labels = [writer.classes[i] for i in probabilities.argmax(axis=1)]
        writer.write(part, labels, probabilities.tolist())
        count += len(part)
        on_progress(len(part))
    return count


def skip_done(classifier: MetaPromptClassifier, rows: Iterator[Row], file: PredictedFile) -> int:
    """Pass over the rows that a file holds already, and make sure that they are these rows and this classifier's.

    The first few are predicted again for that.

    Returns:
        How many there are.

    Raises:
        DataError: the file's rows are of other texts, or by another classifier.
    """
    compared: list[tuple[Row, Done]] = []
    count = 0
    for done in file.done():
        row = next(rows, None)
        count += 1
        if row is None or row.text != done.text:
            given = "nothing" if row is None else f"{row.text[:60]!r} ({row.where})"
            raise DataError(
                f"Row {count} of the file that is there already has the text {done.text[:60]!r}; to be predicted is "
                f"{given}. It is of other texts: name another file, or remove it."
            )
        if len(compared) < _COMPARED:
            compared.append((row, done))
    if compared:
        _require_same(classifier, compared)
    return count


def _require_same(classifier: MetaPromptClassifier, compared: Sequence[tuple[Row, Done]]) -> None:
    classes = classifier.task_.classes
    found = classifier.predict_proba([row.text for row, _ in compared])
    for (row, done), own in zip(compared, found, strict=True):
        if str(classes[own.argmax()]) != done.label or abs(float(own.max()) - done.probability) > _TOLERANCE:
            raise DataError(
                f"The file that is there already has {done.label!r} ({done.probability:.4f}) for {row.text[:60]!r}, "
                f"where this classifier says {str(classes[own.argmax()])!r} ({own.max():.4f}). It is another "
                "classifier's: name another file, or remove it."
            )
