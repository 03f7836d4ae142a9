"""Scores to be added to those of attention, as transformers 5 takes them, for the versions before as well."""

from __future__ import annotations

from functools import wraps
from typing import Any

import transformers
from packaging.version import Version
from torch import Tensor


def additive_attention_mask(scores: Tensor) -> Tensor:
    """What to give an encoder as ``attention_mask`` to have it add ``scores`` ``[B, L, L]`` to those of its attention.

    Before transformers 5 an encoder made scores of zeros and ones by itself and refused others; what makes them is
    taught here, once for all encoders, to leave four dimensions as they are.
    """
    if Version(transformers.__version__).major < 5:
        from transformers.modeling_utils import ModuleUtilsMixin
        from transformers.models.bert import modeling_bert

        _let_scores_through(ModuleUtilsMixin, "get_extended_attention_mask")
        # 4.41 to 4.44: BERT with torch's fused attention does not look at how many dimensions there are.
        _let_scores_through(modeling_bert, "_prepare_4d_attention_mask_for_sdpa")
    return scores.unsqueeze(1)


def _let_scores_through(owner: Any, name: str) -> None:
    stock = getattr(owner, name, None)
    if stock is None or hasattr(stock, "takes_scores"):
        return

    @wraps(stock)
    def take(*arguments: Any, **named: Any) -> Any:
        mask = next(one for one in (*arguments, *named.values()) if isinstance(one, Tensor))
        return mask if mask.dim() == 4 else stock(*arguments, **named)

    take.takes_scores = True  # type: ignore[attr-defined]
    setattr(owner, name, take)
