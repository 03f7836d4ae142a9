"""MAML over the pool, by learn2learn's wrapper: clone, adapt inside, step outside."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from openprompt_meta.compat.maml import load_maml
from openprompt_meta.errors import NotFiniteError
from openprompt_meta.learners.base_learner import BaseLearner, task_randomness
from openprompt_meta.learners.meta_learner import MetaLearner, MetaStep, TaskOutcome
from openprompt_meta.learners.task import Task
from openprompt_meta.prompts import PromptPool
from openprompt_meta.prompts.query import evaluation_mode

__all__ = ["MamlLearner"]


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
        losses, accuracies, inner = [], [], []
        for task in tasks:
            with task_randomness(self.base_learner.seed, task):
                learner = self._maml.clone()
                inner.append(self.base_learner.adapt(learner, task, self.inner_steps))
                predicted = self.base_learner.query_log_probabilities(learner.module, task, self.inner_steps)
                loss = self.base_learner.query_loss(predicted, task)
                (loss / len(tasks)).backward()
            losses.append(loss.item())
            accuracies.append(_accuracy(predicted, task))
        norm = self._gradient_norm(tasks)
        self.optimizer.step()
        return MetaStep(
            loss=sum(losses) / len(losses),
            accuracy=sum(accuracies) / len(accuracies),
            inner_losses=[sum(step) / len(step) for step in zip(*inner, strict=True)],
            gradient_norm=norm,
        )

    def judge(self, task: Task, steps: int) -> TaskOutcome:
        """Adapt a clone by ``steps`` steps and judge the query set without gradient."""
        with task_randomness(self.base_learner.seed, task), evaluation_mode(self.base_learner.classifier):
            learner = self._maml.clone(first_order=True)
            inner_losses = self.base_learner.adapt(learner, task, steps)
            with torch.no_grad():
                predicted = self.base_learner.query_log_probabilities(learner.module, task, steps)
                loss = self.base_learner.query_loss(predicted, task).item()
        return TaskOutcome(task.index, _accuracy(predicted, task), loss, inner_losses, predicted.cpu())

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


def _accuracy(log_probabilities: Tensor, task: Task) -> float:
    return (log_probabilities.argmax(dim=-1) == task.query["label"]).float().mean().item()
