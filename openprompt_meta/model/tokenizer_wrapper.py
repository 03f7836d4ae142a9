"""OpenPrompt's tokenizer wrapper for masked language models, for every tokenizer and not only slow ones."""

from __future__ import annotations

from openprompt.plms.mlm import MLMTokenizerWrapper

from openprompt_meta.compat.tokenization import add_special_tokens

__all__ = ["MaskedLMTokenizerWrapper"]


class MaskedLMTokenizerWrapper(MLMTokenizerWrapper):
    """``MLMTokenizerWrapper`` that also works with fast tokenizers; the same features for slow ones."""

    add_special_tokens = add_special_tokens
