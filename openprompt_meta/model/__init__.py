"""The masked language model: loading it, wrapping its tokenizer, reading its [MASK]."""

from openprompt_meta.model.encoded_texts import EncodedTexts
from openprompt_meta.model.loading import LoadedMLM, load_mlm
from openprompt_meta.model.mask_classifier import MaskClassifier, MaskOnlyClassifier, MaskReading
from openprompt_meta.model.packed_classifier import PackedClassifier
from openprompt_meta.model.plain_texts import PlainTexts
from openprompt_meta.model.tokenizer_wrapper import MaskedLMTokenizerWrapper
from openprompt_meta.prompts.episodic import has_vocabulary_head

__all__ = [
    "EncodedTexts",
    "LoadedMLM",
    "MaskClassifier",
    "MaskOnlyClassifier",
    "MaskReading",
    "MaskedLMTokenizerWrapper",
    "PackedClassifier",
    "PlainTexts",
    "has_vocabulary_head",
    "load_mlm",
]
