"""A fitted task as plain data: what a classifier learned, and what is written to disk."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from openprompt_meta.classifier.adaptation import Adapted
from openprompt_meta.classifier.inputs import Label
from openprompt_meta.classifier.pretrained import MetaLearned
from openprompt_meta.data.classes import words_of_class_name

__all__ = ["FittedTask", "words_of"]


@dataclass(frozen=True)
class FittedTask:
    """What :meth:`MetaPromptClassifier.fit` learned. It never changes.

    Attributes:
        meta: what it was learned from.
        classes: the classes, sorted.
        labels: the class of each support example, as a position in ``classes``.
        texts: the support examples; ``None`` if they were left out when it was saved.
        label_words: words of each class by its name, if the user gave some.
        adapted: pool, verbalizer and the features of the support examples, of which there are none without texts.
    """

    meta: MetaLearned
    classes: tuple[Label, ...]
    labels: tuple[int, ...]
    texts: tuple[str, ...] | None
    label_words: Mapping[str, Sequence[str]] | None
    adapted: Adapted

    @property
    def class_names(self) -> list[str]:
        """The classes as strings."""
        return [str(name) for name in self.classes]

    @property
    def words(self) -> dict[str, Sequence[str]]:
        """Words of each class: the user's, or those in its name."""
        return words_of(self.class_names, self.label_words)

    @property
    def counts(self) -> list[int]:
        """Support examples of each class."""
        return [self.labels.count(i) for i in range(len(self.classes))]


def words_of(names: Sequence[str], given: Mapping[str, Sequence[str]] | None) -> dict[str, Sequence[str]]:
    """Words of each class: those given, or those in its name."""
    known = given or {}
    return {name: known.get(name) or words_of_class_name(name) for name in names}
