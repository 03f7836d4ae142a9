"""Cells: one run each, in a folder named by its configuration; finding them, and running those that are missing."""

from __future__ import annotations

import hashlib
import json
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from openprompt_meta.config.loading import load_config
from openprompt_meta.config.schema import RunConfig, describe
from openprompt_meta.errors import ConfigError, OpenPromptMetaError, RunError
from openprompt_meta.files import write_atomic
from openprompt_meta.runs.folder import RunFolder
from openprompt_meta.runs.run import Run
from openprompt_meta.tables.definitions import TableRow
from openprompt_meta.tables.settings import Setting, cell_config

__all__ = [
    "Cell",
    "CellOutcome",
    "CellState",
    "Stopped",
    "add_seconds",
    "cells_of",
    "digest",
    "look_up",
    "read_outcome",
    "recorded_seconds",
    "run_missing",
]

logger = logging.getLogger(__name__)

# -- Cells: one run each, in a folder named by its configuration, so that whatever asks for the same run finds it -----

_TIMING = "timing.json"


@dataclass(frozen=True, eq=False)
class Cell:
    """A row on one data set with one number of shots and one seed.

    Attributes:
        config: what is run; ``None`` if that cannot be run.
        refusal: why not.
    """

    row: TableRow
    dataset: str
    shot: int
    seed: int
    folder: Path
    config: RunConfig | None
    refusal: str | None = None

    def __str__(self) -> str:
        return f"{self.row.label} on {self.dataset}, {self.shot}-shot, seed {self.seed}"


@dataclass(frozen=True)
class CellOutcome:
    """What a finished cell came to."""

    accuracies: tuple[float, ...]
    """Of test tasks 0, 1, …"""
    kind: str
    """``inductive`` or ``transductive``."""
    parameters: int | None
    """How many numbers are tuned."""
    seconds: float | None


def cells_of(rows: Sequence[TableRow], setting: Setting, folder: Path) -> list[Cell]:
    """Every cell that is to be run, row by row; the published rows have none."""
    return [
        _cell(row, setting, dataset, shot, seed, folder)
        for row in rows
        if not row.published
        for dataset in setting.datasets
        for shot in setting.shots
        for seed in setting.seeds
    ]


def _cell(row: TableRow, setting: Setting, dataset: str, shot: int, seed: int, folder: Path) -> Cell:
    try:
        config = cell_config(row, setting, dataset, shot, seed)
    except ConfigError as error:
        return Cell(row, dataset, shot, seed, folder, None, str(error))
    return Cell(row, dataset, shot, seed, folder / digest(config), config)


def digest(config: RunConfig) -> str:
    """Sixteen hexadecimal digits for what the configuration sets differently from the defaults.

    A key that a later version adds leaves the names of finished cells as they are.
    """
    changed = {key.path: config.value_at(key.path) for key in describe() if config.value_at(key.path) != key.default}
    content = json.dumps(changed, sort_keys=True)
    return hashlib.sha256(content.encode("utf-8")).hexdigest()[:16]


def read_outcome(cell: Cell) -> CellOutcome | None:
    """What the cell came to; ``None`` if it is not finished.

    Raises:
        RunError: what is in its folder is damaged or another run's.
    """
    run = RunFolder(cell.folder)
    if cell.config is None or not run.results_file.exists():
        return None
    try:
        same = load_config(run.config_file) == cell.config
    except OpenPromptMetaError as error:
        raise RunError(
            f"{run.config_file} cannot be read: {error}. Delete the folder, and the cell is run again."
        ) from None
    if not same:
        raise RunError(
            f"{cell.folder} holds a run with another configuration: a default has changed since. Delete the folder, "
            "or choose another --folder, and the cell is run again."
        )
    test = run.seed(cell.seed).test_file
    try:
        results = json.loads(run.results_file.read_text(encoding="utf-8"))
        (kind,) = results["test_accuracy"]
        accuracies = tuple(float(value) for value in json.loads(test.read_text(encoding="utf-8"))["accuracies"])
        parameters = results.get("parameters")
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise RunError(
            f"The results in {cell.folder} are damaged. Delete the folder, and the cell is run again."
        ) from None
    if len(accuracies) != cell.config.meta.test_tasks:
        raise RunError(
            f"{test} holds {len(accuracies)} tasks, expected {cell.config.meta.test_tasks}. Delete the folder."
        )
    return CellOutcome(accuracies, kind, parameters, recorded_seconds(cell.folder))


def recorded_seconds(folder: Path) -> float | None:
    """How long the cell took in all its sittings, if that was noted."""
    try:
        return float(json.loads((folder / _TIMING).read_text(encoding="utf-8"))["seconds"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def add_seconds(folder: Path, seconds: float) -> None:
    """Note that the cell was worked on for that long."""
    if folder.is_dir():
        total = (recorded_seconds(folder) or 0.0) + seconds
        write_atomic(folder / _TIMING, json.dumps({"seconds": round(total, 3)}) + "\n")


# -- Running what is missing of a table, one cell after the other -----------------------------------------------------


class Stopped(Exception):  # noqa: N818 - a message to the caller, not a failure
    """A signal stopped a cell; it is saved, and running the table again goes on with it."""


@dataclass(frozen=True)
class CellState:
    """What is known of a cell: its outcome, or why there is none, or neither if it was not run yet."""

    outcome: CellOutcome | None = None
    reason: str | None = None


def look_up(cells: Sequence[Cell]) -> dict[Cell, CellState]:
    """What is finished, without running anything."""
    return {cell: _state(cell) for cell in cells}


def run_missing(cells: Sequence[Cell], show_progress: bool = True) -> Mapping[Cell, CellState]:
    """Run every cell that is not finished; one that fails does not keep the others from being run.

    Raises:
        Stopped: a signal asked for it.
    """
    states: dict[Cell, CellState] = {}
    failed: dict[str, str] = {}
    for number, cell in enumerate(cells, start=1):
        state = _state(cell)
        key = str(cell.folder)
        if state == CellState() and key in failed:  # rows of the same configuration share a folder, and its failure
            state = CellState(reason=failed[key])
        elif state == CellState():
            logger.info("Cell %d of %d: %s (%s)", number, len(cells), cell, cell.folder.name)
            state = _run(cell, show_progress)
            if state.reason is not None:
                failed[key] = state.reason
        if state.reason is not None:
            logger.warning("%s: no figure: %s", cell, state.reason)
        states[cell] = state
    return states


def _state(cell: Cell) -> CellState:
    if cell.refusal is not None:
        return CellState(reason=_one_line(cell.refusal))
    try:
        return CellState(outcome=read_outcome(cell))
    except RunError as error:
        return CellState(reason=_one_line(str(error)))


def _run(cell: Cell, show_progress: bool) -> CellState:
    if cell.config is None:
        raise ValueError("a refused cell cannot be run")
    started = time.perf_counter()
    try:
        results = Run(cell.config, cell.folder, show_progress).train()
    except OpenPromptMetaError as error:
        return CellState(reason=_one_line(str(error)))
    except Exception as error:  # out of memory, a fault in a library: the other cells still have their figures
        logger.debug("%s failed", cell, exc_info=True)
        return CellState(reason=_one_line(f"{type(error).__name__}: {error}"))
    finally:
        add_seconds(cell.folder, time.perf_counter() - started)
    if results is None:
        raise Stopped(str(cell))
    return _state(cell)


def _one_line(text: str) -> str:
    return " ".join(text.split())
