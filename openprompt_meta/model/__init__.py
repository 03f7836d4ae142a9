"""The masked language model: loading it, and OpenPrompt's wrapper for its tokenizer."""

from openprompt_meta.model.loading import LoadedMLM, has_vocabulary_head, load_mlm
from openprompt_meta.model.tokenizer_wrapper import MaskedLMTokenizerWrapper

__all__ = ["LoadedMLM", "MaskedLMTokenizerWrapper", "has_vocabulary_head", "load_mlm"]
