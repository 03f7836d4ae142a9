"""`DiscreteTemplate`: words and a [MASK] around the text, and no soft prompt."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from openprompt_meta.prompts.pool_template import PromptPoolTemplate

__all__ = ["DiscreteTemplate"]


class DiscreteTemplate(PromptPoolTemplate):
    """The pool template's text language with the pool left out, for methods that tune no prompt.

    ``{"placeholder": "text_a"} {"pool"} Topic is {"mask"}.`` reads ``… Topic is [MASK].`` The pool that is there for
    its callers' sake takes no position and is never asked.

    Args:
        model: the masked language model.
        tokenizer: its tokenizer.
        text: the template text.
        max_seq_length: the length budget of the data loader, to have it checked here.
    """

    def __init__(self, model: nn.Module, tokenizer: Any, text: str, max_seq_length: int | None = None) -> None:
        super().__init__(
            model,
            tokenizer,
            text,
            num_prompts=1,
            prompt_length=1,
            init="random",
            seed=0,
            max_seq_length=max_seq_length,
        )

    def on_text_set(self) -> None:
        """Lay the text out, and take the pool's positions away again."""
        super().on_text_set()
        self.text = self._pieces = [piece for piece in self._pieces or [] if "pool" not in piece]

    def process_batch(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        """The batch as the language model takes it: ``inputs_embeds`` ``[B, L, d_i]`` for ``input_ids`` ``[B, L]``."""
        prepared = {key: batch[key] for key in batch}
        prepared["inputs_embeds"] = self.raw_embedding(prepared.pop("input_ids"))
        return prepared

    def _pool_positions(self, batch: Mapping[str, Any]) -> Tensor:
        return torch.zeros_like(batch["input_ids"], dtype=torch.bool)
