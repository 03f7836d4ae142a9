"""A dry run: which cells would be run, and about how long that takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from openprompt_meta.runs.folder import RunFolder
from openprompt_meta.tables.cells import Cell
from openprompt_meta.tables.estimates import Estimate, Estimator
from openprompt_meta.tables.execution import CellState, look_up

__all__ = ["PlannedCell", "plan", "total_seconds"]


@dataclass(frozen=True)
class PlannedCell:
    """What would be done with a cell.

    Attributes:
        action: ``reuse``, ``run``, ``go on`` (its training was interrupted), ``refuse`` or ``shared`` (another row
            runs the same).
        estimate: of the whole cell, for those that would be run.
        reason: why it would be refused.
    """

    cell: Cell
    action: str
    estimate: Estimate | None = None
    reason: str | None = None


def plan(cells: Sequence[Cell], folder: Path, measure: bool = True) -> list[PlannedCell]:
    """What would be done with each cell, nothing written.

    Args:
        cells: of the table.
        folder: where finished cells are.
        measure: time one iteration where there is no finished cell to learn from.
    """
    estimator = Estimator(folder, measure)
    planned: list[PlannedCell] = []
    seen: set[Path] = set()
    for cell, state in look_up(cells).items():
        if state.reason is not None:
            planned.append(PlannedCell(cell, "refuse", reason=state.reason))
        elif state != CellState():
            planned.append(PlannedCell(cell, "reuse"))
        elif cell.folder in seen:
            planned.append(PlannedCell(cell, "shared"))
        else:
            started = RunFolder(cell.folder).seed(cell.seed).last_checkpoint.exists()
            planned.append(PlannedCell(cell, "go on" if started else "run", estimator(cell)))
        seen.add(cell.folder)
    return planned


def total_seconds(planned: Sequence[PlannedCell]) -> float:
    """What is known of the time, added up."""
    return sum(one.estimate.seconds or 0.0 for one in planned if one.estimate is not None)
