"""Prompt pools meta-learned with MAML and representative verbalizers, for OpenPrompt.

Importing this package is cheap: it loads neither torch nor transformers. From then on ``import openprompt``
works on every supported transformers and finds ``prompt_pool_template``, ``rep_verbalizer`` and the others in
its tables.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from openprompt_meta.compat.import_hook import on_openprompt_import
from openprompt_meta.errors import OpenPromptMetaError

if TYPE_CHECKING:
    from openprompt_meta.model import load_mlm
    from openprompt_meta.prompts import (
        DartVerbalizer,
        HandCraftedVerbalizer,
        PromptPool,
        PromptPoolTemplate,
        ProtoVerbalizer,
        RepVerbalizer,
        WarpVerbalizer,
    )
    from openprompt_meta.use.classifier import MetaPromptClassifier

__version__ = "0.1.0"

__all__ = [
    "DartVerbalizer",
    "HandCraftedVerbalizer",
    "MetaPromptClassifier",
    "OpenPromptMetaError",
    "PromptPool",
    "PromptPoolTemplate",
    "ProtoVerbalizer",
    "RepVerbalizer",
    "WarpVerbalizer",
    "__version__",
    "load_mlm",
]

_HOME = {
    "DartVerbalizer": "openprompt_meta.prompts",
    "HandCraftedVerbalizer": "openprompt_meta.prompts",
    "MetaPromptClassifier": "openprompt_meta.use.classifier",
    "PromptPool": "openprompt_meta.prompts",
    "PromptPoolTemplate": "openprompt_meta.prompts",
    "ProtoVerbalizer": "openprompt_meta.prompts",
    "RepVerbalizer": "openprompt_meta.prompts",
    "WarpVerbalizer": "openprompt_meta.prompts",
    "load_mlm": "openprompt_meta.model",
}


def __getattr__(name: str) -> Any:
    """Load a public name from its home on first use (PEP 562)."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def _register() -> None:
    from openprompt_meta.model import registry as models
    from openprompt_meta.openprompt_runs import processor as processors
    from openprompt_meta.prompts import registry as prompts

    for table in (prompts, models, processors):
        table.register()


on_openprompt_import(
    _register, users=["openprompt_meta.prompts", "openprompt_meta.model", "openprompt_meta.openprompt_runs"]
)
