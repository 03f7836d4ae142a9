"""The vocabulary head by itself, to be run at the [MASK] instead of at every position."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import torch
from torch import Tensor

from openprompt_meta.prompts.query import evaluation_mode

__all__ = ["VocabularyHead", "vocabulary_head"]

VocabularyHead: TypeAlias = Callable[[Tensor], Tensor]

# How transformers' masked language models get from hidden states to logits, by the attributes they have.
_RECIPES: tuple[tuple[tuple[str, ...], Callable[[Any, Tensor], Tensor]], ...] = (
    (("cls",), lambda model, h: model.cls(h)),  # BERT, DeBERTa
    (("lm_head",), lambda model, h: model.lm_head(h)),  # RoBERTa, MPNet
    (("predictions",), lambda model, h: model.predictions(h)),  # ALBERT
    (
        ("generator_predictions", "generator_lm_head"),  # ELECTRA
        lambda model, h: model.generator_lm_head(model.generator_predictions(h)),
    ),
    (
        ("vocab_transform", "activation", "vocab_layer_norm", "vocab_projector"),  # DistilBERT
        lambda model, h: model.vocab_projector(model.vocab_layer_norm(model.activation(model.vocab_transform(h)))),
    ),
)


def vocabulary_head(model: Any) -> VocabularyHead | None:
    """The function from hidden states ``[…, d_o]`` to logits ``[…, V]`` of a masked language model.

    ``None`` if the model is put together in a way that is not known here. A known way is tried on two tokens and
    compared with the model's own logits before it is trusted.
    """
    for attributes, recipe in _RECIPES:
        if all(hasattr(model, name) for name in attributes):

            def head(hidden: Tensor, recipe: Callable[[Any, Tensor], Tensor] = recipe) -> Tensor:
                return recipe(model, hidden)

            return head if _agrees(model, head) else None
    return None


@torch.no_grad()
def _agrees(model: Any, head: VocabularyHead) -> bool:
    token_ids = torch.arange(2, 4, device=model.device).unsqueeze(0)
    with evaluation_mode(model):
        outputs = model(token_ids, attention_mask=torch.ones_like(token_ids), output_hidden_states=True)
        try:
            logits = head(outputs.hidden_states[-1])
        except (TypeError, RuntimeError):
            return False
    return logits.shape == outputs.logits.shape and torch.allclose(logits, outputs.logits, rtol=1e-3, atol=1e-4)
