"""Large blocks are used again instead of being mapped anew."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

# Counts pages that the system had to hand out for 20 blocks of 64 MB, each freed before the next is asked for.
SCRIPT = """
import resource
import torch
import openprompt_meta.runs.run  # the heap of a process with everything loaded, as a run's is
from openprompt_meta.runs.process import keep_freed_memory

if {kept}:
    assert keep_freed_memory()
torch.zeros(1 << 24).sum()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20):
    torch.zeros(1 << 24)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def new_pages(kept: bool) -> int:
    done = subprocess.run([sys.executable, "-c", SCRIPT.format(kept=kept)], capture_output=True, text=True, check=True)
    return int(done.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="an option of glibc's")
@pytest.mark.slow
def test_the_system_is_not_asked_for_the_same_memory_again() -> None:
    assert new_pages(kept=True) < new_pages(kept=False) / 5
