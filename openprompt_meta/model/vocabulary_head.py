"""The vocabulary head by itself, to be run at the [MASK] and for the words that somebody asks for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from openprompt_meta.prompts.query import evaluation_mode

__all__ = ["VocabularyHead", "vocabulary_head"]

_Transform = Callable[[Any, Tensor], Tensor]

# How transformers' masked language models get from hidden states to what their output embeddings are multiplied with,
# by the attributes they have.
_TRANSFORMS: tuple[tuple[tuple[str, ...], _Transform], ...] = (
    (("cls",), lambda model, h: model.cls.predictions.transform(h)),  # BERT, DeBERTa
    (("lm_head",), lambda model, h: model.lm_head.layer_norm(F.gelu(model.lm_head.dense(h)))),  # RoBERTa, MPNet
    (
        ("predictions",),  # ALBERT
        lambda model, h: model.predictions.LayerNorm(model.predictions.activation(model.predictions.dense(h))),
    ),
    (("generator_predictions",), lambda model, h: model.generator_predictions(h)),  # ELECTRA
    (
        ("vocab_transform", "activation", "vocab_layer_norm"),  # DistilBERT
        lambda model, h: model.vocab_layer_norm(model.activation(model.vocab_transform(h))),
    ),
)


class VocabularyHead:
    """From hidden states to logits, over the whole vocabulary or a few of its tokens.

    Use :func:`vocabulary_head` to get one.
    """

    def __init__(self, model: Any, transform: _Transform) -> None:
        self._model = model
        self._transform = transform

    def __call__(self, hidden: Tensor, token_ids: Tensor | None = None) -> Tensor:
        """Logits ``[…, V]`` for hidden states ``[…, d_o]``, or ``[…, W]`` for ``token_ids`` ``[W]``."""
        decoder = self._model.get_output_embeddings()
        weight, bias = decoder.weight, decoder.bias
        if token_ids is not None:
            weight, bias = weight[token_ids], None if bias is None else bias[token_ids]
        return F.linear(self._transform(self._model, hidden), weight, bias)


def vocabulary_head(model: Any) -> VocabularyHead | None:
    """The head of a masked language model, or ``None`` if it is put together in a way that is not known here.

    A known way is tried on two tokens and compared with the model's own logits before it is trusted.
    """
    for attributes, transform in _TRANSFORMS:
        if all(hasattr(model, name) for name in attributes):
            head = VocabularyHead(model, transform)
            return head if _agrees(model, head) else None
    return None


@torch.no_grad()
def _agrees(model: Any, head: VocabularyHead) -> bool:
    token_ids = torch.arange(2, 4, device=model.device).unsqueeze(0)
    with evaluation_mode(model):
        outputs = model(token_ids, attention_mask=torch.ones_like(token_ids), output_hidden_states=True)
        try:
            logits = head(outputs.hidden_states[-1])
        except (TypeError, RuntimeError, AttributeError):
            return False
    return logits.shape == outputs.logits.shape and torch.allclose(logits, outputs.logits, rtol=1e-3, atol=1e-4)
