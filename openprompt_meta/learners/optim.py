"""Optimisers, and the steps that they take down a loss inside a task."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

_KINDS: Mapping[str, type[torch.optim.Optimizer]] = {
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
    "sgd": torch.optim.SGD,
}
_FUSED_ON = ("cpu", "cuda")  # by every torch that is asked for


def new_optimizer(
    kind: str, parameters: Iterable[Any], lr: float, weight_decay: float | None = None
) -> torch.optim.Optimizer:
    """An optimiser over parameters or groups of them, as torch takes them; with its own weight decay for ``None``.

    Fused where torch can: over a whole language model each of Adam's operations would be another way through all of
    its memory.
    """
    optimizer: Any = _KINDS[kind]
    given = list(parameters)
    first = given[0]["params"][0] if isinstance(given[0], dict) else given[0]
    decay = {} if weight_decay is None else {"weight_decay": weight_decay}
    made: torch.optim.Optimizer = optimizer(given, lr=lr, fused=first.device.type in _FUSED_ON, **decay)
    return made


def with_layout_of(parameter: Tensor, gradient: Tensor | None) -> Tensor | None:
    """A gradient in its parameter's own layout, as ``backward`` gives it and ``autograd.grad`` may not.

    Fused steps read memory in the parameter's order: a transposed gradient would be taken for another one.
    """
    if gradient is None or gradient.stride() == parameter.stride():
        return gradient
    return torch.empty_like(parameter).copy_(gradient)


@dataclass(frozen=True)
class InnerSteps:
    """How some of the parameters are stepped inside a task."""

    parameters: Sequence[nn.Parameter]
    lr: float
    optimizer: Literal["adam", "sgd"] = "sgd"


class GradientSteps:
    """Steps of several groups of parameters down one loss, by optimisers that know nothing of the task before."""

    def __init__(self, parts: Sequence[InnerSteps]) -> None:
        self._parameters = [parameter for part in parts for parameter in part.parameters]
        self._optimizers = [new_optimizer(part.optimizer, part.parameters, part.lr) for part in parts]

    def take(self, loss: Tensor) -> None:
        """One step. What the loss does not depend on, such as a head that nobody asks, has no gradient and stays."""
        gradients = torch.autograd.grad(loss, self._parameters, allow_unused=True)
        for parameter, gradient in zip(self._parameters, gradients, strict=True):
            parameter.grad = with_layout_of(parameter, gradient)
        for optimizer in self._optimizers:
            optimizer.step()
            optimizer.zero_grad()
