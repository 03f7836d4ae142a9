"""Adapting a whole language model: in place, one task at a time, and put back afterwards bit by bit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Literal

import torch
from torch import Tensor, nn

from openprompt_meta.learners.adaptation import Adaptation, Adapter
from openprompt_meta.learners.base_learner import OpenTasks
from openprompt_meta.learners.gradient_steps import GradientSteps, InnerSteps, laid_out_as
from openprompt_meta.prompts import PromptPool

__all__ = ["InPlace", "Weights"]


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
    def begin(self, tasks: OpenTasks, learns: bool) -> Iterator[Adaptation]:
        """Let one task have the parameters."""
        (verbalizer,) = tasks.verbalizers  # the parameters can serve one task at a time
        steps = list(self._steps)
        own = [parameter for parameter in verbalizer.parameters() if parameter.requires_grad]
        if self._with_verbalizer is not None and own:
            steps.append(InnerSteps(own, *self._with_verbalizer))
        gradients = [parameter.grad for parameter in self._parameters]  # of the tasks before, in a meta-batch
        for parameter in self._parameters:
            parameter.grad = None
        with self._start.put_back():
            try:
                yield _Adapted(self._pool, self._parameters, steps, self._start, self._halfway, gradients)
            finally:
                for parameter, gradient in zip(self._parameters, gradients, strict=True):
                    parameter.grad = gradient


class _Adapted(Adaptation):
    def __init__(
        self,
        pool: PromptPool,
        parameters: Sequence[nn.Parameter],
        steps: Sequence[InnerSteps],
        start: Weights,
        halfway: Weights,
        gradients: list[Tensor | None],
    ) -> None:
        self._pool = pool
        self._parameters = parameters
        self._steps = GradientSteps(steps)
        self._start = start
        self._halfway = halfway
        self._gradients = gradients

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
        found = torch.autograd.grad(loss, list(self._parameters), allow_unused=True)
        for i, (parameter, gradient) in enumerate(zip(self._parameters, found, strict=True)):
            self._add(i, laid_out_as(parameter, gradient))

    @torch.no_grad()
    def learn_displacement(self, scale: float) -> None:
        for i, (start, now) in enumerate(zip(self._start.kept, self._parameters, strict=True)):
            self._add(i, scale * (start - now))

    def _add(self, i: int, gradient: Tensor | None) -> None:
        before = self._gradients[i]
        self._gradients[i] = gradient if before is None or gradient is None else before + gradient
        if gradient is None:
            self._gradients[i] = before
