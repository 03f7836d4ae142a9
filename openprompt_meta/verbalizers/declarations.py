"""Verbalizers by name."""

from __future__ import annotations

import importlib
from typing import Any

_HOMES = {
    "rep_verbalizer": "rep:RepVerbalizer",
    "warp_verbalizer": "warp:WarpVerbalizer",
    "dart_verbalizer": "warp:DartVerbalizer",
    "proto_verbalizer": "proto:ProtoVerbalizer",
    "manual_verbalizer": "manual:ManualVerbalizer",
}


def verbalizer_classes() -> dict[str, type[Any]]:
    """The classes."""
    found = {}
    for name, home in _HOMES.items():
        module, _, attribute = home.partition(":")
        found[name] = getattr(importlib.import_module(f"openprompt_meta.verbalizers.{module}"), attribute)
    return found
