"""The name under which OpenPrompt's `load_plm` finds our loader: `load_plm("mlm", "minilm")`."""

from __future__ import annotations

from typing import Any

from openprompt.plms import _MODEL_CLASSES, ModelClass

from openprompt_meta.model.loading import load_mlm
from openprompt_meta.model.tokenizer_wrapper import MaskedLMTokenizerWrapper

__all__ = ["MODEL_NAME", "register"]

MODEL_NAME = "mlm"


class _Part:
    """One part of a loaded model, behind the ``from_pretrained`` that OpenPrompt calls for each."""

    def __init__(self, part: str) -> None:
        self._part = part

    def from_pretrained(self, path: str, config: Any = None) -> Any:
        return getattr(load_mlm(path), self._part)


def register() -> None:
    """Enter ``mlm`` into OpenPrompt's table of language models; doing it twice changes nothing."""
    _MODEL_CLASSES[MODEL_NAME] = ModelClass(
        config=_Part("config"),
        tokenizer=_Part("tokenizer"),
        model=_Part("model"),
        wrapper=MaskedLMTokenizerWrapper,
    )
