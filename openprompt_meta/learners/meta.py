"""Meta-learners: the outer loop (paper, Algorithm 2), with MAML, Reptile and BMG side by side."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from openprompt_meta.learners.adapters import Adaptation, Adapter
from openprompt_meta.learners.inner import InnerLoop, KnownFeatures, TaskBatch, task_randomness
from openprompt_meta.learners.task import (
    MetaLearner,
    MetaStep,
    Task,
    TaskLearner,
    TaskOutcome,
    accuracy_of,
    clipped_gradient_norm,
)
from openprompt_meta.prompts.pool import PromptPool
from openprompt_meta.prompts.query import evaluation_mode

# -- The inner loop taken step by step, to be looked at on the way ----------------------------------------------------


class InnerLoopTrace:
    """Tasks on their way from the meta-parameters to parameters of their own. Looking changes nothing."""

    def __init__(self, opened: TaskBatch, adaptation: Adaptation) -> None:
        self.steps_taken = 0
        self._opened = opened
        self._adaptation = adaptation

    @property
    def pools(self) -> Sequence[PromptPool]:
        """Each task's pool as it is now."""
        return self._adaptation.pools

    def support_losses(self) -> list[float]:
        """The loss of each support set as it is now; nothing is learned."""
        return [loss.item() for loss in self._opened.apart().support_losses(self.pools, self.steps_taken)]

    def step(self) -> list[float]:
        """Take an inner step for each task; the support losses before it."""
        losses = self._opened.support_losses(self.pools, self.steps_taken)
        self._adaptation.step(losses)
        self.steps_taken += 1
        return [loss.item() for loss in losses]

    @torch.no_grad()
    def evaluate(self) -> tuple[list[Tensor], list[float]]:
        """Log-probabilities ``[n, C]`` of each query set and its loss, if adaptation ended here; it may go on."""
        opened = self._opened.apart()
        predicted = opened.query_log_probabilities(self.pools, self.steps_taken)
        return predicted, [loss.item() for loss in opened.query_losses(predicted)]


# -- Learning a task by gradient steps on its support set, and the outer loop that meta-learners have in common -------


class AdaptingLearner(TaskLearner):
    """Adapts parameters to each support set from the same start, and evaluates the query set with them.

    Args:
        inner_loop: what is done inside a task.
        adapter: which parameters, and how they are stepped.
    """

    def __init__(self, inner_loop: InnerLoop, adapter: Adapter) -> None:
        self.inner_loop = inner_loop
        self.adapter = adapter

    def in_groups(self, tasks: Iterable[Task]) -> Iterator[list[Task]]:
        """As many together as go through the language model side by side."""
        return self.inner_loop.in_groups(tasks)

    def evaluate_all(self, tasks: Iterable[Task], steps: int) -> Iterator[list[TaskOutcome]]:
        """Without steps the parameters are the same for all tasks, so each of their texts is read once."""
        known = self.inner_loop.known_features() if steps == 0 else None
        for group in self.in_groups(tasks):
            yield self._evaluate(group, steps, known)

    def evaluate_batch(self, tasks: Sequence[Task], steps: int) -> list[TaskOutcome]:
        """Adapt to each support set by ``steps`` steps, and evaluate the query sets without gradient."""
        return self._evaluate(tasks, steps)

    def _evaluate(self, tasks: Sequence[Task], steps: int, known: KnownFeatures | None = None) -> list[TaskOutcome]:
        with task_randomness(self.inner_loop.seed, tasks[0]), evaluation_mode(self.inner_loop.classifier):
            opened = self.inner_loop.open(tasks, known)
            with self.adapter.begin(opened, learns=False) as adaptation:
                inner = take_inner_steps(opened, adaptation, steps)
                with torch.no_grad():
                    predicted = opened.query_log_probabilities(adaptation.pools, steps)
                    losses = opened.query_losses(predicted)
        return [
            TaskOutcome(task.index, accuracy_of(one, task), loss.item(), inner_losses, one.cpu())
            for task, one, loss, inner_losses in zip(tasks, predicted, losses, inner, strict=True)
        ]

    @contextmanager
    def adapting(self, tasks: Sequence[Task]) -> Iterator[InnerLoopTrace]:
        """The inner loop of :meth:`evaluate_batch` opened, to be taken step by step inside a ``with`` block."""
        with task_randomness(self.inner_loop.seed, tasks[0]), evaluation_mode(self.inner_loop.classifier):
            opened = self.inner_loop.open(tasks)
            with self.adapter.begin(opened, learns=False) as adaptation:
                yield InnerLoopTrace(opened, adaptation)


class GradientLearner(AdaptingLearner, MetaLearner):
    """The outer loop. Subclasses say what a group of adapted tasks teaches.

    Args:
        meta_parameters: what is learned: a pool, or whatever else a method tunes across tasks.
        inner_loop: what is done inside a task.
        optimizer: over ``meta_parameters``.
        adapter: how tasks adapt what is learned.
        inner_steps: J in meta-training.
        longest_gradient: a longer meta-gradient is shortened to this.
    """

    def __init__(
        self,
        meta_parameters: torch.nn.Module,
        inner_loop: InnerLoop,
        optimizer: torch.optim.Optimizer,
        adapter: Adapter,
        inner_steps: int = 5,
        longest_gradient: float | None = None,
    ) -> None:
        super().__init__(inner_loop, adapter)
        self.meta_parameters = meta_parameters
        self.optimizer = optimizer
        self.inner_steps = inner_steps
        self.longest_gradient = longest_gradient

    @abstractmethod
    def learn(self, tasks: TaskBatch, adaptation: Adaptation, share: float) -> list[Tensor]:
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
        for group in self.inner_loop.in_groups(tasks):
            with task_randomness(self.inner_loop.seed, group[0]):
                opened = self.inner_loop.open(group)
                with self.adapter.begin(opened, learns=True) as adaptation:
                    inner += take_inner_steps(opened, adaptation, self.inner_steps)
                    predicted = self.learn(opened, adaptation, 1 / len(tasks))
            losses += [loss.item() for loss in opened.query_losses(predicted)]
            accuracies += [accuracy_of(one, task) for one, task in zip(predicted, group, strict=True)]
        norm = clipped_gradient_norm(self.meta_parameters.parameters(), tasks, self.longest_gradient)
        self.optimizer.step()
        return MetaStep(
            loss=sum(losses) / len(losses),
            accuracy=sum(accuracies) / len(accuracies),
            inner_losses=[sum(step) / len(step) for step in zip(*inner, strict=True)],
            gradient_norm=norm,
        )


def take_inner_steps(tasks: TaskBatch, adaptation: Adaptation, steps: int, taken: int = 0) -> list[list[float]]:
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


# -- MAML: the query loss after adaptation, seen from where adaptation started ----------------------------------------


class MamlLearner(GradientLearner):
    """Algorithm 2 of the paper."""

    def learn(self, tasks: TaskBatch, adaptation: Adaptation, share: float) -> list[Tensor]:
        """The meta-gradient of the query losses."""
        predicted = tasks.query_log_probabilities(adaptation.pools, self.inner_steps)
        adaptation.learn_from(share * torch.stack(tasks.query_losses(predicted)).sum())
        return [one.detach() for one in predicted]


# -- Reptile (Nichol et al., 2018): the start moves towards where tasks have moved from it ----------------------------


class ReptileLearner(GradientLearner):
    """``start - adapted`` takes the gradient's place, so that SGD's step of size ε is Reptile's own.

    Reptile knows no query set; its steps go over all of a task's examples. After the inner steps on the support set
    there is one more, on the query set: without a step on other examples Reptile learns what the tasks have in
    common, but not how to adapt.
    """

    def learn(self, tasks: TaskBatch, adaptation: Adaptation, share: float) -> list[Tensor]:
        """The last step, and the way from the start."""
        predicted = tasks.query_log_probabilities(adaptation.pools, self.inner_steps)
        adaptation.step(tasks.query_losses(predicted))
        adaptation.learn_displacement(share)
        return [one.detach() for one in predicted]


# -- Bootstrapped meta-gradients (Flennerhag et al., 2022): predict now what one would predict some steps later -------


class BmgLearner(GradientLearner):
    """The adapted parameters are matched with a target that goes L steps further, by KL(target ‖ adapted) on queries.

    The target takes L - 1 more steps on the support set and a last one on the query set. It is a target only: no
    gradient flows through it.

    Args:
        target_steps: L.

    Others as for :class:`~openprompt_meta.learners.meta.GradientLearner`.
    """

    def __init__(self, *args: Any, target_steps: int = 5, **others: Any) -> None:
        super().__init__(*args, **others)
        self.target_steps = target_steps

    def learn(self, tasks: TaskBatch, adaptation: Adaptation, share: float) -> list[Tensor]:
        """The meta-gradient of the divergence."""
        targets = self._targets(tasks, adaptation)
        predicted = tasks.query_log_probabilities(adaptation.pools, self.inner_steps)
        reduction = "batchmean" if self.inner_loop.loss == "mean" else "sum"
        divergences = [
            F.kl_div(one, target, reduction=reduction, log_target=True)
            for one, target in zip(predicted, targets, strict=True)
        ]
        adaptation.learn_from(share * torch.stack(divergences).sum())
        return [one.detach() for one in predicted]

    def _targets(self, tasks: TaskBatch, adaptation: Adaptation) -> list[Tensor]:
        """Log-probabilities of the query sets, L steps further."""
        tasks = tasks.apart()  # with verbalizers of its own, which learn further too
        with adaptation.further():
            take_inner_steps(tasks, adaptation, self.target_steps - 1, self.inner_steps)
            taken = self.inner_steps + self.target_steps - 1
            adaptation.step(tasks.query_losses(tasks.query_log_probabilities(adaptation.pools, taken)))
            with torch.no_grad():
                return tasks.query_log_probabilities(adaptation.pools, taken + 1)
