"""The prompt pool, its template and the verbalizers, each an ordinary OpenPrompt class."""

from openprompt_meta.prompts.discrete_template import DiscreteTemplate
from openprompt_meta.prompts.episodic import EpisodicVerbalizer
from openprompt_meta.prompts.hand_crafted_verbalizer import HandCraftedVerbalizer
from openprompt_meta.prompts.pool import PromptPool
from openprompt_meta.prompts.pool_template import PromptPoolTemplate
from openprompt_meta.prompts.proto_verbalizer import ProtoVerbalizer
from openprompt_meta.prompts.registry import register
from openprompt_meta.prompts.rep_verbalizer import RepVerbalizer
from openprompt_meta.prompts.warp_verbalizer import DartVerbalizer, WarpVerbalizer

__all__ = [
    "DartVerbalizer",
    "DiscreteTemplate",
    "EpisodicVerbalizer",
    "HandCraftedVerbalizer",
    "PromptPool",
    "PromptPoolTemplate",
    "ProtoVerbalizer",
    "RepVerbalizer",
    "WarpVerbalizer",
    "register",
]
