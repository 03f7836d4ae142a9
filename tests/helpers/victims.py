"""Processes to kill and what must hold in the folder of a run afterwards."""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

import safetensors.torch
import torch

from openprompt_meta.config.loading import load_config
from openprompt_meta.config.schema import RunConfig
from openprompt_meta.config.writing import to_yaml
from openprompt_meta.runs.checkpoint import read_progress
from tests.helpers.small_runs import small_config, write_data

ROOT = Path(__file__).parents[2]
PATIENCE = 120.0  # seconds that nothing here takes unless it hangs


class SmallRun:
    """Six iterations with a checkpoint after each and a validation after every second."""

    def __init__(self, model: Path, folder: Path) -> None:
        self.config: RunConfig = small_config(model, write_data(folder / "data"))
        self.yaml = folder / "run.yaml"
        self.yaml.write_text(to_yaml(self.config), encoding="utf-8")


class VictimServer:
    """``victim_server.py`` as a process, one victim at a time."""

    def __init__(self, errors: Path) -> None:
        self._errors = errors.open("w", encoding="utf-8")
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("victim_server.py"))],
            env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
        )
        assert self._process.stdout is not None
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._process.stdout, selectors.EVENT_READ)

    def __enter__(self) -> VictimServer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.communicate()
        self._selector.close()
        self._errors.close()

    def run(
        self, yaml: Path, folder: Path, *, kill_after: float | None = None, die_at: int | None = None
    ) -> dict[str, Any]:
        """Train in ``folder`` and say how the process ended.

        Args:
            yaml: the run.
            folder: where.
            kill_after: SIGKILL after so many seconds, if it is still at work then.
            die_at: SIGKILL before so many changes of files.
        """
        with self.started(yaml, folder, die_at=die_at) as pid:
            if kill_after is not None and not self._ended_within(kill_after):
                os.kill(pid, signal.SIGKILL)
            return self._answer()

    @contextmanager
    def started(self, yaml: Path, folder: Path, *, die_at: int | None = None) -> Iterator[int]:
        """A process that trains; the block has to wait for its end."""
        assert self._process.stdin is not None
        request = {"yaml": str(yaml), "folder": str(folder), "die_at": die_at}
        self._process.stdin.write(json.dumps(request).encode() + b"\n")
        self._process.stdin.flush()
        yield self._answer()["pid"]

    def kill(self, pid: int) -> dict[str, Any]:
        """End the process that :meth:`started` gave."""
        os.kill(pid, signal.SIGKILL)
        return self._answer()

    def _ended_within(self, seconds: float) -> bool:
        return bool(self._selector.select(seconds))

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        assert self._ended_within(PATIENCE), "the process hangs"
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        return answer


def assert_sound(folder: Path, config: RunConfig) -> None:
    """Whatever is in a run's folder is whole."""
    if (folder / "config.yaml").exists():
        assert load_config(folder / "config.yaml") == config
    for name in ("versions.json", "results.json", "seed-0/test.json"):
        if (folder / name).exists():
            json.loads((folder / name).read_text(encoding="utf-8"))
    progress = {}
    for name in ("last", "best"):
        file = folder / "seed-0" / "checkpoints" / f"{name}.safetensors"
        if file.exists():
            progress[name] = read_progress(file)
    if "best" in progress and "last" in progress:
        assert progress["best"].best_accuracy >= progress["last"].best_accuracy


def assert_same_results(one: Path, two: Path) -> None:
    """Parameters, optimiser state, metrics and results, bit by bit; and nothing half-written."""
    for name in ("last", "best"):
        file = f"seed-0/checkpoints/{name}.safetensors"
        first, second = safetensors.torch.load_file(one / file), safetensors.torch.load_file(two / file)
        assert first.keys() == second.keys()
        assert all(torch.equal(first[key], second[key]) for key in first)
    assert _without_times(one) == _without_times(two)
    assert (one / "seed-0/test.json").read_text() == (two / "seed-0/test.json").read_text()
    results = [json.loads((folder / "results.json").read_text())["test_accuracy"] for folder in (one, two)]
    assert results[0] == results[1]
    assert not list(two.rglob("*.part"))


def _without_times(folder: Path) -> list[dict[str, Any]]:
    lines = (folder / "seed-0/metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return [{key: value for key, value in json.loads(line).items() if key != "seconds"} for line in lines]


def wait_for(file: Path) -> None:
    """Until another process has made ``file``."""
    deadline = time.monotonic() + PATIENCE
    while not file.exists():
        assert time.monotonic() < deadline, f"{file} is not made"
        time.sleep(0.002)


def timed(server: VictimServer, yaml: Path, folder: Path) -> float:
    """Seconds that a whole run takes."""
    started = time.monotonic()
    ended = server.run(yaml, folder)
    assert ended["code"] == 0, ended
    return time.monotonic() - started


def ended_by(process: subprocess.Popen[str], number: int) -> tuple[float, str]:
    """Send a signal; seconds to the end, without those that the process waited for a processor, and what it said."""
    process.send_signal(number)
    began, waited_before = time.monotonic(), _waited(process.pid)
    waited = waited_before
    while process.poll() is None:
        waited = max(waited, _waited(process.pid))
        assert time.monotonic() - began < 5 * PATIENCE, "it does not end"
        time.sleep(0.02)
    seconds = time.monotonic() - began - (waited - waited_before)
    return seconds, process.communicate()[1]


def _waited(pid: int) -> float:
    """Seconds for which a process was ready to run and had no processor; 0 where the system does not say."""
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text("ascii").split()[1]) / 1e9
    except (OSError, IndexError, ValueError):
        return 0.0
