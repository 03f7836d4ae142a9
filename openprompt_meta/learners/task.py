"""A task as learners see it, and the interfaces of learners: what evaluates a task, and what learns across tasks."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from openprompt_meta.errors import NotFiniteError

# -- A task as learners see it: batches of tensors, classes and their words -------------------------------------------

Batch = Mapping[str, Tensor]


@dataclass(frozen=True)
class Task:
    """One N-way K-shot task.

    Attributes:
        index: which task of its split it is, for messages.
        classes: names; label ``i`` means ``classes[i]``.
        label_words: words of each class, for hand-crafted verbalizers.
        support: a wrapped batch with ``label``, to adapt to.
        query: a wrapped batch with ``label``, to be evaluated on.
        names: the words of the classes as texts, a wrapped batch with ``label``; for verbalizers that read them.
        text_ids: for support, query and names, which of its source's texts each row is, so that tasks that share
            texts can share what was read of them.
    """

    index: int
    classes: Sequence[str]
    label_words: Mapping[str, Sequence[str]]
    support: Batch
    query: Batch
    names: Batch | None = None
    text_ids: tuple[Sequence[int], Sequence[int], Sequence[int]] | None = None


# -- meta learner -----------------------------------------------------------------------------------------------------
# The interfaces of learners: what evaluates a task, and what learns across tasks. A run sees these and nothing else.


@dataclass(frozen=True)
class MetaStep:
    """One meta-iteration in numbers, averaged over its tasks."""

    loss: float
    accuracy: float
    inner_losses: list[float]
    gradient_norm: float


@dataclass(frozen=True)
class TaskOutcome:
    """One task evaluated after adaptation."""

    index: int
    accuracy: float
    loss: float
    inner_losses: list[float]
    log_probabilities: Tensor
    """``[n, C]``, on the CPU."""


class TaskLearner(ABC):
    """Learns a task from its support set and evaluates its query set."""

    def in_groups(self, tasks: Iterable[Task]) -> Iterator[list[Task]]:
        """The tasks in their order, as many together as are evaluated side by side: one, unless a learner can more."""
        return ([task] for task in tasks)

    def evaluate_all(self, tasks: Iterable[Task], steps: int) -> Iterator[list[TaskOutcome]]:
        """:meth:`evaluate_batch` for all of them, group by group; tasks are asked for as they are needed."""
        for group in self.in_groups(tasks):
            yield self.evaluate_batch(group, steps)

    @abstractmethod
    def evaluate_batch(self, tasks: Sequence[Task], steps: int) -> list[TaskOutcome]:
        """Learn each task by ``steps`` steps and evaluate its query set; nothing is kept of it afterwards."""

    def evaluate(self, task: Task, steps: int) -> TaskOutcome:
        """:meth:`evaluate_batch` for one task."""
        (outcome,) = self.evaluate_batch([task], steps)
        return outcome


class MetaLearner(TaskLearner):
    """Learns from tasks what the next ones start from.

    Attributes:
        meta_parameters: what is learned: a pool of prompts, or whatever else a method tunes across tasks.
        optimizer: the outer loop's.
    """

    meta_parameters: nn.Module
    optimizer: torch.optim.Optimizer

    @abstractmethod
    def meta_step(self, tasks: Sequence[Task]) -> MetaStep:
        """Learn from a batch of tasks."""


def accuracy_of(log_probabilities: Tensor, task: Task) -> float:
    """The share of a task's query set whose likeliest class is the right one."""
    return (log_probabilities.argmax(dim=-1) == task.query["label"]).float().mean().item()


def clipped_gradient_norm(parameters: Iterable[nn.Parameter], tasks: Sequence[Task], longest: float | None) -> float:
    """Length of the meta-gradient, refused before it can spoil what is learned if it is not a number.

    Args:
        parameters: what is learned across tasks; those without a gradient count for nothing.
        tasks: that it was learned from, for the message.
        longest: a longer gradient is shortened to this, after it was measured.
    """
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    norm = float(torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(g) for g in gradients])))
    if not math.isfinite(norm):
        indices = ", ".join(str(task.index) for task in tasks)
        raise NotFiniteError(
            f"Task {indices}: the meta-gradient has length {norm}. What was learned and the last checkpoint are as "
            "they were. Lower the step sizes, or look at the task's texts."
        )
    if longest is not None and norm > longest:
        for gradient in gradients:
            gradient.mul_(longest / norm)
    return norm
