"""A task as learners see it: batches of tensors, classes and their words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor

__all__ = ["Batch", "Task"]

Batch = Mapping[str, Tensor]


@dataclass(frozen=True)
class Task:
    """One N-way K-shot task.

    Attributes:
        index: which task of its split it is, for messages.
        classes: names; label ``i`` means ``classes[i]``.
        label_words: words of each class, for hand-crafted verbalizers.
        support: a wrapped batch with ``label``, to adapt to.
        query: a wrapped batch with ``label``, to be judged on.
    """

    index: int
    classes: Sequence[str]
    label_words: Mapping[str, Sequence[str]]
    support: Batch
    query: Batch
