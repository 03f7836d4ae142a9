"""Meta-parameters on their way through an inner loop: the interface that meta-learners are written against."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager

from torch import Tensor

from openprompt_meta.learners.base_learner import OpenTasks
from openprompt_meta.prompts import PromptPool

__all__ = ["Adaptation", "Adapter"]


class Adaptation(ABC):
    """What tasks have made of the meta-parameters so far."""

    @property
    @abstractmethod
    def pools(self) -> Sequence[PromptPool]:
        """The pool to read each task's texts with."""

    @abstractmethod
    def step(self, losses: Sequence[Tensor]) -> None:
        """One inner step down each task's loss."""

    @abstractmethod
    def further(self) -> AbstractContextManager[None]:
        """Steps inside go further from here without gradient to the start, and are forgotten at the end."""

    @abstractmethod
    def learn_from(self, loss: Tensor) -> None:
        """Add the meta-gradient of a loss to the ``grad`` of the meta-parameters."""

    @abstractmethod
    def learn_displacement(self, scale: float) -> None:
        """Add ``scale · Σ (start - now)`` over the tasks to the ``grad`` of the meta-parameters."""


class Adapter(ABC):
    """Lets tasks adapt the meta-parameters, which are as they were when a task has ended."""

    @abstractmethod
    def begin(self, tasks: OpenTasks, learns: bool) -> AbstractContextManager[Adaptation]:
        """Start from the meta-parameters.

        Args:
            tasks: that are to be adapted to.
            learns: whether a meta-gradient will be asked for.
        """
