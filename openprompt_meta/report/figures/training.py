"""Training and validation curves with the checkpoint that was chosen."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from openprompt_meta.report.figure import (
    COLOURS,
    LINES,
    PERCENT,
    FigureKind,
    canvas,
)
from openprompt_meta.report.finished_run import FinishedRun
from openprompt_meta.report.workbench import Workbench

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["TRAINING", "SeedCurve", "TrainingCurves", "moving_mean"]


@dataclass(frozen=True)
class SeedCurve:
    """One seed's training; accuracies as shares."""

    seed: int
    iterations: list[int]
    losses: list[float]
    accuracies: list[float]
    validated: list[int]
    validation_accuracies: list[float]
    validation_intervals: list[float]
    validation_losses: list[float]
    best_iteration: int


@dataclass(frozen=True)
class TrainingCurves:
    """All seeds of a run."""

    curves: list[SeedCurve]


def measure(runs: Sequence[FinishedRun], bench: Workbench) -> TrainingCurves:
    """Read the run's metrics."""
    (run,) = runs
    return TrainingCurves([_of_seed(run, seed) for seed in run.seeds])


def _of_seed(run: FinishedRun, seed: int) -> SeedCurve:
    steps, validations = run.metrics(seed, "step"), run.metrics(seed, "validation")
    return SeedCurve(
        seed=seed,
        iterations=[record["iteration"] for record in steps],
        losses=[record["loss"] for record in steps],
        accuracies=[record["accuracy"] for record in steps],
        validated=[record["iteration"] for record in validations],
        validation_accuracies=[record["accuracy"] for record in validations],
        validation_intervals=[record["interval"] or 0.0 for record in validations],
        validation_losses=[record["loss"] for record in validations],
        best_iteration=run.best_iteration(seed),
    )


def moving_mean(values: Sequence[float], window: int) -> list[float]:
    """Mean of each value and up to ``window - 1`` before it."""
    means = []
    for end in range(1, len(values) + 1):
        last = values[max(0, end - window) : end]
        means.append(math.fsum(last) / len(last))
    return means


def draw(numbers: TrainingCurves) -> Figure:
    """Loss on the left, accuracy on the right."""
    figure, (left, right) = canvas(8.6, 3.4, 1, 2)
    alone = len(numbers.curves) == 1
    for number, curve in enumerate(numbers.curves):
        line = LINES[number % len(LINES)]
        dashed = "--" if alone else line  # the shape tells seeds apart, or, of one seed, training and validation
        of_seed = "" if alone else f", seed {curve.seed}"
        window = max(1, len(curve.iterations) // 10)
        if alone:
            left.plot(curve.iterations, curve.losses, ".", ms=3, color="#bbbbbb", label="each training task")
            right.plot(
                curve.iterations, [100 * value for value in curve.accuracies], ".", ms=3, color="#bbbbbb", label=None
            )
        training = f"training, mean of {window}{of_seed}" if window > 1 else f"training{of_seed}"
        left.plot(curve.iterations, moving_mean(curve.losses, window), line, color=COLOURS[0], label=training)
        left.plot(
            curve.validated,
            curve.validation_losses,
            dashed,
            marker="s",
            ms=4,
            color=COLOURS[4],
            label=f"validation{of_seed}",
        )
        right.plot(
            curve.iterations, [100 * value for value in moving_mean(curve.accuracies, window)], line, color=COLOURS[0]
        )
        right.errorbar(
            curve.validated,
            [100 * value for value in curve.validation_accuracies],
            [100 * value for value in curve.validation_intervals],
            linestyle=dashed,
            marker="s",
            ms=4,
            capsize=3,
            color=COLOURS[4],
        )
        if curve.best_iteration in curve.validated:
            best = curve.validation_accuracies[curve.validated.index(curve.best_iteration)]
            right.plot(
                [curve.best_iteration],
                [100 * best],
                "*",
                ms=17,
                mew=1.3,
                zorder=9,
                mfc="none",
                mec="black",
                label="chosen checkpoint" if number == 0 else None,
            )
    left.set(xlabel="meta-iteration", ylabel="query loss, nats", title="Loss after adaptation")
    right.set(xlabel="meta-iteration", ylabel=PERCENT, title="Accuracy after adaptation", ylim=(0, 104))
    highest = max(max(curve.losses + curve.validation_losses, default=1.0) for curve in numbers.curves)
    left.set_ylim(0, 1.08 * highest)
    left.legend()
    right.legend()
    return figure


def caption(numbers: TrainingCurves) -> str:
    """What was chosen."""
    chosen = ", ".join(f"{curve.best_iteration} (seed {curve.seed})" for curve in numbers.curves)
    return (
        "Training tasks are of training classes, validation tasks of validation classes; bars are 95 % intervals over "
        f"tasks. The checkpoint that was tested is that of iteration {chosen}, the best in validation."
    )


TRAINING = FigureKind(
    "training",
    "Training and validation",
    "Did it learn, and when was it best?",
    TrainingCurves,
    measure,
    draw,
    caption,
)
