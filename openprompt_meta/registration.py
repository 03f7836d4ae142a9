"""The names by which OpenPrompt finds our classes, in a YAML and in `load_template`, `load_verbalizer`, `load_plm`."""

from __future__ import annotations

from types import SimpleNamespace

from openprompt.data_utils import PROCESSORS
from openprompt.plms import _MODEL_CLASSES, ModelClass
from openprompt.prompts import TEMPLATE_CLASS, VERBALIZER_CLASS

from openprompt_meta.components import verbalizers
from openprompt_meta.encoder.loading import load_model, load_model_config, load_tokenizer
from openprompt_meta.encoder.wrapping import MaskedLMTokenizerWrapper
from openprompt_meta.openprompt_runs.run import PROCESSOR_CLASSES
from openprompt_meta.prompts.pool_template import PromptPoolTemplate


def register() -> None:
    """Enter our classes into OpenPrompt's tables; doing it twice changes nothing.

    ``proto_verbalizer`` and ``manual_verbalizer`` replace OpenPrompt's own: subclasses that predict the same where
    those run.
    """
    TEMPLATE_CLASS["prompt_pool_template"] = PromptPoolTemplate
    VERBALIZER_CLASS.update({name: declaration.load() for name, declaration in verbalizers().items()})
    # OpenPrompt asks each of three classes in turn; the table's types are whatever has a from_pretrained.
    _MODEL_CLASSES["mlm"] = ModelClass(
        config=SimpleNamespace(from_pretrained=load_model_config),
        tokenizer=SimpleNamespace(from_pretrained=load_tokenizer),
        model=SimpleNamespace(from_pretrained=load_model),
        wrapper=MaskedLMTokenizerWrapper,
    )
    PROCESSORS.update(PROCESSOR_CLASSES)
