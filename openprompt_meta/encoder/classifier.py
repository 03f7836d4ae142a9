"""`PromptForClassification` in two steps: reading features out of the encoder, then classifying what was read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from openprompt import PromptForClassification
from torch import Tensor
from transformers.modeling_outputs import MaskedLMOutput

from openprompt_meta.encoder.batching import divide_batch
from openprompt_meta.errors import ModelError
from openprompt_meta.prompts.pool import PromptPool
from openprompt_meta.prompts.pooling import Features, joined_features, mean_over_tokens
from openprompt_meta.prompts.query import evaluation_mode

# -- Matrix products in half precision while the weights stay in single: for language models that are tuned -----------


def matmul_precision(precision: torch.dtype, device: torch.device) -> AbstractContextManager[object]:
    """A context in which matrix products are computed in ``precision``; float32 leaves everything as it is.

    The steps that tune a model are far smaller than its weights, and half precision would round them away. Here only
    what goes through a product is rounded; the weights that are stepped, and what steps them, stay in float32.
    """
    if precision is torch.float32:
        return nullcontext()
    return torch.autocast(device.type, dtype=precision)


# -- The vocabulary head by itself, to be run at the [MASK] and for the words that somebody asks for ------------------

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


# -- `PromptForClassification` in two steps: reading features, then evaluating what was read --------------------------


class EncoderOutput(NamedTuple):
    """What a language model says of each text of a batch."""

    features: Tensor
    """What the template has read of a text, ``[B, d_o]``: :mod:`openprompt_meta.prompts.pooling`."""
    logits: Tensor | None
    """If the verbalizer needs them, logits at the [MASK]: ``[B, V]``, or ``[B, W]`` of the words that it wants."""


class MaskClassifier(PromptForClassification):
    """OpenPrompt's class with the step before the verbalizer open to callers.

    A support set is read once, fitted and evaluated; the stock call would read it for each. Several batches may be
    read at once, each with a pool and a verbalizer of its own: ``prepare`` does what does not depend on those, once
    for as many readings as are wanted. This is the plain path: all of OpenPrompt's own code, the reference for its
    subclasses.

    Raises:
        ModelError: the verbalizer asks for words at a [MASK] that the template leaves out of the text.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if getattr(self.template, "as_prefix", False) and self.features == "mean" and needs_logits(self.verbalizer):
            raise ModelError(
                f"{type(self.verbalizer).__name__} has the [MASK] predict words, but as_prefix with features = mean "
                "leaves it out of the text. Read features: both, or use a verbalizer that does without."
            )

    def prepare(self, batches: Sequence[Mapping[str, Any]]) -> Any:
        """Wrapped batches in the form that :meth:`encode` takes."""
        return batches

    def encode(
        self, prepared: Any, pools: Sequence[PromptPool], verbalizers: Sequence[Any] | None = None
    ) -> list[EncoderOutput]:
        """What the language model says of each text of each batch.

        Args:
            prepared: the batches, from :meth:`prepare`.
            pools: the pool to use for each batch.
            verbalizers: who will evaluate each batch; the classifier's own verbalizer by default.
        """
        verbalizers = [self.verbalizer] * len(pools) if verbalizers is None else verbalizers
        readings = []
        for batch, pool, verbalizer in zip(prepared, pools, verbalizers, strict=True):
            with _pool_in_place(self.template, pool):
                readings.append(self._read(batch, verbalizer))
        return readings

    def read(self, batch: Mapping[str, Any]) -> EncoderOutput:
        """What the language model says of each text of a wrapped batch, with the template's own pool."""
        return self._read(batch, self.verbalizer)

    @property
    def features(self) -> Features:
        """What is read of a text; templates that are not ours have it read at the [MASK]."""
        return getattr(self.template, "features", "mask")

    def _read(self, batch: Mapping[str, Any], verbalizer: Any) -> EncoderOutput:
        outputs = self.prompt_model(batch)  # the template puts the features where the [MASK] is
        features: Tensor = self.extract_at_mask(outputs.hidden_states[-1], batch)
        logits: Tensor | None = None
        if needs_logits(verbalizer):
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
        if needs_logits(self.verbalizer):
            self._head = vocabulary_head(self.plm)
            if self._head is None:
                raise ModelError(
                    f"{type(self.plm).__name__} is put together in a way that {type(self).__name__} does not know. "
                    "Use MaskClassifier, which takes any masked language model."
                )
        self._encoder_keys = self.prompt_model.forward_keys

    def _read(self, batch: Mapping[str, Any], verbalizer: Any) -> EncoderOutput:
        parts, where = divide_batch(batch)
        readings = [self._encode(part) for part in parts]
        at_mask = torch.cat([one for one, _ in readings])[where]
        mean = None if self.features == "mask" else torch.cat([two for _, two in readings if two is not None])[where]
        return self._output(at_mask, mean, verbalizer)

    def _encode(self, batch: Mapping[str, Any]) -> tuple[Tensor, Tensor | None]:
        """Hidden states ``[B, d]`` at the [MASK], and the mean over tokens if it is read."""
        prepared = self.template.process_batch(batch)
        inputs = {key: prepared[key] for key in prepared if key in self._encoder_keys and key != "labels"}
        hidden: Tensor = self.plm.base_model(**inputs).last_hidden_state  # [B, L, d_o]
        at_mask: Tensor = self.extract_at_mask(hidden, batch)
        return at_mask, None if self.features == "mask" else mean_over_tokens(hidden, self._read_positions(batch))

    def _read_positions(self, batch: Mapping[str, Any]) -> Tensor:
        """``[B, L]``, above zero at the tokens that a mean is over."""
        positions: Tensor = self.template.read_positions(batch)
        return positions

    def _output(self, at_mask: Tensor | None, mean: Tensor | None, verbalizer: Any) -> EncoderOutput:
        """Features of what was read, and the vocabulary head's logits if the verbalizer needs them."""
        logits = None
        if self._head is not None and at_mask is not None and needs_logits(verbalizer):
            logits = self._head(at_mask, getattr(verbalizer, "wanted_words", None))
        features = joined_features(None if self.features == "mean" else at_mask, mean)
        return at_least_float32(features, logits)

    def forward(self, batch: Mapping[str, Any]) -> Tensor:
        """Log-probabilities of the classes, ``[B, C]``."""
        features, logits = self.read(batch)
        # As if the texts were their [MASK]s alone: any verbalizer, ours or not, then gathers what it needs.
        outputs = MaskedLMOutput(
            hidden_states=(features.unsqueeze(1),),  # type: ignore[arg-type]
            logits=None if logits is None else logits.unsqueeze(1),  # type: ignore[arg-type]
        )
        gathered = self.verbalizer.gather_outputs(outputs)
        at_mask = [part.squeeze(1) for part in gathered] if isinstance(gathered, tuple) else gathered.squeeze(1)
        evaluated: Tensor = self.verbalizer.process_outputs(at_mask, batch=batch)
        return evaluated


def at_least_float32(features: Tensor, logits: Tensor | None) -> EncoderOutput:
    """What a model in half precision said, for verbalizers to evaluate in single."""
    wide = torch.promote_types(features.dtype, torch.float32)
    return EncoderOutput(features.to(wide), None if logits is None else logits.to(wide))


def needs_logits(verbalizer: Any) -> bool:
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
