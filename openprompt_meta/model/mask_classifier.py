"""`PromptForClassification` in two steps: reading the [MASK], then judging what was read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from openprompt import PromptForClassification
from torch import Tensor
from transformers.modeling_outputs import MaskedLMOutput

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
        if _asks_for_words(self.verbalizer):
            logits = self.extract_at_mask(outputs.logits, batch)
        return _at_least_float32(features, logits)


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
        if _asks_for_words(self.verbalizer):
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
        return _at_least_float32(features, None if self._head is None else self._head(features))

    def _encode(self, batch: Mapping[str, Any]) -> Tensor:
        prepared = self.template.process_batch(batch)
        inputs = {key: prepared[key] for key in prepared if key in self._encoder_keys and key != "labels"}
        hidden: Tensor = self.plm.base_model(**inputs).last_hidden_state  # [B, L, d_o]
        features: Tensor = self.extract_at_mask(hidden, batch)
        return features

    def forward(self, batch: Mapping[str, Any]) -> Tensor:
        """Log-probabilities of the classes, ``[B, C]``."""
        features, logits = self.read_mask(batch)
        # As if the texts were their [MASK]s alone: any verbalizer, ours or not, then gathers what it needs.
        outputs = MaskedLMOutput(
            hidden_states=(features.unsqueeze(1),),  # type: ignore[arg-type]
            logits=None if logits is None else logits.unsqueeze(1),  # type: ignore[arg-type]
        )
        gathered = self.verbalizer.gather_outputs(outputs)
        at_mask = [part.squeeze(1) for part in gathered] if isinstance(gathered, tuple) else gathered.squeeze(1)
        judged: Tensor = self.verbalizer.process_outputs(at_mask, batch=batch)
        return judged


def _at_least_float32(features: Tensor, logits: Tensor | None) -> MaskReading:
    """What a model in half precision said, for verbalizers to judge in single."""
    wide = torch.promote_types(features.dtype, torch.float32)
    return MaskReading(features.to(wide), None if logits is None else logits.to(wide))


def _asks_for_words(verbalizer: Any) -> bool:
    """Whether vocabulary logits are needed; OpenPrompt's own verbalizers do not say, so they get them."""
    return bool(getattr(verbalizer, "needs_vocabulary_head", True))
