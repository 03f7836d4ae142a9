"""Accuracy against the number of examples a class."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from openprompt_meta.errors import RunError
from openprompt_meta.report.figure import (
    COLOURS,
    LINES,
    MARKERS,
    PERCENT,
    FigureKind,
    canvas,
)
from openprompt_meta.report.finished_run import FinishedRun
from openprompt_meta.report.workbench import Workbench
from openprompt_meta.runs.evaluation import evaluate_tasks, summarise_tasks

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["SHOTS", "AgainstShots", "ShotsCurve"]


@dataclass(frozen=True)
class ShotsCurve:
    """One run: ``accuracies[s][t]`` of task t with ``shots[s]`` examples a class."""

    label: str
    trained_shots: int
    shots: list[int]
    accuracies: list[list[float]]


@dataclass(frozen=True)
class AgainstShots:
    """All runs."""

    curves: list[ShotsCurve]


def measure(runs: Sequence[FinishedRun], bench: Workbench) -> AgainstShots:
    """Evaluate the same classes and queries with fewer and more examples, as many as the smallest class allows."""
    return AgainstShots([_of_run(run, bench) for run in runs])


def _of_run(run: FinishedRun, bench: Workbench) -> ShotsCurve:
    seed, meta = run.seeds[0], run.config.meta
    # Every split's classes have to be large enough, or the method cannot be put together.
    room = min(size for split in run.dataset for size in split.sizes.values()) - meta.query
    shots = sorted({shot for shot in (*bench.effort.shots, meta.shot) if shot <= room})
    if not shots:
        raise RunError(f"{run.label}: no class has room for any of {list(bench.effort.shots)} shots.")
    count = min(bench.effort.tasks, len(run.accuracies[seed]))
    accuracies = []
    with bench.bar(count * len(shots), "accuracy against shots") as bar:
        for shot in shots:
            method = run.method(seed, shots=shot)
            outcomes = evaluate_tasks(method.learner, method.sources["test"], count, meta.inner_steps_eval, bar)
            accuracies.append([outcome.accuracy for outcome in outcomes])
    return ShotsCurve(run.label, meta.shot, shots, accuracies)


def draw(numbers: AgainstShots) -> Figure:
    """A curve for each run with 95 % intervals over tasks, the trained number of shots filled."""
    figure, panel = canvas(5.6, 3.4)
    every = sorted({shot for curve in numbers.curves for shot in curve.shots})
    for number, curve in enumerate(numbers.curves):
        summaries = [summarise_tasks(values) for values in curve.accuracies]
        colour, marker = COLOURS[number % len(COLOURS)], MARKERS[number % len(MARKERS)]
        means = [100 * one.mean for one in summaries]
        panel.errorbar(
            curve.shots,
            means,
            [100 * (one.interval or 0.0) for one in summaries],
            color=colour,
            marker=marker,
            mfc="white",
            linestyle=LINES[number % len(LINES)],
            capsize=3,
            label=curve.label,
        )
        panel.plot(
            [curve.trained_shots], [means[curve.shots.index(curve.trained_shots)]], marker, color=colour, zorder=5
        )
    panel.set_xscale("log")
    panel.set_xticks(every, [str(shot) for shot in every])
    panel.minorticks_off()
    panel.set(xlabel="support examples a class (log scale)", ylabel=PERCENT)
    panel.legend(loc="lower right")
    return figure


def caption(numbers: AgainstShots) -> str:
    """The ends of each curve."""
    ends = []
    for curve in numbers.curves:
        first, last = (summarise_tasks(curve.accuracies[end]) for end in (0, -1))
        ends.append(f"{curve.label}: {first} % with {curve.shots[0]}, {last} % with {curve.shots[-1]}")
    tasks = len(numbers.curves[0].accuracies[0])
    return (
        f"The first {tasks} test tasks with the same classes and queries and more and more examples; 95 % intervals "
        f"over tasks. The pool was trained with the filled point's number. {'; '.join(ends)}."
    )


SHOTS = FigureKind(
    "shots",
    "Accuracy against shots",
    "How many examples a class are enough?",
    AgainstShots,
    measure,
    draw,
    caption,
    several=True,
)
