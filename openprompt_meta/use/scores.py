"""How well a classifier does on labelled texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.metrics import confusion_matrix, f1_score

if TYPE_CHECKING:
    from openprompt_meta.use.classifier import MetaPromptClassifier

from openprompt_meta.use.inputs import Label

__all__ = ["Scores", "score_on"]


@dataclass(frozen=True)
class Scores:
    """Scores over a set of labelled texts.

    Attributes:
        texts: how many there are.
        accuracy: the part that is classified as labelled.
        macro_f1: mean over classes of the harmonic mean of precision and recall; over those that occur, as a label or
            as a prediction.
        classes: the classifier's.
        confusion: ``confusion[i][j]`` texts labelled ``classes[i]`` were classified as ``classes[j]``.
    """

    texts: int
    accuracy: float
    macro_f1: float
    classes: tuple[Label, ...]
    confusion: tuple[tuple[int, ...], ...]

    def as_dict(self) -> dict[str, Any]:
        """The same for JSON."""
        return {
            "texts": self.texts,
            "accuracy": self.accuracy,
            "macro_f1": self.macro_f1,
            "classes": list(self.classes),
            "confusion_matrix": [list(row) for row in self.confusion],
        }


def score_on(classifier: MetaPromptClassifier, texts: Sequence[str], labels: Sequence[Label]) -> Scores:
    """Predict ``texts`` and compare with ``labels``, which are classes of the classifier."""
    classes = classifier.task_.classes
    expected = np.array(list(labels))
    predicted = classifier.predict(texts)
    matrix = confusion_matrix(expected, predicted, labels=list(classes))
    return Scores(
        texts=len(expected),
        accuracy=float((expected == predicted).mean()),
        macro_f1=float(f1_score(expected, predicted, average="macro", zero_division=0)),
        classes=classes,
        confusion=tuple(tuple(int(count) for count in row) for row in matrix),
    )
