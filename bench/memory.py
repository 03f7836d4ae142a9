"""4. Peak memory of a meta-iteration, each engine in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from bench.workload import Workload


def measure(work: Workload) -> dict[str, Any]:
    """Megabytes that a meta-iteration takes on top of what was there before it, plain and fast."""
    tight = replace(work, budget=work.needed_budget)
    plain, fast = peak_of(tight, "plain"), peak_of(work, "fast")
    return {"setting": str(work), "megabytes": {"plain": plain, "fast": fast}, "fast/plain": fast / plain}


def peak_of(work: Workload, engine: str) -> float:
    """Megabytes of one engine."""
    command = [sys.executable, "-m", "bench.memory", engine, json.dumps(asdict(work))]
    done = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603 - ourselves
    return float(done.stdout.splitlines()[-1])


def _status(key: str) -> int:
    """A line of /proc/self/status, in kilobytes."""
    for line in Path("/proc/self/status").read_text("ascii").splitlines():
        if line.startswith(key):
            return int(line.split()[1])
    raise SystemExit(f"/proc/self/status has no {key}: memory is measured on Linux only")


def _child(engine: str, work: Workload) -> None:
    method = work.method(engine)
    tasks = work.tasks(method)
    print(peak_memory(lambda: method.learner.meta_step(tasks)))


def peak_memory(call: Callable[[], object]) -> float:
    """Megabytes that a call takes on top of what was there before it."""
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
    before = _status("VmRSS")
    call()
    return (_status("VmHWM") - before) / 1024


def kept_small(module: str) -> None:
    """Start this process anew, once, so that it gives freed memory back: one peak would hide the next."""
    if os.environ.get("MALLOC_TRIM_THRESHOLD_") is None:
        os.environ["MALLOC_TRIM_THRESHOLD_"] = "65536"
        os.execv(sys.executable, [sys.executable, "-m", module, *sys.argv[1:]])  # noqa: S606 - ourselves


if __name__ == "__main__":
    kept_small("bench.memory")
    _child(sys.argv[1], Workload(**json.loads(sys.argv[2])))
