"""Cells: one run each, in a folder named by its configuration, so that whatever asks for the same run finds it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from openprompt_meta.config import RunConfig, load_config, to_mapping
from openprompt_meta.errors import ConfigError, OpenPromptMetaError, RunError
from openprompt_meta.files import write_whole
from openprompt_meta.runs.folder import RunFolder
from openprompt_meta.tables.definitions import Row
from openprompt_meta.tables.settings import Setting, cell_config

__all__ = ["Cell", "CellOutcome", "add_seconds", "cells_of", "digest", "read_outcome", "recorded_seconds"]

_TIMING = "timing.json"


@dataclass(frozen=True, eq=False)
class Cell:
    """A row on one data set with one number of shots and one seed.

    Attributes:
        config: what is run; ``None`` if that cannot be run.
        refusal: why not.
    """

    row: Row
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


def cells_of(rows: Sequence[Row], setting: Setting, folder: Path) -> list[Cell]:
    """Every cell that is to be run, row by row; the published rows have none."""
    return [
        _cell(row, setting, dataset, shot, seed, folder)
        for row in rows
        if not row.published
        for dataset in setting.datasets
        for shot in setting.shots
        for seed in setting.seeds
    ]


def _cell(row: Row, setting: Setting, dataset: str, shot: int, seed: int, folder: Path) -> Cell:
    try:
        config = cell_config(row, setting, dataset, shot, seed)
    except ConfigError as error:
        return Cell(row, dataset, shot, seed, folder, None, str(error))
    return Cell(row, dataset, shot, seed, folder / digest(config), config)


def digest(config: RunConfig) -> str:
    """Sixteen hexadecimal digits for what the configuration sets differently from the defaults.

    A key that a later version adds leaves the names of finished cells as they are.
    """
    content = json.dumps(dict(_differences(to_mapping(config), to_mapping(RunConfig()))), sort_keys=True)
    return hashlib.sha256(content.encode("utf-8")).hexdigest()[:16]


def _differences(mapping: dict[str, Any], defaults: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in mapping.items():
        if isinstance(value, dict):
            yield from _differences(value, defaults[key], f"{prefix}{key}.")
        elif value != defaults[key]:
            yield f"{prefix}{key}", value


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
        write_whole(folder / _TIMING, json.dumps({"seconds": round(total, 3)}) + "\n")
