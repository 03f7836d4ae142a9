"""A dry run: which cells would be run, and about how long that takes."""

from __future__ import annotations

import contextlib
import math
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from openprompt_meta.config.loading import load_config
from openprompt_meta.config.schema import RunConfig
from openprompt_meta.errors import OpenPromptMetaError
from openprompt_meta.runs.folder import RunFolder
from openprompt_meta.runs.process import StopRequest
from openprompt_meta.tables.cells import Cell, Stopped, config_digest, look_up, recorded_seconds
from openprompt_meta.tables.estimates import estimated_seconds

# -- About how long the missing cells of a table will take: from finished cells like them, by a trial, or estimated ---


@dataclass(frozen=True)
class _Speed:
    """What a cell's parts take."""

    start: float
    """Seconds to load and encode."""
    step: float
    """Seconds of a meta-iteration; 0 for methods without."""
    task: float
    """Seconds to evaluate a task."""


class _TimeForecast:
    """How long the cells of a table will take, each kind of cell looked into once at most.

    Args:
        stop: asked after each trial.
        folder: of cells; what is finished there is learned from, where it differs in seed, length and number of tasks
            only.
        timed: where there is none such, run one iteration in a temporary folder and time it, in place of an estimate.
    """

    def __init__(self, stop: StopRequest, folder: Path, timed: bool = False) -> None:
        self.stop = stop
        self.timed = timed
        self._speeds: dict[str, tuple[_Speed | None, str]] = {}
        for config, run in _finished_runs(folder):
            total = recorded_seconds(run)
            if total is not None:
                self._speeds[_kind_of(config)] = _speed(config, run, total), f"finished cell {run.name}"

    def seconds(self, config: RunConfig) -> tuple[float | None, str]:
        """About how many seconds the run will take from its beginning, if known, and where that is from."""
        kind = _kind_of(config)
        if kind not in self._speeds and not self.timed:
            try:
                return estimated_seconds(config)
            except OpenPromptMetaError as error:
                return None, _failure(error)
        if kind not in self._speeds:
            self._speeds[kind] = self._trial(config)
        speed, source = self._speeds[kind]
        return None if speed is None else _seconds_for(config, speed), source

    def _trial(self, config: RunConfig) -> tuple[_Speed | None, str]:
        try:
            return _time_one_iteration(config, self.stop), "one iteration, timed"
        except (OpenPromptMetaError, RuntimeError, MemoryError) as error:
            return None, _failure(error)


def _failure(error: Exception) -> str:
    return f"fails: {' '.join(str(error).split())}"


def _seconds_for(config: RunConfig, speed: _Speed) -> float:
    """Time for all iterations, validations and test tasks; early stopping would make it less."""
    meta = config.meta
    if not speed.step:
        return speed.start + meta.test_tasks * speed.task
    validations = 1 + math.ceil(meta.iterations / meta.validate_every)
    tasks = validations * meta.valid_tasks + meta.test_tasks
    return speed.start + meta.iterations * speed.step + tasks * speed.task


def _time_one_iteration(config: RunConfig, stop: StopRequest) -> _Speed:
    """Run one iteration, one validation task before and after it and one test task, and time them.

    Raises:
        Stopped: a signal came: it meant the whole dry run.
    """
    from openprompt_meta.runs.run import Run  # here: an estimate does without torch

    once = ("iterations", "validate_every", "valid_tasks", "test_tasks")
    trial = config.with_values({f"meta.{name}": 1 for name in once})
    with tempfile.TemporaryDirectory(prefix="openprompt_meta-") as folder:
        started = time.perf_counter()
        if Run(trial, folder, show_progress=False).train(stop) is None or stop.asked():
            raise Stopped
        return _speed(trial, Path(folder), time.perf_counter() - started)


def _speed(config: RunConfig, folder: Path, total: float) -> _Speed:
    records = RunFolder(folder).seed(config.run.seeds[0]).metrics()
    steps = [float(record["seconds"]) for record in records if record["kind"] == "step"]
    validations = [float(record["seconds"]) for record in records if record["kind"] == "validation"]
    if not steps or not validations:  # nothing is learned across tasks: all of it was the test
        return _Speed(start=0.0, step=0.0, task=total / config.meta.test_tasks)
    # A validation task is evaluated just as a test task is.
    task = sum(validations) / len(validations) / config.meta.valid_tasks
    known = sum(steps) + sum(validations) + task * config.meta.test_tasks
    return _Speed(start=max(0.0, total - known), step=sum(steps) / len(steps), task=task)


def _finished_runs(folder: Path) -> Iterator[tuple[RunConfig, Path]]:
    for results in sorted(folder.glob("*/results.json")):
        with contextlib.suppress(OpenPromptMetaError):  # of an older version: nothing to learn from
            yield load_config(RunFolder(results.parent).config_file), results.parent


def _kind_of(config: RunConfig) -> str:
    """The same for two configurations that differ only in how much of the same is done."""
    plain = RunConfig()
    lengths = ("iterations", "validate_every", "patience", "min_gain", "valid_tasks", "test_tasks")
    defaults = {f"meta.{name}": getattr(plain.meta, name) for name in lengths}
    return config_digest(config.with_values({**defaults, "run.seeds": [0]}))


@dataclass(frozen=True)
class PlannedCell:
    """What would be done with a cell.

    Attributes:
        action: ``reuse``, ``run``, ``go on`` (its training was interrupted), ``refuse`` or ``shared`` (another row
            runs the same).
        seconds: about how long the whole cell takes, for those that would be run, if it can be told.
        source: where the estimate is from, or why there is none.
        reason: why it would be refused.
    """

    cell: Cell
    action: str
    seconds: float | None = None
    source: str | None = None
    reason: str | None = None


def plan(cells: Sequence[Cell], stop: StopRequest, folder: Path, timed: bool = False) -> Iterator[PlannedCell]:
    """What would be done with each cell, one by one as it is known, nothing written.

    Args:
        cells: of the table.
        stop: asked after each trial.
        folder: where finished cells are.
        timed: time one iteration where there is no finished cell to learn from, in place of an estimate.

    Raises:
        Stopped: ``stop`` asked for it.
    """
    forecast = _TimeForecast(stop, folder, timed)
    seen: set[Path] = set()
    for cell, state in look_up(cells).items():
        if cell.config is None or state.reason is not None:
            yield PlannedCell(cell, "refuse", reason=state.reason)
        elif state.outcome is not None:
            yield PlannedCell(cell, "reuse")
        elif cell.folder in seen:
            yield PlannedCell(cell, "shared")
        else:
            started = RunFolder(cell.folder).seed(cell.seed).last_checkpoint.exists()
            yield PlannedCell(cell, "go on" if started else "run", *forecast.seconds(cell.config))
        seen.add(cell.folder)


def total_seconds(planned: Sequence[PlannedCell]) -> float:
    """What is known of the time, added up."""
    return sum(one.seconds or 0.0 for one in planned)
