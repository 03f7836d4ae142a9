"""Whether predicted probabilities can be believed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from openprompt_meta.report.evaluated import evaluated_tasks
from openprompt_meta.report.figure import COLOURS, PERCENT, FigureKind, canvas
from openprompt_meta.report.finished_run import FinishedRun
from openprompt_meta.report.workbench import Workbench

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["CALIBRATION", "Calibration", "calibrate"]

BINS = 10


@dataclass(frozen=True)
class Calibration:
    """Texts binned by the probability of the predicted class, equal widths from 0 to 1.

    Bin b holds ``counts[b]`` texts of mean probability ``confidences[b]`` and accuracy ``accuracies[b]``, both 0 if it
    is empty.
    """

    seed: int
    counts: list[int]
    confidences: list[float]
    accuracies: list[float]
    error: float
    """Expected calibration error: mean over texts of |accuracy - confidence| of their bin."""


def calibrate(confidences: Sequence[float], hits: Sequence[bool], seed: int = 0, bins: int = BINS) -> Calibration:
    """Bin predictions by their confidence; a bin owns its upper edge."""
    members: list[list[int]] = [[] for _ in range(bins)]
    for text, confidence in enumerate(confidences):
        members[min(max(math.ceil(confidence * bins) - 1, 0), bins - 1)].append(text)
    means = [math.fsum(confidences[i] for i in own) / len(own) if own else 0.0 for own in members]
    shares = [sum(hits[i] for i in own) / len(own) if own else 0.0 for own in members]
    gaps = [len(own) * abs(share - mean) for own, share, mean in zip(members, shares, means, strict=True)]
    return Calibration(seed, [len(own) for own in members], means, shares, math.fsum(gaps) / len(confidences))


def measure(runs: Sequence[FinishedRun], bench: Workbench) -> Calibration:
    """Compare probability and outcome over evaluated test tasks."""
    (run,) = runs
    evaluated = evaluated_tasks(run, bench)
    confidences = [max(row) for task in evaluated.tasks for row in task.probabilities]
    hits = [
        guess == label for task in evaluated.tasks for guess, label in zip(task.predictions, task.labels, strict=True)
    ]
    return calibrate(confidences, hits, evaluated.seed)


def draw(numbers: Calibration) -> Figure:
    """Accuracy against confidence above, how many texts below."""
    figure, (above, below) = canvas(4.6, 4.6, 2, 1, sharex=True, height_ratios=(3, 1))
    filled = [b for b, count in enumerate(numbers.counts) if count]
    above.plot([0, 100], [0, 100], ":", color="black", label="as good as it says")
    above.plot(
        [100 * numbers.confidences[b] for b in filled],
        [100 * numbers.accuracies[b] for b in filled],
        "-o",
        color=COLOURS[0],
        label="this run",
    )
    above.set(ylabel=PERCENT, ylim=(-3, 103), title=f"Expected calibration error {100 * numbers.error:.1f} points")
    above.legend(loc="upper left")
    width = 100 / len(numbers.counts)
    below.bar(
        [width * (b + 0.5) for b in range(len(numbers.counts))],
        numbers.counts,
        width,
        color=COLOURS[3],
        edgecolor="black",
        lw=0.6,
    )
    below.set(xlabel="probability of the predicted class, %", ylabel="texts", xlim=(0, 102))
    return figure


def caption(numbers: Calibration) -> str:
    """Too sure, or not sure enough."""
    total = sum(numbers.counts)
    sure = math.fsum(c * n for c, n in zip(numbers.confidences, numbers.counts, strict=True)) / total
    right = math.fsum(a * n for a, n in zip(numbers.accuracies, numbers.counts, strict=True)) / total
    verdict = "too sure of itself" if sure > right else "less sure than it could be"
    return (
        f"{total} texts (seed {numbers.seed}). On average it says {100 * sure:.1f} % and is right in "
        f"{100 * right:.1f} %: {verdict}. Expected calibration error {100 * numbers.error:.1f} points, "
        f"in {len(numbers.counts)} bins."
    )


CALIBRATION = FigureKind(
    "calibration", "Calibration", "Can its probabilities be believed?", Calibration, measure, draw, caption
)
