"""Scalars of a verbalizer that may be learned across tasks: λ, ρ and w."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from openprompt_meta.errors import VerbalizerError

__all__ = ["LearnedScalars"]

_PROPORTIONS = ("mix_lambda",)


class LearnedScalars(nn.Module):
    """Positive numbers and proportions as parameters without bounds: logarithms, and logits of proportions.

    All verbalizers of a kind that serve tasks side by side share one of these, which is no task's own.

    Args:
        start: what each scalar starts from, by name.
        learn: names of those that are learned; the others stay what they are.

    Raises:
        VerbalizerError: there is no such scalar, or it cannot be learned from where it starts.
    """

    def __init__(self, start: Mapping[str, float], learn: Sequence[str] = ()) -> None:
        super().__init__()
        self._fixed = {name: float(value) for name, value in start.items()}
        for name in learn:
            if name not in start:
                raise VerbalizerError(f"learn: {name!r} cannot be learned here; {', '.join(start)} can.")
            value = self._fixed.pop(name, 0.0)
            top = 1.0 if name in _PROPORTIONS else math.inf
            if not 0.0 < value < top:
                limits = "strictly between 0 and 1" if name in _PROPORTIONS else "above 0"
                raise VerbalizerError(f"learn: {name} starts from {value:g}; to be learned it must lie {limits}.")
            free = math.log(value / (1 - value)) if name in _PROPORTIONS else math.log(value)
            self.register_parameter(name, nn.Parameter(torch.tensor(free, dtype=torch.float32)))

    def __getitem__(self, name: str) -> float | Tensor:
        """The scalar's value as it is now; a tensor with gradient if it is learned."""
        if name in self._fixed:
            return self._fixed[name]
        free: Tensor = self._parameters[name]  # type: ignore[assignment]
        return free.sigmoid() if name in _PROPORTIONS else free.exp()

    def values(self) -> dict[str, float]:
        """All scalars as plain numbers."""
        with torch.no_grad():
            return {name: float(self[name]) for name in (*self._fixed, *self._parameters)}
