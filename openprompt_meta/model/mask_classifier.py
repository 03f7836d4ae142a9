"""`PromptForClassification` in two steps: reading the [MASK], then judging what was read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from openprompt import PromptForClassification
from torch import Tensor
from transformers.modeling_outputs import MaskedLMOutput

from openprompt_meta.errors import ModelError
from openprompt_meta.model.length_groups import divide_batch
from openprompt_meta.model.vocabulary_head import VocabularyHead, vocabulary_head
from openprompt_meta.prompts import PromptPool

__all__ = ["MaskClassifier", "MaskOnlyClassifier", "MaskReading", "at_least_float32"]


class MaskReading(NamedTuple):
    """What a language model says at the [MASK] of each text of a batch."""

    features: Tensor
    """Hidden states, ``[B, d_o]``."""
    logits: Tensor | None
    """If the verbalizer needs them, vocabulary logits ``[B, V]``, or ``[B, W]`` of the words that it wants."""


class MaskClassifier(PromptForClassification):
    """OpenPrompt's class with the step before the verbalizer open to callers.

    A support set is read once, fitted and judged; the stock call would read it for each. Several batches may be read
    at once, each with a pool and a verbalizer of its own: ``lay_out`` does what does not depend on those, once for as
    many readings as are wanted. This is the plain path: all of OpenPrompt's own code, the reference for its
    subclasses.
    """

    def lay_out(self, batches: Sequence[Mapping[str, Any]]) -> Any:
        """Wrapped batches in the form that :meth:`read_masks` takes."""
        return batches

    def read_masks(
        self, laid_out: Any, pools: Sequence[PromptPool], verbalizers: Sequence[Any] | None = None
    ) -> list[MaskReading]:
        """What the language model says at the [MASK] of each text of each batch.

        Args:
            laid_out: the batches, from :meth:`lay_out`.
            pools: the pool to use for each batch.
            verbalizers: who will judge each batch; the classifier's own verbalizer by default.
        """
        verbalizers = [self.verbalizer] * len(pools) if verbalizers is None else verbalizers
        readings = []
        for batch, pool, verbalizer in zip(laid_out, pools, verbalizers, strict=True):
            with _pool_in_place(self.template, pool):
                readings.append(self._read(batch, verbalizer))
        return readings

    def read_mask(self, batch: Mapping[str, Any]) -> MaskReading:
        """What the language model says at the [MASK] of each text of a wrapped batch, with the template's own pool."""
        return self._read(batch, self.verbalizer)

    def _read(self, batch: Mapping[str, Any], verbalizer: Any) -> MaskReading:
        outputs = self.prompt_model(batch)
        features: Tensor = self.extract_at_mask(outputs.hidden_states[-1], batch)
        logits: Tensor | None = None
        if asks_for_words(verbalizer):
            logits = self.extract_at_mask(outputs.logits, batch)
        return at_least_float32(features, logits)


class MaskOnlyClassifier(MaskClassifier):
    """The same predictions with less work, for any language model.

    The vocabulary head is run at the [MASK] only, for the wanted words only, and not at all if nobody asks for it;
    texts of very different lengths go through the model in separate passes instead of being padded to the longest.

    Raises:
        ModelError: for a language model whose head is not known; :class:`MaskClassifier` takes any.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._head: VocabularyHead | None = None
        if asks_for_words(self.verbalizer):
            self._head = vocabulary_head(self.plm)
            if self._head is None:
                raise ModelError(
                    f"{type(self.plm).__name__} is put together in a way that {type(self).__name__} does not know. "
                    "Use MaskClassifier, which takes any masked language model."
                )
        self._encoder_keys = self.prompt_model.forward_keys

    def _read(self, batch: Mapping[str, Any], verbalizer: Any) -> MaskReading:
        parts, where = divide_batch(batch)
        features = torch.cat([self._encode(part) for part in parts])[where]
        return at_least_float32(features, self._logits(features, verbalizer))

    def _encode(self, batch: Mapping[str, Any]) -> Tensor:
        prepared = self.template.process_batch(batch)
        inputs = {key: prepared[key] for key in prepared if key in self._encoder_keys and key != "labels"}
        hidden: Tensor = self.plm.base_model(**inputs).last_hidden_state  # [B, L, d_o]
        features: Tensor = self.extract_at_mask(hidden, batch)
        return features

    def _logits(self, features: Tensor, verbalizer: Any) -> Tensor | None:
        if self._head is None or not asks_for_words(verbalizer):
            return None
        return self._head(features, getattr(verbalizer, "wanted_words", None))

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


def at_least_float32(features: Tensor, logits: Tensor | None) -> MaskReading:
    """What a model in half precision said, for verbalizers to judge in single."""
    wide = torch.promote_types(features.dtype, torch.float32)
    return MaskReading(features.to(wide), None if logits is None else logits.to(wide))


def asks_for_words(verbalizer: Any) -> bool:
    """Whether vocabulary logits are needed; OpenPrompt's own verbalizers do not say, so they get them."""
    return bool(getattr(verbalizer, "needs_vocabulary_head", True))


@contextmanager
def _pool_in_place(template: Any, pool: PromptPool) -> Iterator[None]:
    """Let the template use another pool inside."""
    own = template.pool
    template.pool = pool
    try:
        yield
    finally:
        template.pool = own
