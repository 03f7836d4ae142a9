"""Learning a task by gradient steps on its support set, and the outer loop that meta-learners have in common."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from openprompt_meta.errors import NotFiniteError
from openprompt_meta.learners.adaptation import Adaptation, Adapter
from openprompt_meta.learners.base_learner import BaseLearner, OpenTasks, task_randomness
from openprompt_meta.learners.inner_loop import InnerLoop
from openprompt_meta.learners.meta_learner import MetaLearner, MetaStep, TaskLearner, TaskOutcome, accuracy_of
from openprompt_meta.learners.pool_clones import PoolClones
from openprompt_meta.learners.task import Task
from openprompt_meta.prompts import PromptPool
from openprompt_meta.prompts.query import evaluation_mode

__all__ = ["AdaptingLearner", "GradientLearner"]


class AdaptingLearner(TaskLearner):
    """Adapts parameters to each support set from the same start, and judges the query set with them.

    Args:
        base_learner: what is done inside a task.
        adapter: which parameters, and how they are stepped.
    """

    def __init__(self, base_learner: BaseLearner, adapter: Adapter) -> None:
        self.base_learner = base_learner
        self.adapter = adapter

    def in_groups(self, tasks: Iterable[Task]) -> Iterator[list[Task]]:
        """As many together as go through the language model side by side."""
        return self.base_learner.in_groups(tasks)

    def judge_together(self, tasks: Sequence[Task], steps: int) -> list[TaskOutcome]:
        """Adapt to each support set by ``steps`` steps, and judge the query sets without gradient."""
        with task_randomness(self.base_learner.seed, tasks[0]), evaluation_mode(self.base_learner.classifier):
            opened = self.base_learner.open(tasks)
            with self.adapter.begin(opened, learns=False) as adaptation:
                inner = adapt(opened, adaptation, steps)
                with torch.no_grad():
                    predicted = opened.query_log_probabilities(adaptation.pools, steps)
                    losses = opened.query_losses(predicted)
        return [
            TaskOutcome(task.index, accuracy_of(one, task), loss.item(), inner_losses, one.cpu())
            for task, one, loss, inner_losses in zip(tasks, predicted, losses, inner, strict=True)
        ]

    @contextmanager
    def adapting(self, tasks: Sequence[Task]) -> Iterator[InnerLoop]:
        """The inner loop of :meth:`judge_together` opened, to be taken step by step inside a ``with`` block."""
        with task_randomness(self.base_learner.seed, tasks[0]), evaluation_mode(self.base_learner.classifier):
            opened = self.base_learner.open(tasks)
            with self.adapter.begin(opened, learns=False) as adaptation:
                yield InnerLoop(opened, adaptation)


class GradientLearner(AdaptingLearner, MetaLearner):
    """The outer loop. Subclasses say what a group of adapted tasks teaches.

    Args:
        pool: what is learned.
        base_learner: what is done inside a task.
        optimizer: over the parameters of ``pool``.
        inner_lr: α.
        inner_steps: J in meta-training.
        first_order: drop second derivatives from the meta-gradient.
        adapter: how tasks adapt what is learned, for anything but clones of a pool stepped by ``inner_lr``.
    """

    def __init__(
        self,
        pool: torch.nn.Module,
        base_learner: BaseLearner,
        optimizer: torch.optim.Optimizer,
        inner_lr: float = 0.1,
        inner_steps: int = 5,
        first_order: bool = True,
        adapter: Adapter | None = None,
    ) -> None:
        if adapter is None:
            if not isinstance(pool, PromptPool):
                raise TypeError(f"Only a PromptPool is cloned by itself; give an adapter for {type(pool).__name__}.")
            adapter = PoolClones(pool, inner_lr, first_order)
        super().__init__(base_learner, adapter)
        self.pool = pool
        self.optimizer = optimizer
        self.inner_steps = inner_steps

    @abstractmethod
    def learn(self, tasks: OpenTasks, adaptation: Adaptation, share: float) -> list[Tensor]:
        """Add what a group of tasks teaches to the meta-parameters' gradients.

        Args:
            tasks: opened.
            adaptation: to them, after :attr:`inner_steps` steps.
            share: what each task of the meta-batch counts.

        Returns:
            Log-probabilities of each query set after those steps.
        """

    def meta_step(self, tasks: Sequence[Task]) -> MetaStep:
        """One step of the optimiser on what the tasks teach, averaged over them."""
        self.optimizer.zero_grad()
        losses: list[float] = []
        accuracies: list[float] = []
        inner: list[list[float]] = []
        for group in self.base_learner.in_groups(tasks):
            with task_randomness(self.base_learner.seed, group[0]):
                opened = self.base_learner.open(group)
                with self.adapter.begin(opened, learns=True) as adaptation:
                    inner += adapt(opened, adaptation, self.inner_steps)
                    predicted = self.learn(opened, adaptation, 1 / len(tasks))
            losses += [loss.item() for loss in opened.query_losses(predicted)]
            accuracies += [accuracy_of(one, task) for one, task in zip(predicted, group, strict=True)]
        norm = self._gradient_norm(tasks)
        self.optimizer.step()
        return MetaStep(
            loss=sum(losses) / len(losses),
            accuracy=sum(accuracies) / len(accuracies),
            inner_losses=[sum(step) / len(step) for step in zip(*inner, strict=True)],
            gradient_norm=norm,
        )

    def _gradient_norm(self, tasks: Sequence[Task]) -> float:
        """Length of the meta-gradient, refused before it can spoil the pool if it is not a number."""
        gradients = [p.grad for p in self.pool.parameters() if p.grad is not None]
        norm = float(torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(g) for g in gradients])))
        if not math.isfinite(norm):
            indices = ", ".join(str(task.index) for task in tasks)
            raise NotFiniteError(
                f"Task {indices}: the meta-gradient has length {norm}. The pool and the last checkpoint are as they "
                "were. Lower inner_lr, or look at the task's texts."
            )
        return norm


def adapt(tasks: OpenTasks, adaptation: Adaptation, steps: int, taken: int = 0) -> list[list[float]]:
    """Take ``steps`` inner steps; the support losses before each, task by task.

    Args:
        tasks: opened.
        adaptation: to them.
        steps: how many.
        taken: how many were taken before, for messages.
    """
    losses: list[list[float]] = [[] for _ in tasks.tasks]
    for step in range(taken, taken + steps):
        now = tasks.support_losses(adaptation.pools, step)
        adaptation.step(now)
        for of_task, loss in zip(losses, now, strict=True):
            of_task.append(loss.item())
    return losses
