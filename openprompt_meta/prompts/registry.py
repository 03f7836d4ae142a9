"""The names under which OpenPrompt finds our classes, in a YAML and in `load_template` / `load_verbalizer`."""

from __future__ import annotations

from openprompt.prompts import TEMPLATE_CLASS, VERBALIZER_CLASS

from openprompt_meta.prompts.hand_crafted_verbalizer import HandCraftedVerbalizer
from openprompt_meta.prompts.pool_template import PromptPoolTemplate
from openprompt_meta.prompts.proto_verbalizer import ProtoVerbalizer
from openprompt_meta.prompts.rep_verbalizer import RepVerbalizer
from openprompt_meta.prompts.warp_verbalizer import DartVerbalizer, WarpVerbalizer

__all__ = ["TEMPLATES", "VERBALIZERS", "register"]

TEMPLATES = {"prompt_pool_template": PromptPoolTemplate}

# proto_verbalizer and manual_verbalizer replace OpenPrompt's own: subclasses that predict the same where those run.
VERBALIZERS = {
    "rep_verbalizer": RepVerbalizer,
    "warp_verbalizer": WarpVerbalizer,
    "dart_verbalizer": DartVerbalizer,
    "proto_verbalizer": ProtoVerbalizer,
    "manual_verbalizer": HandCraftedVerbalizer,
}


def register() -> None:
    """Enter our classes into OpenPrompt's tables; doing it twice changes nothing."""
    TEMPLATE_CLASS.update(TEMPLATES)
    VERBALIZER_CLASS.update(VERBALIZERS)
