"""How accuracy is spread over tasks and over classes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from openprompt_meta.report.evaluated import evaluated_tasks
from openprompt_meta.report.figure import COLOURS, PERCENT, FigureKind, canvas
from openprompt_meta.report.finished_run import FinishedRun
from openprompt_meta.report.workbench import Workbench
from openprompt_meta.runs.evaluation import summarise_tasks

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["CLASSES", "TASKS", "ClassAccuracies", "TaskAccuracies"]


@dataclass(frozen=True)
class TaskAccuracies:
    """Accuracy of every test task by seed, as shares; ``hardest`` are numbers of tasks of the first seed."""

    by_seed: dict[int, list[float]]
    hardest: list[int]
    chance: float


@dataclass(frozen=True)
class ClassAccuracies:
    """``recalls[c]`` holds, for each evaluated task with class c, the share of its texts that were recognised."""

    seed: int
    classes: list[str]
    recalls: list[list[float]]


def measure_tasks(runs: Sequence[FinishedRun], bench: Workbench) -> TaskAccuracies:
    """Read the run's test."""
    (run,) = runs
    first = run.accuracies[run.seeds[0]]
    hardest = sorted(range(len(first)), key=lambda index: (first[index], index))[:5]
    return TaskAccuracies(run.accuracies, hardest, 1 / run.config.meta.way)


def measure_classes(runs: Sequence[FinishedRun], bench: Workbench) -> ClassAccuracies:
    """Evaluate test tasks again and look at each class apart."""
    (run,) = runs
    evaluated = evaluated_tasks(run, bench)
    recalls: dict[str, list[float]] = {}
    for task in evaluated.tasks:
        predictions = task.predictions
        for number, name in enumerate(task.classes):
            own = [guess == number for guess, label in zip(predictions, task.labels, strict=True) if label == number]
            recalls.setdefault(name, []).append(sum(own) / len(own))
    names = sorted(recalls, key=lambda name: (math.fsum(recalls[name]) / len(recalls[name]), name))
    return ClassAccuracies(evaluated.seed, names, [recalls[name] for name in names])


def draw_tasks(numbers: TaskAccuracies) -> Figure:
    """A histogram over all tasks of all seeds."""
    figure, panel = canvas(6.2, 3.0)
    values = [100 * value for of_seed in numbers.by_seed.values() for value in of_seed]
    low = max(0, 5 * math.floor(min(values) / 5) - 5)
    panel.hist(values, bins=range(low, 106, 5), color=COLOURS[3], edgecolor="black", lw=0.6)
    mean = math.fsum(values) / len(values)
    panel.axvline(mean, color="black", ls="--", label=f"mean {mean:.1f} %")
    if 100 * numbers.chance >= low:
        panel.axvline(100 * numbers.chance, color="black", ls=":", label=f"chance {100 * numbers.chance:.0f} %")
    panel.set(xlabel=f"{PERCENT}, of one task", ylabel="test tasks", xlim=(low, 102))
    panel.yaxis.get_major_locator().set_params(integer=True)
    panel.legend()
    return figure


def draw_classes(numbers: ClassAccuracies) -> Figure:
    """A row for each class: every task as a dot, their spread as a box, the hardest class below."""
    figure, panel = canvas(6.6, 0.9 + 0.28 * len(numbers.classes))
    rows = [[100 * value for value in values] for values in numbers.recalls]
    boxes = panel.boxplot(
        rows,
        orientation="horizontal",
        whis=(0, 100),
        widths=0.6,
        patch_artist=True,
        showmeans=True,
        meanprops={"marker": "D", "markerfacecolor": "black", "markeredgecolor": "black", "markersize": 4},
        medianprops={"color": "black"},
    )
    for box in boxes["boxes"]:
        box.set(facecolor=COLOURS[3], alpha=0.6)
    panel.set_yticks(
        range(1, len(rows) + 1),
        [f"{name} ({len(values)})" for name, values in zip(numbers.classes, rows, strict=True)],
    )
    panel.set(xlabel="texts of the class recognised in a task, %", xlim=(-2, 102))
    return figure


def caption_tasks(numbers: TaskAccuracies) -> str:
    """Mean, and which tasks to look at."""
    pooled = summarise_tasks([value for of_seed in numbers.by_seed.values() for value in of_seed])
    return (
        f"{pooled.tasks} test tasks of unseen classes, {pooled} % on average (95 % interval). The hardest of the "
        f"first seed are tasks {', '.join(map(str, numbers.hardest))}."
    )


def caption_classes(numbers: ClassAccuracies) -> str:
    """The extremes."""
    return (
        f"Share of a class's query texts that were recognised, over the tasks that it was drawn for (their number in "
        f"brackets; seed {numbers.seed}). Boxes are quartiles, whiskers the extremes, diamonds means. Hardest: "
        f"{numbers.classes[0]}; easiest: {numbers.classes[-1]}."
    )


TASKS = FigureKind(
    "tasks",
    "Accuracy task by task",
    "How much does it depend on the task?",
    TaskAccuracies,
    measure_tasks,
    draw_tasks,
    caption_tasks,
)
CLASSES = FigureKind(
    "classes",
    "Accuracy class by class",
    "Which classes are hard?",
    ClassAccuracies,
    measure_classes,
    draw_classes,
    caption_classes,
)
