"""MAML over the pool, by learn2learn's wrapper: clone, adapt inside, step outside."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from openprompt_meta.compat.maml import load_maml, load_maml_update
from openprompt_meta.errors import NotFiniteError
from openprompt_meta.learners.base_learner import BaseLearner, OpenTasks, task_randomness
from openprompt_meta.learners.meta_learner import MetaLearner, MetaStep, TaskOutcome
from openprompt_meta.learners.task import Task
from openprompt_meta.prompts import PromptPool
from openprompt_meta.prompts.query import evaluation_mode

__all__ = ["Adaptation", "MamlLearner"]


class MamlLearner(MetaLearner):
    """Algorithm 2 of the paper. Only the pool is wrapped and cloned, never the language model.

    Args:
        pool: the meta-parameters.
        base_learner: what is done inside a task.
        optimizer: over the pool's parameters.
        inner_lr: α.
        inner_steps: J in meta-training.
        first_order: drop second derivatives from the meta-gradient.
    """

    def __init__(
        self,
        pool: PromptPool,
        base_learner: BaseLearner,
        optimizer: torch.optim.Optimizer,
        inner_lr: float = 0.1,
        inner_steps: int = 5,
        first_order: bool = True,
    ) -> None:
        self.pool = pool
        self.base_learner = base_learner
        self.optimizer = optimizer
        self.inner_steps = inner_steps
        self._maml = load_maml()(pool, lr=inner_lr, first_order=first_order)

    def meta_step(self, tasks: Sequence[Task]) -> MetaStep:
        """One step of the optimiser on the query loss after adaptation, averaged over the tasks."""
        self.optimizer.zero_grad()
        losses: list[float] = []
        accuracies: list[float] = []
        inner: list[list[float]] = []
        for group in self.base_learner.in_groups(tasks):
            with task_randomness(self.base_learner.seed, group[0]):
                opened = self.base_learner.open(group)
                learners = [self._maml.clone() for _ in group]
                inner += self._adapt(opened, learners, self.inner_steps)
                predicted = opened.query_log_probabilities([one.module for one in learners], self.inner_steps)
                group_losses = opened.query_losses(predicted)
                (torch.stack(group_losses).sum() / len(tasks)).backward()
            losses += [loss.item() for loss in group_losses]
            accuracies += [_accuracy(one, task) for one, task in zip(predicted, group, strict=True)]
        norm = self._gradient_norm(tasks)
        self.optimizer.step()
        return MetaStep(
            loss=sum(losses) / len(losses),
            accuracy=sum(accuracies) / len(accuracies),
            inner_losses=[sum(step) / len(step) for step in zip(*inner, strict=True)],
            gradient_norm=norm,
        )

    def judge_together(self, tasks: Sequence[Task], steps: int) -> list[TaskOutcome]:
        """Adapt a clone for each task by ``steps`` steps, and judge the query sets without gradient."""
        with task_randomness(self.base_learner.seed, tasks[0]), evaluation_mode(self.base_learner.classifier):
            opened = self.base_learner.open(tasks)
            learners = [self._maml.clone(first_order=True) for _ in tasks]
            inner = self._adapt(opened, learners, steps)
            with torch.no_grad():
                predicted = opened.query_log_probabilities([one.module for one in learners], steps)
                losses = opened.query_losses(predicted)
        return [
            TaskOutcome(task.index, _accuracy(one, task), loss.item(), inner_losses, one.cpu())
            for task, one, loss, inner_losses in zip(tasks, predicted, losses, inner, strict=True)
        ]

    @contextmanager
    def adapting(self, tasks: Sequence[Task]) -> Iterator[Adaptation]:
        """The inner loop of :meth:`judge_together` opened, to be taken step by step inside a ``with`` block."""
        with task_randomness(self.base_learner.seed, tasks[0]), evaluation_mode(self.base_learner.classifier):
            yield Adaptation(self.base_learner.open(tasks), [self._maml.clone(first_order=True) for _ in tasks])

    def _adapt(self, opened: OpenTasks, learners: Sequence[Any], steps: int) -> list[list[float]]:
        """Take ``steps`` inner steps with each learner; the support losses before each step, task by task."""
        losses: list[list[float]] = [[] for _ in learners]
        for step in range(steps):
            now = opened.support_losses([learner.module for learner in learners], step)
            _adapt_together(learners, now)
            for of_task, loss in zip(losses, now, strict=True):
                of_task.append(loss.item())
        return losses

    def _gradient_norm(self, tasks: Sequence[Task]) -> float:
        """Length of the meta-gradient, refused before it can spoil the pool if it is not a number."""
        gradients = [p.grad.flatten() for p in self.pool.parameters() if p.grad is not None]
        norm = float(torch.linalg.vector_norm(torch.cat(gradients)))
        if not math.isfinite(norm):
            indices = ", ".join(str(task.index) for task in tasks)
            raise NotFiniteError(
                f"Task {indices}: the meta-gradient has length {norm}. The pool and the last checkpoint are as they "
                "were. Lower inner_lr, or look at the task's texts."
            )
        return norm


class Adaptation:
    """Pools on their way from the meta-learned one to one for each task."""

    def __init__(self, opened: OpenTasks, learners: Sequence[Any]) -> None:
        self.steps_taken = 0
        self._opened = opened
        self._learners = learners

    @property
    def pools(self) -> list[PromptPool]:
        """Each task's pool as it is now."""
        return [learner.module for learner in self._learners]

    def support_losses(self) -> list[float]:
        """The loss of each support set as it is now; nothing is learned."""
        return [loss.item() for loss in self._opened.apart().support_losses(self.pools, self.steps_taken)]

    def step(self) -> list[float]:
        """Take an inner step with each pool; the support losses before it."""
        losses = self._opened.support_losses(self.pools, self.steps_taken)
        _adapt_together(self._learners, losses)
        self.steps_taken += 1
        return [loss.item() for loss in losses]

    @torch.no_grad()
    def judge(self) -> tuple[list[Tensor], list[float]]:
        """Log-probabilities ``[n, C]`` of each query set and its loss, if adaptation ended here; it may go on."""
        opened = self._opened.apart()
        predicted = opened.query_log_probabilities(self.pools, self.steps_taken)
        return predicted, [loss.item() for loss in opened.query_losses(predicted)]


def _adapt_together(learners: Sequence[Any], losses: Sequence[Tensor]) -> None:
    """What ``learner.adapt(loss)`` does for each, with one walk back through the language model for all."""
    if len(learners) == 1:
        learners[0].adapt(losses[0])
        return
    second_order = not learners[0].first_order
    parameters = [list(learner.module.parameters()) for learner in learners]
    # A task's loss knows its own pool alone, so the gradient of the sum is that of each.
    gradients = iter(
        torch.autograd.grad(
            torch.stack(list(losses)).sum(),
            [parameter for own in parameters for parameter in own],
            retain_graph=second_order,
            create_graph=second_order,
        )
    )
    for learner, own in zip(learners, parameters, strict=True):
        learner.module = load_maml_update()(learner.module, learner.lr, [next(gradients) for _ in own])


def _accuracy(log_probabilities: Tensor, task: Task) -> float:
    return (log_probabilities.argmax(dim=-1) == task.query["label"]).float().mean().item()
