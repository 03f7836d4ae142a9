"""Tasks of a split: episodes of indices turned into batches of tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from openprompt_meta.data import EpisodeSampler
from openprompt_meta.learners import Task

__all__ = ["TaskSource", "Texts"]


class Texts(Protocol):
    """The texts of a split in the form that a method's learner takes."""

    def batch(self, indices: Sequence[int], labels: Sequence[int] | None = None) -> dict[str, Tensor]:
        """The texts at ``indices`` as tensors, with ``label`` ``[B]`` if labels are given."""


@dataclass(frozen=True)
class TaskSource:
    """``source[index]`` is the task of that number, always the same one.

    Attributes:
        episodes: which texts make up which task.
        texts: the split's texts, encoded.
        label_words: words of its classes.
    """

    episodes: EpisodeSampler
    texts: Texts
    label_words: Mapping[str, Sequence[str]]

    def __getitem__(self, index: int) -> Task:
        episode = self.episodes[index]
        return Task(
            index=index,
            classes=episode.classes,
            label_words={name: self.label_words[name] for name in episode.classes if name in self.label_words},
            support=self.texts.batch(episode.support, episode.support_labels),
            query=self.texts.batch(episode.query, episode.query_labels),
        )
