"""Giving memory back to the system after a fit, which needs a hundred times as much as a prediction."""

from __future__ import annotations

import contextlib
import ctypes

__all__ = ["give_back_memory"]

_malloc_trim = None
# There on Linux with glibc, which keeps what was freed for the next time; other systems give it back by themselves.
with contextlib.suppress(OSError, AttributeError, TypeError):
    _malloc_trim = ctypes.CDLL(None).malloc_trim


def give_back_memory() -> None:
    """Have the allocator return what is free, where it would keep it."""
    if _malloc_trim is not None:
        _malloc_trim(0)
