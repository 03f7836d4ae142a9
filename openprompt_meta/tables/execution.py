"""Running what is missing of a table, one cell after the other."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from openprompt_meta.errors import OpenPromptMetaError, RunError
from openprompt_meta.runs import Run
from openprompt_meta.tables.cells import Cell, CellOutcome, add_seconds, read_outcome

__all__ = ["CellState", "Stopped", "look_up", "run_missing"]

logger = logging.getLogger(__name__)


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
