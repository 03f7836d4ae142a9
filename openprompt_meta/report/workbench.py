"""How much to compute again for a figure, and the numbers that were, kept as JSON beside the figures."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, fields, is_dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from tqdm.auto import tqdm

from openprompt_meta.errors import RunError
from openprompt_meta.files import write_atomic
from openprompt_meta.report.finished_run import FinishedRun

__all__ = ["Effort", "Workbench", "from_plain"]

FORMAT = 1
Numbers = TypeVar("Numbers")


@dataclass(frozen=True)
class Effort:
    """How much is computed again.

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


class Workbench:
    """Gives numbers from the folder if they were computed there before from the same runs, else computes them.

    Args:
        folder: where figures and their numbers go.
        effort: how much to compute.
        show_progress: draw progress bars on stderr.
    """

    def __init__(self, folder: Path, effort: Effort | None = None, show_progress: bool = True) -> None:
        self.folder = folder
        self.effort = effort or Effort()
        self.show_progress = show_progress

    def numbers(
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
            "effort": {**asdict(self.effort), "shots": list(self.effort.shots)},
        }
        file = self.folder / f"{name}.json"
        kept = _read(file)
        if kept is not None and kept.get("made_from") == made_from:
            with suppress(KeyError, TypeError, ValueError):  # another version of the figure wrote it
                found: Numbers = from_plain(kind, kept["numbers"])
                return found
        computed = compute()
        self.folder.mkdir(parents=True, exist_ok=True)
        content = {"made_from": made_from, "numbers": asdict(computed)}  # type: ignore[call-overload]
        write_atomic(file, json.dumps(content) + "\n")
        return computed

    def bar(self, total: int, title: str, unit: str = "task") -> Any:
        """A progress bar."""
        return tqdm(total=total, desc=title, unit=unit, leave=False, disable=not self.show_progress)


def from_plain(hint: Any, value: Any) -> Any:
    """What :func:`dataclasses.asdict` and JSON made of a dataclass, as that dataclass again.

    Raises:
        ValueError: it is something else.
    """
    if is_dataclass(hint) and isinstance(hint, type):
        hints = get_type_hints(hint)
        names = [field.name for field in fields(hint)]
        if not isinstance(value, dict) or sorted(value) != sorted(names):
            raise ValueError(f"{value!r} is no {hint.__name__}.")
        return hint(**{name: from_plain(hints[name], value[name]) for name in names})
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        (other,) = (argument for argument in arguments if argument is not NoneType)
        return None if value is None else from_plain(other, value)
    if origin is list and isinstance(value, list):
        return [from_plain(arguments[0], one) for one in value]
    if origin is dict and isinstance(value, dict):
        return {arguments[0](key): from_plain(arguments[1], one) for key, one in value.items()}
    if hint is float and type(value) in (int, float):
        return float(value)
    if hint in (int, str, bool) and type(value) is hint:
        return value
    raise ValueError(f"{value!r} is not of type {hint}.")


def _read(file: Path) -> dict[str, Any] | None:
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) else None
