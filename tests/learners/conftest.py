"""The language model of the oracles."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from openprompt_meta.encoder.loading import LoadedMLM, load_mlm


@pytest.fixture
def mlm(tiny_mlm_folder: Callable[[str], Any]) -> LoadedMLM:
    """Eager attention, since fused attention has no second derivative on a CPU."""
    loaded = load_mlm(tiny_mlm_folder("bert"), attn_implementation="eager")
    loaded.model.double().requires_grad_(False)
    return loaded
