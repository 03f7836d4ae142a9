"""Which class is taken for which."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from openprompt_meta.report.evaluated import evaluated_tasks
from openprompt_meta.report.figure import FigureKind, canvas, heat_map
from openprompt_meta.report.finished_run import FinishedRun
from openprompt_meta.report.workbench import Workbench

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["CONFUSION", "Confusion"]


@dataclass(frozen=True)
class Confusion:
    """``counts[t][p]``: texts of class t that were taken for p; ``chances[t][p]``: those for which p was on offer.

    A task offers a few of the classes only, so counts alone would say how often two classes met.
    """

    seed: int
    classes: list[str]
    counts: list[list[int]]
    chances: list[list[int]]

    @property
    def rates(self) -> list[list[float]]:
        """Share of texts of class t, in tasks that offered p, that were taken for p; 0 where the two never met."""
        return [
            [count / chance if chance else 0.0 for count, chance in zip(row, possible, strict=True)]
            for row, possible in zip(self.counts, self.chances, strict=True)
        ]

    @property
    def worst(self) -> list[tuple[float, str, str]]:
        """The confusions, most frequent first: rate, class, what it was taken for."""
        rates = self.rates
        pairs = [
            (rates[t][p], true, predicted)
            for t, true in enumerate(self.classes)
            for p, predicted in enumerate(self.classes)
            if t != p and rates[t][p] > 0
        ]
        return sorted(pairs, key=lambda pair: (-pair[0], pair[1], pair[2]))


def measure(runs: Sequence[FinishedRun], bench: Workbench) -> Confusion:
    """Count over evaluated test tasks."""
    (run,) = runs
    evaluated = evaluated_tasks(run, bench)
    classes = sorted({name for task in evaluated.tasks for name in task.classes})
    position = {name: number for number, name in enumerate(classes)}
    counts = [[0] * len(classes) for _ in classes]
    chances = [[0] * len(classes) for _ in classes]
    for task in evaluated.tasks:
        offered = [position[name] for name in task.classes]
        for label, guess in zip(task.labels, task.predictions, strict=True):
            counts[offered[label]][offered[guess]] += 1
            for other in offered:
                chances[offered[label]][other] += 1
    return Confusion(evaluated.seed, classes, counts, chances)


def draw(numbers: Confusion) -> Figure:
    """True classes down, predicted ones across."""
    many = len(numbers.classes)
    figure, panel = canvas(2.8 + 0.42 * many, max(3.0, 1.9 + 0.34 * many))
    percents = [[100 * rate for rate in row] for row in numbers.rates]
    digits = 0 if many <= 20 else None
    heat_map(panel, percents, numbers.classes, numbers.classes, "share of texts, %", digits, vmin=0)
    panel.tick_params(axis="x", rotation=90)
    panel.set(xlabel="taken for", ylabel="true class")
    return figure


def caption(numbers: Confusion) -> str:
    """The most frequent confusions."""
    worst = "; ".join(f"{true} for {taken} ({100 * rate:.0f} %)" for rate, true, taken in numbers.worst[:3])
    return (
        "Of the texts of a class, in tasks that offered the other class too, the share that was taken for it (seed "
        f"{numbers.seed}). " + (f"Most often taken: {worst}." if worst else "There was no confusion at all.")
    )


CONFUSION = FigureKind("confusion", "Confusions", "What is taken for what?", Confusion, measure, draw, caption)
