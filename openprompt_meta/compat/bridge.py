"""Gives OpenPrompt 1.0.1 the names that it imports from transformers and the installed version lacks."""

from __future__ import annotations

import importlib
import logging
import sys
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from openprompt_meta.compat.versions import require

__all__ = ["bridge_transformers", "bridged_names"]

logger = logging.getLogger(__name__)

_bridged: list[str] = []


@dataclass(frozen=True)
class _Need:
    """One name that OpenPrompt imports, and where to get an equal if it is gone."""

    module: str
    name: str
    provide: Callable[[], Any]


def _attribute(module: str, name: str) -> Callable[[], Any]:
    return lambda: getattr(importlib.import_module(module), name)


_STAND_INS = "openprompt_meta.compat.stand_ins"

_NEEDS = (
    _Need(
        "transformers.generation_utils",
        "GenerationMixin",
        _attribute("transformers.generation", "GenerationMixin"),
    ),
    _Need("transformers", "AdamW", _attribute(_STAND_INS, "AdamW")),
    _Need("transformers.file_utils", "ModelOutput", _attribute("transformers.utils", "ModelOutput")),
    _Need(
        "transformers.tokenization_utils",
        "PreTrainedTokenizer",
        _attribute("transformers", "PreTrainedTokenizer"),
    ),
    _Need(
        "transformers.tokenization_utils",
        "SPECIAL_TOKENS_MAP_FILE",
        _attribute(_STAND_INS, "SPECIAL_TOKENS_MAP_FILE"),
    ),
    _Need("transformers.data.processors.utils", "InputExample", _attribute(_STAND_INS, "InputExample")),
    _Need("transformers.data.processors.utils", "InputFeatures", _attribute(_STAND_INS, "InputFeatures")),
    # OpenPrompt only annotates with this one, which transformers keeps for installations without torch.
    _Need(
        "transformers.utils.dummy_pt_objects",
        "PreTrainedModel",
        _attribute("transformers", "PreTrainedModel"),
    ),
)


def bridge_transformers() -> tuple[str, ...]:
    """Give OpenPrompt what it imports from transformers, touching nothing that the installed version has.

    Calling it again changes nothing.

    Returns:
        The full names that were bridged in this process, in order; empty if none had to be.

    Raises:
        CompatibilityError: torch or transformers is missing or outside the supported range.
    """
    require("torch")
    require("transformers")
    # Importing processing_utils executes transformers' __init__ a second time and replaces the module: what
    # was set on the first one would be lost.
    importlib.import_module("transformers.processing_utils")
    for need in _NEEDS:
        if not _has(need.module, need.name):
            setattr(_module(need.module), need.name, need.provide())
            _bridged.append(f"{need.module}.{need.name}")
            logger.debug("bridged %s", _bridged[-1])
    return bridged_names()


def bridged_names() -> tuple[str, ...]:
    """The full names that were bridged in this process so far."""
    return tuple(_bridged)


def _has(module: str, name: str) -> bool:
    try:
        getattr(importlib.import_module(module), name)
    except ModuleNotFoundError as error:
        # A library that transformers itself lacks is not ours to paper over.
        if error.name is None or not (module == error.name or module.startswith(error.name + ".")):
            raise
        return False
    except AttributeError:
        return False
    return True


def _module(name: str) -> ModuleType:
    """The module called ``name``, made empty, with its parents, where it does not exist."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        module = ModuleType(name, "An empty module that openprompt_meta put here for OpenPrompt's imports.")
        module.__path__ = []  # lets modules below it be imported from sys.modules
        parent, _, child = name.rpartition(".")
        setattr(_module(parent), child, module)
        sys.modules[name] = module
        return module
