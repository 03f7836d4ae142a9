"""The words of the classes read as texts, in an OpenPrompt script: wrapped and prompted as all other texts are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from openprompt import PromptForClassification
from torch import Tensor

from openprompt_meta.data.classes import text_of_words
from openprompt_meta.encoder.wrapping import MaskedLMTokenizerWrapper, TokenRows, wrap_one_by_one
from openprompt_meta.errors import VerbalizerError
from openprompt_meta.prompts.label_words import LabelWords, words_by_class
from openprompt_meta.prompts.query import ModelReference
from openprompt_meta.verbalizers.base import last_hidden_states


def read_names_with(model: PromptForClassification, label_words: LabelWords, max_seq_length: int = 64) -> None:
    """Let the model's verbalizer read the words of its classes, for ``name_weight`` or ``words_read_by: encoder``.

    They are read before each batch with the prompts as they are then, so that gradients flow through them too.

    Args:
        model: with a verbalizer that knows its classes.
        label_words: words of each class, a mapping or lists in the order of the classes.
        max_seq_length: length budget in tokens, template and prompt included.

    Raises:
        VerbalizerError: the verbalizer reads no names, or does not know its classes.
    """
    verbalizer: Any = model.verbalizer
    if not getattr(verbalizer, "reads_names", False):
        raise VerbalizerError(
            f"{type(verbalizer).__name__} reads no names. Use name_verbalizer, rep_verbalizer with name_weight > 0, "
            "or mix_lambda < 1 with words_read_by: encoder."
        )
    if not verbalizer.classes:
        raise VerbalizerError(f"{type(verbalizer).__name__} does not know its classes: give classes.")
    texts = [text_of_words(words) for words in words_by_class(label_words, verbalizer.classes)]
    verbalizer.names_reader = _NamesReader(model, texts, max_seq_length)


class _NamesReader:
    def __init__(self, model: PromptForClassification, texts: Sequence[str], max_seq_length: int) -> None:
        tokenizer = model.template.tokenizer
        wrapper = MaskedLMTokenizerWrapper(max_seq_length=max_seq_length, tokenizer=tokenizer)
        rows = [wrap_one_by_one(text, model.template, wrapper) for text in texts]
        self._batch = TokenRows.from_rows(rows, tokenizer.pad_token_id).batch(range(len(rows)))
        self._model = ModelReference(model)

    def __call__(self) -> tuple[Tensor, Tensor]:
        """The names' features ``[C, d_o]`` under the prompts as they are now, and their labels ``[C]``."""
        model: Any = self._model.model
        batch = {key: value.to(model.device) for key, value in self._batch.items()}
        outputs = model.prompt_model(dict(batch))
        features: Tensor = model.extract_at_mask(last_hidden_states(outputs), batch)
        return features, torch.arange(len(features), device=features.device)
