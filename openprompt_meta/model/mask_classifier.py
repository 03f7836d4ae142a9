"""`PromptForClassification` in two steps: reading the [MASK], then judging what was read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from openprompt import PromptForClassification
from torch import Tensor

from openprompt_meta.errors import ModelError
from openprompt_meta.model.length_groups import divide_batch
from openprompt_meta.model.vocabulary_head import vocabulary_head

__all__ = ["MaskClassifier", "MaskOnlyClassifier", "MaskReading"]


class MaskReading(NamedTuple):
    """What a language model says at the [MASK] of each text of a batch."""

    features: Tensor
    """Hidden states, ``[B, d_o]``."""
    logits: Tensor | None
    """Vocabulary logits, ``[B, V]``, if the verbalizer needs them."""


class MaskClassifier(PromptForClassification):
    """OpenPrompt's class with the step before the verbalizer open to callers.

    A support set is read once, fitted and judged; the stock call would read it for each. This is the plain path: all
    of OpenPrompt's own code, the reference for :class:`MaskOnlyClassifier`.
    """

    def read_mask(self, batch: Mapping[str, Any]) -> MaskReading:
        """What the language model says at the [MASK] of each text of a wrapped batch."""
        outputs = self.prompt_model(batch)
        features: Tensor = self.extract_at_mask(outputs.hidden_states[-1], batch)
        logits: Tensor | None = None
        if self.verbalizer.needs_vocabulary_head:
            logits = self.extract_at_mask(outputs.logits, batch)
        return MaskReading(features, logits)


class MaskOnlyClassifier(MaskClassifier):
    """The same predictions with less work.

    The vocabulary head is run at the [MASK] only, and not at all if nobody asks for it; texts of very different
    lengths go through the model in separate passes instead of being padded to the longest.

    Raises:
        ModelError: for a language model whose head is not known; :class:`MaskClassifier` takes any.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._head = None
        if self.verbalizer.needs_vocabulary_head:
            self._head = vocabulary_head(self.plm)
            if self._head is None:
                raise ModelError(
                    f"{type(self.plm).__name__} is put together in a way that MaskOnlyClassifier does not know. "
                    "Use MaskClassifier, which takes any masked language model."
                )
        self._encoder_keys = self.prompt_model.forward_keys

    def read_mask(self, batch: Mapping[str, Any]) -> MaskReading:
        """What the language model says at the [MASK] of each text of a wrapped batch."""
        parts, where = divide_batch(batch)
        features = torch.cat([self._encode(part) for part in parts])[where]
        return MaskReading(features, None if self._head is None else self._head(features))

    def _encode(self, batch: Mapping[str, Any]) -> Tensor:
        prepared = self.template.process_batch(batch)
        inputs = {key: prepared[key] for key in prepared if key in self._encoder_keys and key != "labels"}
        hidden: Tensor = self.plm.base_model(**inputs).last_hidden_state  # [B, L, d_o]
        features: Tensor = self.extract_at_mask(hidden, batch)
        return features

    def forward(self, batch: Mapping[str, Any]) -> Tensor:
        """Log-probabilities of the classes, ``[B, C]``."""
        reading = self.read_mask(batch)
        outputs = reading.features if reading.logits is None else reading
        judged: Tensor = self.verbalizer.process_outputs(outputs, batch=batch)
        return judged
