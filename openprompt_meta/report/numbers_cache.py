"""The numbers behind figures, computed once and kept as JSON beside them; and how much is computed."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, ConfigDict

from openprompt_meta.errors import RunError
from openprompt_meta.files import write_atomic
from openprompt_meta.progress import ProgressBar, progress_bar
from openprompt_meta.report.finished_run import FinishedRun

FORMAT = 1
Numbers = TypeVar("Numbers")


@dataclass(frozen=True)
class ReportOptions:
    """How much of a run is computed again for figures.

    Attributes:
        tasks: at most so many tasks for each figure that evaluates or adapts.
        shots: support examples a class, for accuracy against shots; those that the data have too few texts for are
            left out.
        task: which test task the label map shows.
    """

    tasks: int = 50
    shots: tuple[int, ...] = (1, 2, 3, 5, 10, 20)
    task: int = 0

    def __post_init__(self) -> None:
        if self.tasks < 1 or self.task < 0 or not self.shots or min(self.shots) < 1:
            raise RunError(
                f"tasks = {self.tasks}, shots = {list(self.shots)}, task = {self.task}: at least one task and one "
                "shot are needed, and tasks are numbered from 0."
            )


class _NumbersFile(BaseModel, Generic[Numbers]):
    """The content of a file; numbers that another version of the figure wrote are refused."""

    model_config = ConfigDict(extra="forbid", strict=True)

    made_from: dict[str, Any]
    numbers: Numbers


class NumbersCache:
    """Gives numbers from the folder if they were computed there before from the same runs, else computes them.

    Args:
        folder: where figures and their numbers go.
        options: how much to compute.
        show_progress: draw progress bars on stderr.
    """

    def __init__(self, folder: Path, options: ReportOptions | None = None, show_progress: bool = True) -> None:
        self.folder = folder
        self.options = options or ReportOptions()
        self.show_progress = show_progress

    def get_or_compute(
        self, name: str, kind: type[Numbers], runs: Sequence[FinishedRun], compute: Callable[[], Numbers]
    ) -> Numbers:
        """The numbers of that name.

        Args:
            name: of the file, without its suffix.
            kind: a dataclass of plain values, lists, dictionaries and such dataclasses.
            runs: what they are computed from.
            compute: does it.
        """
        made_from = {
            "format": FORMAT,
            "runs": {run.label: run.fingerprint for run in runs},
            "effort": {**asdict(self.options), "shots": list(self.options.shots)},
        }
        file = self.folder / f"{name}.json"
        with suppress(OSError, ValueError):
            kept = _NumbersFile[kind].model_validate_json(file.read_bytes())  # type: ignore[valid-type]
            if kept.made_from == made_from:
                found: Numbers = kept.numbers
                return found
        computed = compute()
        self.folder.mkdir(parents=True, exist_ok=True)
        content = {"made_from": made_from, "numbers": asdict(computed)}  # type: ignore[call-overload]
        write_atomic(file, json.dumps(content) + "\n")
        return computed

    def progress_bar(self, total: int, title: str, unit: str = "task") -> ProgressBar:
        """A progress bar, if they are to be drawn."""
        return progress_bar(total=total, title=title, unit=unit, leave=False, show=self.show_progress)
