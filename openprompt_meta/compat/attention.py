"""Scores to be added to those of attention, as transformers 5 takes them, for the versions before as well."""

from __future__ import annotations

from functools import wraps
from typing import Any

import transformers
from packaging.version import Version
from torch import Tensor


def additive_attention_mask(scores: Tensor) -> Tensor:
    """What to give an encoder as ``attention_mask`` to have it add ``scores`` ``[B, L, L]`` to those of its attention.

    Before transformers 5 an encoder made scores of zeros and ones by itself and refused others; it is taught here,
    once for all of them, to take four dimensions for scores.
    """
    if Version(transformers.__version__).major < 5:
        _take_scores()
    return scores.unsqueeze(1)


def _take_scores() -> None:
    from transformers.modeling_utils import ModuleUtilsMixin

    stock = ModuleUtilsMixin.get_extended_attention_mask
    if hasattr(stock, "takes_scores"):
        return

    @wraps(stock)
    def take(self: Any, attention_mask: Tensor, *others: Any, **named: Any) -> Tensor:
        if attention_mask.dim() == 4:
            return attention_mask
        extended: Tensor = stock(self, attention_mask, *others, **named)
        return extended

    take.takes_scores = True  # type: ignore[attr-defined]
    ModuleUtilsMixin.get_extended_attention_mask = take  # type: ignore[method-assign]
