"""The name under which OpenPrompt's `load_plm` finds our loader: `load_plm("mlm", "minilm")`."""

from __future__ import annotations

from openprompt.plms import _MODEL_CLASSES, ModelClass

from openprompt_meta.model.loading import load_config, load_model, load_tokenizer
from openprompt_meta.model.tokenizer_wrapper import MaskedLMTokenizerWrapper

__all__ = ["MODEL_NAME", "register"]

MODEL_NAME = "mlm"


class _Config:
    from_pretrained = staticmethod(load_config)


class _Tokenizer:
    from_pretrained = staticmethod(load_tokenizer)


class _Model:
    from_pretrained = staticmethod(load_model)


def register() -> None:
    """Enter ``mlm`` into OpenPrompt's table of language models; doing it twice changes nothing."""
    # OpenPrompt asks each of three classes in turn; the table's types are whatever has a from_pretrained.
    _MODEL_CLASSES[MODEL_NAME] = ModelClass(
        config=_Config, tokenizer=_Tokenizer, model=_Model, wrapper=MaskedLMTokenizerWrapper
    )
