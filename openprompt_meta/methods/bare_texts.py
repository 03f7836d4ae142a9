"""Texts without any template, and fixed features of texts, for methods that do not prompt."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from openprompt_meta.learners.encoder_tuning import mean_pooled
from openprompt_meta.model import EncodedTexts, LoadedMLM, PlainTexts

__all__ = ["BareTexts", "MaskFeatures", "MeanFeatures"]


class BareTexts:
    """Texts as the tokenizer gives them.

    Args:
        texts: the texts.
        loaded: whose tokenizer.
        max_length: in tokens; longer texts are cut.
    """

    def __init__(self, texts: Sequence[str], loaded: LoadedMLM, max_length: int) -> None:
        self._texts = texts
        self._loaded = loaded
        self._max_length = max_length

    def batch(self, indices: Sequence[int], labels: Sequence[int] | None = None) -> dict[str, Tensor]:
        """``input_ids`` and what else the encoder takes, ``[B, L]`` with ``L`` the longest of them, and ``label``."""
        encoded: Any = self._loaded.tokenizer(
            [self._texts[index] for index in indices],
            truncation=True,
            max_length=self._max_length,
            padding=True,
            return_tensors="pt",
        )
        return _labelled(dict(encoded), labels, self._loaded)


class MeanFeatures:
    """Hidden states of the bare text averaged over its tokens, as sentence encoders do; kept once computed.

    Args:
        texts: the texts.
        loaded: the frozen language model.
        max_length: in tokens; longer texts are cut.
    """

    def __init__(self, texts: Sequence[str], loaded: LoadedMLM, max_length: int) -> None:
        self._bare = BareTexts(texts, loaded, max_length)
        self._loaded = loaded
        self._known: dict[int, Tensor] = {}

    def batch(self, indices: Sequence[int], labels: Sequence[int] | None = None) -> dict[str, Tensor]:
        """``features`` ``[B, d_o]`` and ``label``."""
        features = torch.cat([self._feature(index) for index in indices])
        return _labelled({"features": features}, labels, self._loaded)

    @torch.no_grad()
    def _feature(self, index: int) -> Tensor:
        # One text at a time: the last bits then do not depend on which tasks were judged before.
        if index not in self._known:
            self._known[index] = mean_pooled(self._loaded.model.base_model, self._bare.batch([index])).float()
        return self._known[index]


class MaskFeatures:
    """The [MASK]'s hidden states under the template without the pool: the pool's own query vectors.

    Args:
        texts: wrapped, with their queries.
        loaded: the frozen language model.
    """

    def __init__(self, texts: EncodedTexts | PlainTexts, loaded: LoadedMLM) -> None:
        self._texts = texts
        self._loaded = loaded

    def batch(self, indices: Sequence[int], labels: Sequence[int] | None = None) -> dict[str, Tensor]:
        """``features`` ``[B, d_o]`` and ``label``."""
        return _labelled({"features": self._texts.queries(indices)}, labels, self._loaded)


def _labelled(batch: dict[str, Tensor], labels: Sequence[int] | None, loaded: LoadedMLM) -> dict[str, Tensor]:
    if labels is not None:
        batch["label"] = torch.tensor(list(labels))
    return {key: value.to(loaded.model.device) for key, value in batch.items()}
