"""OpenPrompt's `from_config` drops keys that a class does not know; for ours they are errors."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from openprompt_meta.errors import ConfigError, did_you_mean

__all__ = ["refuse_unknown_keys"]

# Keys of a template's or verbalizer's section that OpenPrompt itself reads.
OPENPROMPT_KEYS = ("parent_config", "file_path", "choice", "optimize", "init_using_split")
# Arguments that the run supplies; a YAML cannot.
SUPPLIED = ("self", "model", "tokenizer")


def refuse_unknown_keys(cls: type, config: Mapping[str, Any] | None) -> None:
    """Raise a ConfigError that lists every key of ``config`` which neither ``cls`` nor OpenPrompt takes."""
    accepted = [name for name in inspect.signature(cls).parameters if name not in SUPPLIED]
    known = (*accepted, *OPENPROMPT_KEYS)
    unknown = [key for key in (config or {}) if key not in known]
    if unknown:
        listed = "; ".join(f"{key!r}.{did_you_mean(key, known)}" for key in unknown)
        raise ConfigError(f"{cls.__name__} does not know {listed} It takes: {', '.join(accepted)}.")
