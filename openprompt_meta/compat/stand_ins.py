"""Stand-ins for what OpenPrompt imports from transformers and newer transformers no longer have."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch

__all__ = ["SPECIAL_TOKENS_MAP_FILE", "AdamW", "InputExample", "InputFeatures"]

SPECIAL_TOKENS_MAP_FILE = "special_tokens_map.json"


class AdamW(torch.optim.AdamW):
    """torch's AdamW with the defaults of the class that transformers dropped.

    OpenPrompt's runner leaves them to the class; with torch's own, its verbalizers would suddenly decay.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.0,
        correct_bias: bool = True,
        no_deprecation_warning: bool = True,
    ) -> None:
        if not correct_bias:
            raise NotImplementedError(
                "AdamW(correct_bias=False) went away with transformers.AdamW; use correct_bias=True, "
                "or a transformers below 4.50"
            )
        del no_deprecation_warning  # accepted because callers of the old class pass it
        super().__init__(params, lr=lr, betas=betas, eps=eps, weight_decay=weight_decay)


@dataclass
class InputExample:
    """The fields of ``transformers.data.processors.utils.InputExample``; OpenPrompt annotates with it."""

    guid: str
    text_a: str
    text_b: str | None = None
    label: str | None = None


@dataclass(frozen=True)
class InputFeatures:
    """The fields of ``transformers.data.processors.utils.InputFeatures``; OpenPrompt annotates with it."""

    input_ids: list[int]
    attention_mask: list[int] | None = None
    token_type_ids: list[int] | None = None
    label: int | float | None = None
