"""What every meta-learner does, whichever its algorithm."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from openprompt_meta.learners.base_learner import BaseLearner
from openprompt_meta.learners.task import Task

__all__ = ["MetaLearner", "MetaStep", "TaskOutcome"]


@dataclass(frozen=True)
class MetaStep:
    """One meta-iteration in numbers, averaged over its tasks."""

    loss: float
    accuracy: float
    inner_losses: list[float]
    gradient_norm: float


@dataclass(frozen=True)
class TaskOutcome:
    """One task judged after adaptation."""

    index: int
    accuracy: float
    loss: float
    inner_losses: list[float]
    log_probabilities: Tensor
    """``[n, C]``, on the CPU."""


class MetaLearner(ABC):
    """Learns a starting pool from tasks; adapts it to a new one.

    Attributes:
        pool: what is learned.
        base_learner: what is done inside a task.
        optimizer: the outer loop's.
        inner_steps: J in meta-training.
    """

    pool: nn.Module
    base_learner: BaseLearner
    optimizer: torch.optim.Optimizer
    inner_steps: int

    @abstractmethod
    def meta_step(self, tasks: Sequence[Task]) -> MetaStep:
        """Learn from a batch of tasks."""

    @abstractmethod
    def judge_together(self, tasks: Sequence[Task], steps: int) -> list[TaskOutcome]:
        """Adapt a copy to each support set by ``steps`` steps and judge the query sets; nothing is learned."""

    def judge(self, task: Task, steps: int) -> TaskOutcome:
        """:meth:`judge_together` for one task."""
        (outcome,) = self.judge_together([task], steps)
        return outcome
