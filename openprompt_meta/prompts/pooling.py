"""Pooling: how one feature vector a text is read out of the language model's last layer. The one place that knows.

It stands before the encoder's room because templates and verbalizers read features too, in an OpenPrompt script that
has no other part of this package.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias, get_args

import torch
from torch import Tensor, nn

from openprompt_meta.errors import TemplateError

Features: TypeAlias = Literal["mask", "mean", "both"]
"""The [MASK]'s hidden state (the paper), the mean over all tokens that the model reads, or one after the other."""
FEATURES: tuple[Features, ...] = get_args(Features)


Query: TypeAlias = Literal["features", "embeddings", "first_layer"]
"""What a text asks the pool with: what is read of it without a prompt, which takes a pass of its own (the paper), or
the mean over its tokens' input embeddings, or over the first layer's output."""
QUERIES: tuple[Query, ...] = get_args(Query)


def has_vocabulary_head(model: nn.Module) -> bool:
    """Whether the model predicts words; the packaged sentence encoder does not."""
    return getattr(model, "get_output_embeddings", lambda: None)() is not None


def suited_features(features: str, model: nn.Module) -> Features:
    """``features`` with ``auto`` resolved: the mean for an encoder without a trained [MASK], else the [MASK].

    Raises:
        TemplateError: there is no such way of reading.
    """
    if features == "auto":
        return "mask" if has_vocabulary_head(model) else "mean"
    for known in FEATURES:
        if features == known:
            return known
    raise TemplateError(f"features must be one of auto, {', '.join(FEATURES)}; got {features!r}.")


def feature_size(model: nn.Module, features: Features) -> int:
    """d_o, the length of a feature vector."""
    config: Any = model.config
    return int(config.hidden_size) * (2 if features == "both" else 1)


def query_size(model: nn.Module, features: Features, query: Query) -> int:
    """The length of a query."""
    if query == "embeddings":
        return int(model.get_input_embeddings().weight.shape[1])  # type: ignore[operator]
    return feature_size(model, features if query == "features" else "mean")


def mean_over_tokens(hidden: Tensor, attention_mask: Tensor) -> Tensor:
    """Hidden states ``[B, L, d]`` averaged over the tokens that are attended to, ``[B, d]``, in at least float32."""
    hidden = hidden.to(torch.promote_types(hidden.dtype, torch.float32))
    real = attention_mask.unsqueeze(-1).to(hidden.dtype)
    return (hidden * real).sum(dim=1) / real.sum(dim=1)


def pooled_features(hidden: Tensor, attention_mask: Tensor, is_mask: Tensor, features: Features) -> Tensor:
    """The features of a batch of wrapped texts, ``[B, d_o]``.

    Args:
        hidden: the last layer's output, ``[B, L, d]``.
        attention_mask: ``[B, L]``, above zero at tokens.
        is_mask: ``[B, L]``, true at the one [MASK] of each row.
        features: what to read.
    """
    at_mask = None if features == "mean" else hidden[is_mask]
    mean = None if features == "mask" else mean_over_tokens(hidden, attention_mask)
    return joined_features(at_mask, mean)


def joined_features(at_mask: Tensor | None, mean: Tensor | None) -> Tensor:
    """The parts that are there, ``[B, d]`` each, one after the other."""
    parts = [part for part in (at_mask, mean) if part is not None]
    if len(parts) == 1:
        return parts[0]
    wide = torch.promote_types(parts[0].dtype, parts[1].dtype)
    return torch.cat([part.to(wide) for part in parts], dim=-1)


class FeaturesInPlaceOfMask:
    """Lets whoever looks at the [MASK] see a text's features there: OpenPrompt's own classes look nowhere else.

    A template notes the batch on its way into the language model and hands over the outputs on their way back.
    """

    def __init__(self, features: Features) -> None:
        self.features = features
        self._mask: Tensor | None = None
        self._is_mask: Tensor | None = None

    def note(self, batch: Mapping[str, Any], is_read: Tensor) -> None:
        """Remember what of a wrapped batch is read.

        Args:
            batch: on its way into the language model.
            is_read: ``[B, L]``, above zero at the tokens that a mean is over.
        """
        if self.features != "mask":
            self._mask, self._is_mask = is_read, batch["loss_ids"] > 0

    def put(self, outputs: Any) -> Any:
        """The language model's outputs, with the features of a text at each position of its last hidden states."""
        if self._mask is None or self._is_mask is None:
            return outputs
        mask, is_mask = self._mask, self._is_mask
        self._mask = self._is_mask = None
        *before, last = outputs.hidden_states
        read = pooled_features(last, mask, is_mask, self.features)
        outputs.hidden_states = (*before, read.unsqueeze(1).expand(-1, last.shape[1], -1))
        return outputs
