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
from openprompt_meta.version import __version__

if TYPE_CHECKING:
    from openprompt_meta.classifier.classifier import MetaPromptClassifier
    from openprompt_meta.encoder.loading import load_mlm
    from openprompt_meta.encoder.names import read_names_with
    from openprompt_meta.prompts.pool import PromptPool
    from openprompt_meta.prompts.pool_template import PromptPoolTemplate
    from openprompt_meta.verbalizers.adaptive import AdaptiveVerbalizer
    from openprompt_meta.verbalizers.manual import ManualVerbalizer
    from openprompt_meta.verbalizers.names import NameVerbalizer
    from openprompt_meta.verbalizers.proto import ProtoVerbalizer
    from openprompt_meta.verbalizers.rep import RepVerbalizer
    from openprompt_meta.verbalizers.warp import DartVerbalizer, WarpVerbalizer

__all__ = [
    "AdaptiveVerbalizer",
    "DartVerbalizer",
    "ManualVerbalizer",
    "MetaPromptClassifier",
    "NameVerbalizer",
    "OpenPromptMetaError",
    "PromptPool",
    "PromptPoolTemplate",
    "ProtoVerbalizer",
    "RepVerbalizer",
    "WarpVerbalizer",
    "__version__",
    "load_mlm",
    "read_names_with",
]

_HOME = {
    "AdaptiveVerbalizer": "openprompt_meta.verbalizers.adaptive",
    "DartVerbalizer": "openprompt_meta.verbalizers.warp",
    "ManualVerbalizer": "openprompt_meta.verbalizers.manual",
    "MetaPromptClassifier": "openprompt_meta.classifier.classifier",
    "NameVerbalizer": "openprompt_meta.verbalizers.names",
    "PromptPool": "openprompt_meta.prompts.pool",
    "PromptPoolTemplate": "openprompt_meta.prompts.pool_template",
    "ProtoVerbalizer": "openprompt_meta.verbalizers.proto",
    "RepVerbalizer": "openprompt_meta.verbalizers.rep",
    "WarpVerbalizer": "openprompt_meta.verbalizers.warp",
    "load_mlm": "openprompt_meta.encoder.loading",
    "read_names_with": "openprompt_meta.encoder.names",
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
    from openprompt_meta.registration import register

    register()


on_openprompt_import(
    _register,
    users=[f"{__name__}.{room}" for room in ("prompts", "verbalizers", "encoder", "openprompt_runs", "registration")],
)
