"""The query function: what a frozen language model makes of a text before any prompt is added."""

from __future__ import annotations

import copy
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from openprompt_meta.prompts.pooling import Features, Query, mean_over_tokens, pooled_features

logger = logging.getLogger(__name__)


@contextmanager
def evaluation_mode(module: nn.Module) -> Iterator[None]:
    """Switch dropout off inside, and leave every submodule in the mode it was found in."""
    training = [part for part in module.modules() if part.training]
    module.eval()
    try:
        yield
    finally:
        for part in training:
            part.training = True


class ModelReference:
    """Holds a model for a module that must not own it: not registered, not saved, not cloned.

    A deep copy of the owner refers to the copied model if that was copied along (a whole
    ``PromptForClassification``), and to the same model otherwise (the template alone).
    """

    def __init__(self, model: nn.Module) -> None:
        self.model = model

    def __deepcopy__(self, memo: dict[int, Any]) -> ModelReference:
        return ModelReference(memo.get(id(self.model), self.model))


class QueryFunction:
    """``q(x)``: what is made of a wrapped text without the pool, computed without gradient.

    Args:
        model: the masked language model.
        frozen_copy: keep a copy of the encoder as it is now. Needed when the language model itself is tuned and
            the queries shall not drift with it; costs the encoder's size in memory a second time (438 MB for
            bert-base in float32, stated in the log for the model at hand).
        features: what is read of the text; the paper reads the [MASK].
        kind: the features themselves, or what takes no pass of its own.
    """

    def __init__(
        self, model: nn.Module, frozen_copy: bool = False, features: Features = "mask", kind: Query = "features"
    ) -> None:
        encoder = getattr(model, "base_model", model)
        self.frozen_copy = frozen_copy
        self.features = features
        self.kind = kind
        if frozen_copy:
            encoder = copy.deepcopy(encoder).eval().requires_grad_(False)
            size = sum(p.numel() * p.element_size() for p in encoder.parameters())
            logger.info("The query function keeps a frozen copy of the encoder: %.1f MB.", size / 1e6)
        self._encoder = ModelReference(encoder)  # the copy too: it never changes, so deep copies share it
        self._warned = False

    @property
    def encoder(self) -> nn.Module:
        """The encoder that answers: the model's own, or the frozen copy."""
        return self._encoder.model

    @torch.no_grad()
    def __call__(self, inputs: Mapping[str, Tensor], is_mask: Tensor) -> Tensor:
        """Queries for a batch.

        Args:
            inputs: what the encoder takes: ``input_ids`` ``[B, L]`` and, if there are any, ``attention_mask``,
                ``token_type_ids``.
            is_mask: ``[B, L]``, true at the one [MASK] of each row.

        Returns:
            ``[B, d_o]``.
        """
        encoder = self.encoder
        if self.frozen_copy:
            encoder.to(inputs["input_ids"].device)
        elif not self._warned and any(p.requires_grad for p in encoder.parameters()):
            self._warned = True
            logger.warning(
                "The language model is being tuned and the pool's queries come from it, so they drift. For the "
                "paper's frozen query function set query_copy: true (memory for a second encoder), or freeze "
                "the model."
            )
        attended = inputs["attention_mask"] if "attention_mask" in inputs else torch.ones_like(inputs["input_ids"])
        if self.kind == "embeddings":
            words: Any = encoder.get_input_embeddings()  # type: ignore[operator]
            return mean_over_tokens(words(inputs["input_ids"]), attended)
        with evaluation_mode(encoder):
            if self.kind == "first_layer":
                return mean_over_tokens(encoder(**inputs, output_hidden_states=True).hidden_states[1], attended)
            hidden: Tensor = encoder(**inputs).last_hidden_state  # [B, L, d_o]
        return pooled_features(hidden, attended, is_mask, self.features)
