"""No test of the loader asks a model hub."""

from __future__ import annotations

from collections.abc import Callable

import pytest


@pytest.fixture(autouse=True)
def _offline(hub_mode: Callable[[bool], None]) -> None:
    hub_mode(True)
