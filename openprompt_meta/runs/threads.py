"""How many threads to compute with: as many processors as this process may use, not as many as the machine has."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import torch

__all__ = ["set_threads", "usable_processors"]

_QUOTA = Path("/sys/fs/cgroup/cpu.max")  # what a container is allowed, e.g. "200000 100000" for two processors


def set_threads(threads: int | None) -> None:
    """Compute with that many threads; by default with no more than there are processors to use.

    More threads than processors wait for each other at every matrix product. ``OMP_NUM_THREADS`` has the last word.
    """
    if threads is not None:
        torch.set_num_threads(threads)
    elif "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(min(torch.get_num_threads(), usable_processors()))


def usable_processors(quota: Path = _QUOTA) -> int:
    """Processors that this process may use, by its affinity and its container's quota."""
    affinity = getattr(os, "sched_getaffinity", None)
    count = len(affinity(0)) if affinity is not None else os.cpu_count() or 1
    with suppress(OSError, ValueError):  # no container, or another system
        allowed, period = quota.read_text(encoding="ascii").split()
        if allowed != "max":
            count = min(count, max(1, int(allowed) // int(period)))
    return count
