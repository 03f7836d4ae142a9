"""Memory that was freed is kept for the next tensor, not given back to the system and asked for again."""

from __future__ import annotations

import ctypes
import sys

__all__ = ["keep_freed_memory"]

# Of glibc's malloc.h.
_M_TRIM_THRESHOLD = -1
_M_MMAP_MAX = -4
_MOST = 2**31 - 1


def keep_freed_memory() -> bool:
    """Have this process reuse large blocks of memory; whether that could be arranged (it can with glibc).

    By default glibc maps every block above 32 MB anew, and the system fills its pages with zeros one by one. The
    gradient of a word embedding is such a block, in every step of a tuned language model: a quarter of the time went
    there. The price: memory is not given back between peaks, and holes between blocks may make the process larger.
    """
    if not sys.platform.startswith("linux"):
        return False
    try:
        set_option = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # another C library
        return False
    return bool(set_option(_M_MMAP_MAX, 0)) and bool(set_option(_M_TRIM_THRESHOLD, _MOST))
