"""Cells: one run each, in a folder named by its configuration; configuring, finding and running them."""

from __future__ import annotations

import hashlib
import json
import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from openprompt_meta.config.loading import load_config, merged, parse_overrides
from openprompt_meta.config.schema import (
    KNOWN_DATASETS,
    RunConfig,
    component_sections,
    describe,
    lacks_vocabulary_head,
)
from openprompt_meta.config.validation import config_error, config_from_mapping
from openprompt_meta.data.facts import facts_of
from openprompt_meta.errors import ConfigError, OpenPromptMetaError, RunError
from openprompt_meta.files import write_atomic
from openprompt_meta.runs.folder import RunFolder
from openprompt_meta.runs.process import StopRequest
from openprompt_meta.tables.definitions import Table, TableRow

logger = logging.getLogger(__name__)

# -- What a table is made with, and a cell's configuration by it ------------------------------------------------------

_TEXT = '{{"placeholder": "text_a"}} {{"pool"}} {words} {{"mask"}}.'
TRAINING_KEYS = (
    "iterations",
    "validate_every",
    "patience",
    "min_gain",
    "valid_tasks",
    "meta_batch",
    "outer_lr",
    "outer_decay",
    "outer_warmup",
    "outer_clip",
    "weight_decay",
    "optimizer",
    "learner",
)
"""Keys of ``meta`` that say nothing to a method which learns nothing across tasks."""
_OPTIONS = {
    "dataset.name": "--dataset",
    "plm.model_path": "--plm",
    "meta.shot": "--shots",
    "meta.test_tasks": "--tasks",
    "run.seeds": "--seeds",
    "run.folder": "--folder",
}


@dataclass(frozen=True)
class TableSettings:
    """What all rows of a table have in common.

    Attributes:
        datasets: names of data sets.
        plm: the language model, as in ``plm.model_path``.
        shots: support examples a class; a column each.
        tasks: test tasks of a cell.
        seeds: a cell each.
        root: folder of the data sets; by default where the configuration looks.
        overrides: ``key=value`` for every cell.
    """

    datasets: tuple[str, ...] = ("demo",)
    plm: str = "minilm"
    shots: tuple[int, ...] = (5,)
    tasks: int = 300
    seeds: tuple[int, ...] = (0,)
    root: str | None = None
    overrides: tuple[str, ...] = ()

    @property
    def has_head(self) -> bool:
        """Whether the model has a vocabulary head, so far as its name tells."""
        return not lacks_vocabulary_head(self.plm)


def check_overrides(table: Table, rows: Sequence[TableRow], settings: TableSettings) -> None:
    """Refuse keys that no cell could take, before anything is run.

    Raises:
        ConfigError: a key is unknown or its value wrong, an option of the command says the same, or the key is what a
            row is about.
    """
    mapping = _overrides(settings)
    problems = []
    for path in _paths(mapping):
        if path in _OPTIONS:
            problems.append(
                f"{path}: is the same for every cell of a table and set by {_OPTIONS[path]}. (command line)"
            )
        owners = [row.label for row in rows if path in row.fixed]
        if owners:
            problems.append(
                f"{path}: is what the rows of {table.name} are about ({', '.join(owners)}). (command line)"
            )
        if path == "dataset.path" and len(settings.datasets) > 1:
            problems.append(
                f"{path}: is one folder for {len(settings.datasets)} data sets; use --root. (command line)"
            )
    if problems:
        raise config_error(f"The table {table.name}", problems)
    for dataset in settings.datasets:
        shot, seed = settings.shots[0], settings.seeds[0]
        config_from_mapping(merged(_base(settings, dataset, shot, seed), mapping), source=f"The table {table.name}")


def cell_config(row: TableRow, settings: TableSettings, dataset: str, shot: int, seed: int) -> RunConfig:
    """The configuration of one cell; later wins: the paper's, the row's defaults, the overrides, the row itself.

    What the row does not use is left at its default, so that it does not tell two equal cells apart.

    Raises:
        ConfigError: this row cannot be run so, e.g. hand-crafted words on a model without a vocabulary head.
    """
    mapping = _base(settings, dataset, shot, seed)
    defaults = {**row.defaults, **(row.defaults_with_head if settings.has_head else {})}
    for layer in (_nested(defaults), _overrides(settings), _nested(row.fixed)):
        mapping = merged(mapping, layer)
    return _without_idle_keys(config_from_mapping(mapping, source=row.label))


def _without_idle_keys(config: RunConfig) -> RunConfig:
    used = config.sections_in_use
    update: dict[str, Any] = {name: kind() for name, kind in component_sections().items() if name not in used}
    if not config.method_declaration.trains_across_tasks:
        plain = RunConfig().meta
        update["meta"] = config.meta.model_copy(update={name: getattr(plain, name) for name in TRAINING_KEYS})
    return config.model_copy(update=update)


def _base(settings: TableSettings, dataset: str, shot: int, seed: int) -> dict[str, Any]:
    is_topics = dataset in KNOWN_DATASETS and facts_of(dataset).kind != "intents"
    return {
        "plm": {"model_path": settings.plm},
        "dataset": {
            "name": dataset,
            "path": None if settings.root is None or dataset == "demo" else str(Path(settings.root) / dataset),
        },
        "prompt_pool_template": {"text": _TEXT.format(words="Topic is" if is_topics else "Topic is about")},
        "meta": {"shot": shot, "test_tasks": settings.tasks},
        "run": {"seeds": [seed]},
    }


def _overrides(settings: TableSettings) -> dict[str, Any]:
    file, problems = parse_overrides(settings.overrides)
    unsupported = [key for key in ("inherit", "preset") if key in file.content]
    problems += [f"{key}: stands in a file or on the command line of a run, not of a table." for key in unsupported]
    if problems:
        raise config_error("The command line", problems)
    content: dict[str, Any] = file.content
    return content


def _paths(mapping: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    for key, value in mapping.items():
        if isinstance(value, dict):
            yield from _paths(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}"


def _nested(values: Mapping[str, Any]) -> dict[str, Any]:
    """A row's dotted keys as sections."""
    nested: dict[str, Any] = {}
    for path, value in values.items():
        section, _, key = path.rpartition(".")
        (nested.setdefault(section, {}) if section else nested)[key] = value
    return nested


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


def cells_folder(folder: Path) -> Path:
    """Where the cells of all tables of a folder are: tables share what they have in common."""
    return folder / "cells"


def cells_of(rows: Sequence[TableRow], settings: TableSettings, folder: Path) -> list[Cell]:
    """Every cell, row by row."""
    return [
        _cell(row, settings, dataset, shot, seed, folder)
        for row in rows
        for dataset in settings.datasets
        for shot in settings.shots
        for seed in settings.seeds
    ]


def _cell(row: TableRow, settings: TableSettings, dataset: str, shot: int, seed: int, folder: Path) -> Cell:
    try:
        config = cell_config(row, settings, dataset, shot, seed)
    except ConfigError as error:
        return Cell(row, dataset, shot, seed, folder, None, str(error))
    return Cell(row, dataset, shot, seed, folder / config_digest(config), config)


def config_digest(config: RunConfig) -> str:
    """Sixteen hexadecimal digits for what the configuration sets differently from the defaults.

    A key that a later version adds leaves the names of finished cells as they are.
    """
    changed = {key.path: config.value_at(key.path) for key in describe() if config.value_at(key.path) != key.default}
    content = json.dumps(changed, sort_keys=True)
    return hashlib.sha256(content.encode("utf-8")).hexdigest()[:16]


def _outcome(cell: Cell) -> CellOutcome | None:
    """What the cell came to; ``None`` if it is not finished; a ``RunError`` on what is damaged or another run's."""
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


def _add_seconds(folder: Path, seconds: float) -> None:
    if folder.is_dir():
        total = (recorded_seconds(folder) or 0.0) + seconds
        write_atomic(folder / _TIMING, json.dumps({"seconds": round(total, 3)}) + "\n")


# -- Running what is missing of a table, one cell after the other -----------------------------------------------------


class Stopped(Exception):  # noqa: N818 - a message to the caller, not a failure
    """A signal came; the message says in which cell."""


@dataclass(frozen=True)
class CellState:
    """What is known of a cell: its outcome, or why there is none, or neither if it was not run yet."""

    outcome: CellOutcome | None = None
    reason: str | None = None


def look_up(cells: Sequence[Cell]) -> dict[Cell, CellState]:
    """What is finished, without running anything."""
    return {cell: _state(cell) for cell in cells}


def run_missing(cells: Sequence[Cell], stop: StopRequest, show_progress: bool = True) -> Mapping[Cell, CellState]:
    """Run every cell that is not finished; one that fails does not keep the others from being run.

    Raises:
        Stopped: ``stop`` asked for it.
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
            state = _run(cell, stop, show_progress)
            if state.reason is not None:
                failed[key] = state.reason
        if state.reason is not None:
            logger.warning("%s: no figure: %s", cell, state.reason)
        states[cell] = state
        if stop.asked():
            raise Stopped(str(cell))
    return states


def _state(cell: Cell) -> CellState:
    if cell.refusal is not None:
        return CellState(reason=_one_line(cell.refusal))
    try:
        return CellState(outcome=_outcome(cell))
    except RunError as error:
        return CellState(reason=_one_line(str(error)))


def _run(cell: Cell, stop: StopRequest, show_progress: bool) -> CellState:
    if cell.config is None:
        raise ValueError("a refused cell cannot be run")
    from openprompt_meta.runs.run import Run  # here: what is finished or planned can be told without torch

    started = time.perf_counter()
    try:
        results = Run(cell.config, cell.folder, show_progress).train(stop)
    except OpenPromptMetaError as error:
        return CellState(reason=_one_line(str(error)))
    except Exception as error:  # out of memory, a fault in a library: the other cells still have their figures
        logger.debug("%s failed", cell, exc_info=True)
        return CellState(reason=_one_line(f"{type(error).__name__}: {error}"))
    finally:
        _add_seconds(cell.folder, time.perf_counter() - started)
    if results is None:
        raise Stopped(str(cell))
    return _state(cell)


def _one_line(text: str) -> str:
    return " ".join(text.split())
