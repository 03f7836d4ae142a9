"""Two methods on the same tasks: their differences, task by task."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from openprompt_meta.config.schema import DatasetSection
from openprompt_meta.errors import RunError
from openprompt_meta.report.figure import COLOURS, FigureKind, canvas
from openprompt_meta.report.finished_run import FinishedRun
from openprompt_meta.report.workbench import Workbench
from openprompt_meta.runs.evaluation import TasksSummary, summarise_tasks

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["PAIRED", "Difference", "PairedDifferences"]


@dataclass(frozen=True)
class Difference:
    """A run's accuracy minus the reference's on each task that both were tested on, as shares."""

    label: str
    differences: list[float]

    @property
    def summary(self) -> TasksSummary:
        """Mean and 95 % interval."""
        return summarise_tasks(self.differences)

    @property
    def wins(self) -> tuple[int, int, int]:
        """Tasks on which the run is better, equal, worse."""
        signs = [(value > 0) - (value < 0) for value in self.differences]
        return signs.count(1), signs.count(0), signs.count(-1)


@dataclass(frozen=True)
class PairedDifferences:
    """Every run against the first one."""

    reference: str
    pairs: list[Difference]


def measure(runs: Sequence[FinishedRun], bench: Workbench) -> PairedDifferences:
    """Pair the tests of the runs by seed and task."""
    first, *others = runs
    if not others:
        raise RunError("Paired differences compare a run with others: name two run folders or more.")
    pairs = []
    for run in others:
        reason = _why_not_the_same_tasks(first, run)
        if reason:
            raise RunError(f"{first.label} and {run.label} were tested on different tasks: {reason}.")
        differences = [
            theirs - ours
            for seed in first.seeds
            if seed in run.seeds
            for ours, theirs in zip(first.accuracies[seed], run.accuracies[seed], strict=False)
        ]
        pairs.append(Difference(run.label, differences))
    return PairedDifferences(first.label, pairs)


def _why_not_the_same_tasks(one: FinishedRun, two: FinishedRun) -> str:
    if _texts(one) != _texts(two):
        return "their dataset sections differ"
    for key in ("way", "query"):
        values = [getattr(run.config.meta, key) for run in (one, two)]
        if values[0] != values[1]:
            return f"meta.{key} is {values[0]} in one and {values[1]} in the other"
    if not set(one.seeds) & set(two.seeds):
        return f"their seeds are {one.seeds} and {two.seeds}"
    return ""


def _texts(run: FinishedRun) -> DatasetSection:
    """What decides which texts a task has; how long they may be and which words label them does not."""
    return run.config.dataset.model_copy(
        update={"max_seq_length": DatasetSection().max_seq_length, "label_words": None}
    )


def comparable(runs: Sequence[FinishedRun]) -> bool:
    """Whether all runs were tested on the first one's tasks."""
    return len(runs) > 1 and not any(_why_not_the_same_tasks(runs[0], run) for run in runs[1:])


def draw(numbers: PairedDifferences) -> Figure:
    """A row for each run: every task as a dot, its mean with the 95 % interval below them."""
    figure, panel = canvas(6.8, 1.3 + 0.85 * len(numbers.pairs))
    names = []
    for number, pair in enumerate(numbers.pairs):
        places: dict[float, int] = {}
        for value in sorted(pair.differences):
            above = places[value] = places.get(value, -1) + 1  # equal values beside one another, not upon
            panel.plot(
                100 * value, number + 0.05 + min(above, 16) * 0.035, "o", ms=3, color=COLOURS[3], mec="black", mew=0.3
            )
        summary = pair.summary
        panel.errorbar(
            100 * summary.mean,
            number - 0.18,
            xerr=100 * (summary.interval or 0.0),
            fmt="D",
            color="black",
            capsize=4,
            ms=5,
        )
        better, equal, worse = pair.wins
        names.append(f"{pair.label}\n{better} better, {equal} equal, {worse} worse")
    panel.axvline(0, color="black", lw=0.9)
    panel.set_yticks(range(len(names)), names)
    panel.set(xlabel=f"accuracy minus that of {numbers.reference}\non the same task, points")
    panel.set_ylim(-0.45, len(names) - 0.25)
    panel.grid(False, axis="y")
    return figure


def caption(numbers: PairedDifferences) -> str:
    """Which differences are more than chance."""
    sentences = []
    for pair in numbers.pairs:
        summary = pair.summary
        sure = summary.interval is not None and abs(summary.mean) > summary.interval
        verdict = "more than chance" if sure else "not told from chance"
        sentences.append(f"{pair.label}: {summary} points over {summary.tasks} tasks, {verdict}")
    return (
        f"Each dot is a test task, the diamond the mean with its 95 % interval over tasks. Against "
        f"{numbers.reference}: {'; '.join(sentences)}. Tasks are the sample: the interval does "
        "not cover other trainings."
    )


PAIRED = FigureKind(
    "paired",
    "Paired differences",
    "Which is better, and how sure is it?",
    PairedDifferences,
    measure,
    draw,
    caption,
    several=True,
    fits=comparable,
)
