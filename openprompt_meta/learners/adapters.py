"""How tasks adapt the meta-parameters: clones of a pool by learn2learn's MAML, or a whole model in place."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from openprompt_meta.compat.maml import load_maml, load_maml_update
from openprompt_meta.learners.inner import TaskBatch
from openprompt_meta.learners.optim import GradientSteps, InnerSteps, with_layout_of
from openprompt_meta.prompts.pool import PromptPool

# -- Meta-parameters on their way through an inner loop: the interface that meta-learners are written against ---------


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
    def begin(self, tasks: TaskBatch, learns: bool) -> AbstractContextManager[Adaptation]:
        """Start from the meta-parameters.

        Args:
            tasks: that are to be adapted to.
            learns: whether a meta-gradient will be asked for.
        """


# -- Adapting a pool of prompts: a clone for each task, by learn2learn's MAML -----------------------------------------


class PoolClones(Adapter):
    """Only the pool is wrapped and cloned, never the language model.

    Args:
        pool: the meta-parameters.
        lr: α.
        first_order: drop second derivatives from the meta-gradient.
        adapted: what inner steps change: all of the pool, or its ``keys`` or ``prompts`` alone.
    """

    def __init__(
        self,
        pool: PromptPool,
        lr: float = 0.1,
        first_order: bool = True,
        adapted: Literal["all", "keys", "prompts"] = "all",
    ) -> None:
        self.adapted = adapted
        self._maml = load_maml()(pool, lr=lr, first_order=first_order)

    @contextmanager
    def begin(self, tasks: TaskBatch, learns: bool) -> Iterator[Adaptation]:
        """A clone for each task."""
        first_order = None if learns else True
        clones = [self._maml.clone(first_order=first_order) for _ in tasks.tasks]
        yield _ClonedPools(self._maml, clones, self.adapted)


@dataclass(eq=False)
class _ClonedPools(Adaptation):
    _maml: Any
    _clones: list[Any]
    _adapted: str

    @property
    def pools(self) -> Sequence[PromptPool]:
        return [clone.module for clone in self._clones]

    def step(self, losses: Sequence[Tensor]) -> None:
        """What ``clone.adapt(loss)`` does for each, with one walk back through the language model for all."""
        if len(self._clones) == 1 and self._adapted == "all":
            self._clones[0].adapt(losses[0])
            return
        second_order = not self._clones[0].first_order
        names = [name for name, _ in self._maml.module.named_parameters()]
        chosen = [name for name in names if self._adapted in ("all", name)]
        # A task's loss knows its own pool alone, so the gradient of the sum is that of each.
        found = iter(
            torch.autograd.grad(
                torch.stack(list(losses)).sum(),
                [getattr(clone.module, name) for clone in self._clones for name in chosen],
                retain_graph=second_order,
                create_graph=second_order,
            )
        )
        for clone in self._clones:
            gradients = [next(found) if name in chosen else None for name in names]
            clone.module = load_maml_update()(clone.module, clone.lr, gradients)

    @contextmanager
    def further(self) -> Iterator[None]:
        own = self._clones
        self._clones = [self._detached(clone) for clone in own]
        try:
            yield
        finally:
            self._clones = own

    def learn_from(self, loss: Tensor) -> None:
        loss.backward()

    @torch.no_grad()
    def learn_displacement(self, scale: float) -> None:
        for clone in self._clones:
            for start, now in zip(self._maml.module.parameters(), clone.module.parameters(), strict=True):
                moved = scale * (start - now)
                start.grad = moved if start.grad is None else start.grad + moved

    def _detached(self, clone: Any) -> Any:
        pool = copy.deepcopy(self._maml.module)
        with torch.no_grad():
            for fresh, now in zip(pool.parameters(), clone.module.parameters(), strict=True):
                fresh.copy_(now)
                fresh.grad = None
        return load_maml()(pool, lr=clone.lr, first_order=True).clone()


# -- Adapting a whole language model: in place, one task at a time, and put back afterwards bit by bit ----------------


class Weights:
    """Parameters that can be remembered and put back; the memory for that is taken once, not for each task."""

    def __init__(self, parameters: Sequence[nn.Parameter]) -> None:
        self._parameters = list(parameters)
        self._kept: list[Tensor] | None = None

    @contextmanager
    def put_back(self) -> Iterator[None]:
        """Whatever is done to the parameters inside is undone at the end, also after an error."""
        if self._kept is None:
            self._kept = [torch.empty_like(parameter) for parameter in self._parameters]
        _copy(self._parameters, self._kept)
        try:
            yield
        finally:
            _copy(self._kept, self._parameters)

    @property
    def kept(self) -> Sequence[Tensor]:
        """What :meth:`put_back` will put back."""
        return self._kept or []


@torch.no_grad()
def _copy(these: Sequence[Tensor], to: Sequence[Tensor]) -> None:
    for source, target in zip(these, to, strict=True):
        target.copy_(source)


class InPlace(Adapter):
    """Tasks change the parameters themselves, first-order; one copy waits to be put back, whatever the tasks' number.

    Args:
        pool: read with the texts; its own parameters are tuned only if they are among the steps.
        steps: what is tuned inside a task, and how.
        with_verbalizer: how a verbalizer's own parameters are tuned along, if at all: step size and optimiser.
    """

    def __init__(
        self,
        pool: PromptPool,
        steps: Sequence[InnerSteps],
        with_verbalizer: tuple[float, Literal["adam", "sgd"]] | None = None,
    ) -> None:
        self._pool = pool
        self._steps = list(steps)
        self._with_verbalizer = with_verbalizer
        self._parameters = [parameter for part in steps for parameter in part.parameters]
        self._start = Weights(self._parameters)
        self._halfway = Weights(self._parameters)

    @contextmanager
    def begin(self, tasks: TaskBatch, learns: bool) -> Iterator[Adaptation]:
        """Let one task have the parameters."""
        (verbalizer,) = tasks.verbalizers  # the parameters can serve one task at a time
        steps = list(self._steps)
        # Its scalars are no task's own: they are learned across tasks, and never stepped inside one.
        scalars = list(verbalizer.scalars.parameters()) if verbalizer.scalars else []
        shared = {id(parameter) for parameter in scalars}
        own = [one for one in verbalizer.parameters() if one.requires_grad and id(one) not in shared]
        if self._with_verbalizer is not None and own:
            steps.append(InnerSteps(own, *self._with_verbalizer))
        taken = GradientSteps(steps)
        gradients = [parameter.grad for parameter in self._parameters]  # of the tasks before, in a meta-batch
        for parameter in self._parameters:
            parameter.grad = None
        with self._start.put_back():
            try:
                yield _Adapted(self._pool, self._parameters, taken, self._start, self._halfway, gradients, scalars)
            finally:
                for parameter, gradient in zip(self._parameters, gradients, strict=True):
                    parameter.grad = gradient


@dataclass(eq=False)
class _Adapted(Adaptation):
    _pool: PromptPool
    _parameters: Sequence[nn.Parameter]
    _steps: GradientSteps
    _start: Weights
    _halfway: Weights
    _gradients: list[Tensor | None]
    _scalars: Sequence[nn.Parameter]

    @property
    def pools(self) -> Sequence[PromptPool]:
        return [self._pool]

    def step(self, losses: Sequence[Tensor]) -> None:
        (loss,) = losses
        self._steps.take(loss)

    @contextmanager
    def further(self) -> Iterator[None]:
        with self._halfway.put_back():
            yield

    def learn_from(self, loss: Tensor) -> None:
        found = torch.autograd.grad(loss, [*self._parameters, *self._scalars], allow_unused=True)
        for i, (parameter, gradient) in enumerate(zip(self._parameters, found, strict=False)):
            self._add(i, with_layout_of(parameter, gradient))
        for parameter, gradient in zip(self._scalars, found[len(self._parameters) :], strict=True):
            if gradient is not None:
                parameter.grad = gradient if parameter.grad is None else parameter.grad + gradient

    @torch.no_grad()
    def learn_displacement(self, scale: float) -> None:
        for i, (start, now) in enumerate(zip(self._start.kept, self._parameters, strict=True)):
            self._add(i, scale * (start - now))

    def _add(self, i: int, gradient: Tensor | None) -> None:
        before = self._gradients[i]
        self._gradients[i] = gradient if before is None or gradient is None else before + gradient
        if gradient is None:
            self._gradients[i] = before
