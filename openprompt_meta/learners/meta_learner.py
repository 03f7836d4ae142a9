"""The interfaces of learners: what judges a task, and what learns across tasks. A run sees these and nothing else."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from openprompt_meta.learners.task import Task

__all__ = ["MetaLearner", "MetaStep", "TaskLearner", "TaskOutcome", "accuracy_of"]


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


class TaskLearner(ABC):
    """Learns a task from its support set and judges its query set."""

    def in_groups(self, tasks: Iterable[Task]) -> Iterator[list[Task]]:
        """The tasks in their order, as many together as are judged side by side: one, unless a learner can more."""
        return ([task] for task in tasks)

    @abstractmethod
    def judge_together(self, tasks: Sequence[Task], steps: int) -> list[TaskOutcome]:
        """Learn each task by ``steps`` steps and judge its query set; nothing is kept of it afterwards."""

    def judge(self, task: Task, steps: int) -> TaskOutcome:
        """:meth:`judge_together` for one task."""
        (outcome,) = self.judge_together([task], steps)
        return outcome


class MetaLearner(TaskLearner):
    """Learns from tasks what the next ones start from.

    Attributes:
        pool: what is learned: a pool of prompts, or whatever else a method tunes across tasks.
        optimizer: the outer loop's.
    """

    pool: nn.Module
    optimizer: torch.optim.Optimizer

    @abstractmethod
    def meta_step(self, tasks: Sequence[Task]) -> MetaStep:
        """Learn from a batch of tasks."""


def accuracy_of(log_probabilities: Tensor, task: Task) -> float:
    """The share of a task's query set whose likeliest class is the right one."""
    return (log_probabilities.argmax(dim=-1) == task.query["label"]).float().mean().item()
