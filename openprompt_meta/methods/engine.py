"""`run.engine`: the same mathematics by OpenPrompt's own passes, or with less work."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from openprompt_meta.config import RunConfig
from openprompt_meta.model import (
    EncodedTexts,
    LoadedMLM,
    MaskClassifier,
    MaskOnlyClassifier,
    PackedClassifier,
    PlainTexts,
)
from openprompt_meta.model.packed_encoder import packed_encoder
from openprompt_meta.model.query_vectors import default_cache_folder
from openprompt_meta.model.vocabulary_head import vocabulary_head
from openprompt_meta.prompts import EpisodicVerbalizer, PromptPoolTemplate

__all__ = ["build_classifier", "build_texts", "tokens_at_once"]


def build_classifier(
    config: RunConfig,
    loaded: LoadedMLM,
    template: PromptPoolTemplate,
    verbalizer: EpisodicVerbalizer,
    tuned: bool = False,
) -> MaskClassifier:
    """The fastest classifier that takes the language model, frozen or ``tuned``, or the plain one."""
    dropout = config.plm.dropout
    kind: Callable[..., MaskClassifier] = MaskClassifier
    knows_head = not verbalizer.needs_vocabulary_head or vocabulary_head(loaded.model) is not None
    if config.run.engine == "fast" and knows_head:
        packs = not dropout and packed_encoder(loaded.model) is not None
        kind = partial(PackedClassifier, compiled=config.plm.compile) if packs else MaskOnlyClassifier
    classifier = kind(loaded.model, template, verbalizer, freeze_plm=not tuned, plm_eval_mode=not dropout)
    loaded.model.requires_grad_(tuned)  # OpenPrompt takes evaluation mode for a wish to freeze
    classifier.to(loaded.model.device)
    classifier.train(dropout)
    return classifier


def build_texts(
    config: RunConfig,
    loaded: LoadedMLM,
    texts: Sequence[str],
    template: PromptPoolTemplate,
    show_progress: bool = False,
    queries: bool = True,
) -> EncodedTexts | PlainTexts:
    """The texts of a split, to be batched; without ``queries`` if nobody asks for them, or the model is tuned."""
    wrapper = loaded.wrapper(tokenizer=loaded.tokenizer, max_seq_length=config.dataset.max_seq_length)
    if config.run.engine == "plain":
        return PlainTexts(texts, template, wrapper, loaded.model.device)
    cache = default_cache_folder() if config.run.cache else None
    return EncodedTexts(texts, template, wrapper, queries, loaded.model.device, cache, show_progress)


def tokens_at_once(config: RunConfig) -> int:
    """How many tokens of support texts go through the model side by side.

    One task at a time in the plain engine, and with dropout, whose random numbers belong to a task.
    """
    return 0 if config.run.engine == "plain" or config.plm.dropout else config.run.tokens_at_once
