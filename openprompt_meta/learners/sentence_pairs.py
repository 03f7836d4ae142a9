"""The loss of pairs of texts, by `sentence-transformers`: the body and the loss that SetFit trains with."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from openprompt_meta.errors import CompatibilityError
from openprompt_meta.learners.task import Batch

__all__ = ["pair_loss"]


class _Tokens(nn.Module):
    """The first module of a sentence transformer whose texts come as tokens."""

    def __init__(self, encoder: nn.Module) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(self, features: dict[str, Tensor], **ignored: Any) -> dict[str, Tensor]:
        inputs = {
            name: features[name] for name in ("input_ids", "attention_mask", "token_type_ids") if name in features
        }
        return {**features, "token_embeddings": self.encoder(**inputs).last_hidden_state}


def pair_loss(encoder: nn.Module) -> Callable[[Batch, Batch, Tensor], Tensor]:
    """``loss(first, second, alike)``: how far the cosines of pairs of texts are from 1 (alike) and 0.

    Args:
        encoder: one of transformers', which is tuned; its hidden states are averaged over a text.

    Raises:
        CompatibilityError: sentence-transformers is not installed.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            from sentence_transformers import SentenceTransformer
            from sentence_transformers.sentence_transformer.losses import CosineSimilarityLoss
            from sentence_transformers.sentence_transformer.modules import Pooling
    except ImportError as error:
        raise CompatibilityError(
            f"method: contrastive needs sentence-transformers 5.7 or newer ({error}). Install it: "
            'pip install "openprompt_meta[contrastive]" (or pip install "sentence-transformers>=5.7").'
        ) from None
    configuration: Any = encoder.config
    width = int(configuration.hidden_size)
    device = next(encoder.parameters()).device
    body = SentenceTransformer(modules=[_Tokens(encoder), Pooling(width, "mean")], device=str(device))
    body.train(encoder.training)
    loss = CosineSimilarityLoss(body)

    def measured(first: Batch, second: Batch, alike: Tensor) -> Tensor:
        found: Tensor = loss([dict(first), dict(second)], alike)
        return found

    return measured
