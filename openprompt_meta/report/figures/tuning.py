"""Accuracies of runs side by side, grouped by task: with and without tuning (the paper's first figure), or others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from openprompt_meta.config.schema import RunConfig, describe
from openprompt_meta.report.figure import (
    COLOURS,
    HATCHES,
    PERCENT,
    FigureKind,
    canvas,
)
from openprompt_meta.report.finished_run import FinishedRun
from openprompt_meta.report.workbench import Workbench

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["TUNING", "Bar", "GroupedBars", "differing_keys"]

# Where a run stands, not what it does.
_ELSEWHERE = ("dataset.", "run.", "meta.way", "meta.shot", "meta.test_tasks")


@dataclass(frozen=True)
class Bar:
    """One run: ``group`` is its kind of task, ``name`` what sets it apart from the others of the group."""

    group: str
    name: str
    label: str
    mean: float
    interval: float


@dataclass(frozen=True)
class GroupedBars:
    """All runs, in their order."""

    bars: list[Bar]


def differing_keys(configs: Sequence[RunConfig]) -> list[str]:
    """Keys in which the configurations are not all equal."""
    paths = [key.path for key in describe()]
    return [path for path in paths if any(one.value_at(path) != configs[0].value_at(path) for one in configs[1:])]


def measure(runs: Sequence[FinishedRun], bench: Workbench) -> GroupedBars:
    """Read the runs' results, and name them by the keys in which runs on the same tasks differ."""
    groups: dict[str, list[FinishedRun]] = {}
    for run in runs:
        groups.setdefault(run.setting, []).append(run)
    telling = {path for own in groups.values() for path in differing_keys([run.config for run in own])}
    keys = [key.path for key in describe() if key.path in telling and not key.path.startswith(_ELSEWHERE)]
    names = {run.label: ", ".join(f"{path}={run.config.value_at(path)}" for path in keys) for run in runs}
    for own in groups.values():
        if len(own) > 1 and len({names[run.label] for run in own}) < len(own):
            names = {run.label: run.label for run in runs}
            break
    return GroupedBars(
        [
            Bar(
                run.setting, names[run.label] or "accuracy", run.label, run.accuracy.mean, run.accuracy.interval or 0.0
            )
            for run in runs
        ]
    )


def draw(numbers: GroupedBars) -> Figure:
    """A group for each kind of task, a shade and a hatch for each kind of run."""
    groups = list(dict.fromkeys(bar.group for bar in numbers.bars))
    names = list(dict.fromkeys(bar.name for bar in numbers.bars))
    figure, panel = canvas(max(5.0, 2.0 + 0.75 * len(groups) * len(names)), 3.6)
    width = 0.8 / len(names)
    shown = set()
    for bar in numbers.bars:
        which = names.index(bar.name)
        place = groups.index(bar.group) + (which - (len(names) - 1) / 2) * width
        panel.bar(
            place,
            100 * bar.mean,
            width * 0.92,
            yerr=100 * bar.interval,
            capsize=3,
            hatch=HATCHES[which % len(HATCHES)],
            color=COLOURS[(3, 1, 5, 6, 0, 4, 7, 2)[which % 8]],
            edgecolor="black",
            lw=0.6,
            label=None if bar.name in shown else bar.name,
        )
        panel.annotate(
            f"{100 * bar.mean:.1f}",
            (place, 100 * (bar.mean + bar.interval)),
            xytext=(0, 2),
            textcoords="offset points",
            ha="center",
            size=7.5,
        )
        shown.add(bar.name)
    panel.set_xticks(range(len(groups)), groups)
    panel.set(ylabel=PERCENT, ylim=(0, 108), yticks=range(0, 101, 20))
    panel.grid(False, axis="x")
    if names != ["accuracy"]:
        figure.legend(loc="outside upper center", ncols=1 if max(map(len, names)) > 30 else min(3, len(names)))
    return figure


def caption(numbers: GroupedBars) -> str:
    """The best of all."""
    best = max(numbers.bars, key=lambda bar: bar.mean)
    return (
        "Accuracy on unseen classes with 95 % intervals over tasks. Highest: "
        f"{best.label}, {100 * best.mean:.2f} ± {100 * best.interval:.2f} % ({best.group})."
    )


def table(numbers: GroupedBars) -> list[list[str]]:
    """A run a row."""
    rows = [
        [bar.label, bar.group, bar.name, f"{100 * bar.mean:.2f} ± {100 * bar.interval:.2f}"] for bar in numbers.bars
    ]
    return [["run", "task", "what sets it apart", PERCENT], *rows]


TUNING = FigureKind(
    "tuning",
    "Runs side by side",
    "Which is better on which task?",
    GroupedBars,
    measure,
    draw,
    caption,
    several=True,
    fits=lambda runs: len(runs) > 1,
    table=table,
)
