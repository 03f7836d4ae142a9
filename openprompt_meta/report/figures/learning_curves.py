"""Learning across tasks (training and validation) and inside a task (the inner loop), step by step."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from openprompt_meta.report.figure import FigureKind, FigureNumbers
from openprompt_meta.report.finished_run import FinishedRun, learner_of, query_accuracy
from openprompt_meta.report.numbers_cache import NumbersCache
from openprompt_meta.report.plotting import COLOURS, PERCENT, canvas, line_style, percents

if TYPE_CHECKING:
    from matplotlib.figure import Figure


# -- training and validation curves with the checkpoint that was chosen -----------------------------------------------


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
class TrainingCurves(FigureNumbers):
    """All seeds of a run."""

    curves: list[SeedCurve]

    def draw(self) -> Figure:
        """Loss on the left, accuracy on the right."""
        figure, (left, right) = canvas(8.6, 3.4, 1, 2)
        alone = len(self.curves) == 1
        for number, curve in enumerate(self.curves):
            line = line_style(number)
            of_seed = "" if alone else f", seed {curve.seed}"
            window = max(1, len(curve.iterations) // 10)
            if alone:
                dots = {"marker": ".", "ls": "", "ms": 3, "color": "#bbbbbb"}
                left.plot(curve.iterations, curve.losses, label="each training task", **dots)
                right.plot(curve.iterations, percents(curve.accuracies), **dots)
            training = f"training, mean of {window}{of_seed}" if window > 1 else f"training{of_seed}"
            left.plot(curve.iterations, moving_mean(curve.losses, window), line, color=COLOURS[0], label=training)
            right.plot(curve.iterations, percents(moving_mean(curve.accuracies, window)), line, color=COLOURS[0])
            # The line tells seeds apart, or, of one seed, training and validation.
            validation = {"ls": "--" if alone else line, "marker": "s", "ms": 4, "color": COLOURS[4]}
            left.plot(curve.validated, curve.validation_losses, label=f"validation{of_seed}", **validation)
            accuracies, halves = percents(curve.validation_accuracies), percents(curve.validation_intervals)
            right.errorbar(curve.validated, accuracies, halves, capsize=3, **validation)
            if curve.best_iteration in curve.validated:
                best = accuracies[curve.validated.index(curve.best_iteration)]
                star = {"ms": 17, "mew": 1.3, "mfc": "none", "mec": "black", "zorder": 9}
                right.plot([curve.best_iteration], [best], "*", label=None if number else "chosen checkpoint", **star)
        left.set(xlabel="meta-iteration", ylabel="query loss, nats", title="Loss after adaptation")
        right.set(xlabel="meta-iteration", ylabel=PERCENT, title="Accuracy after adaptation", ylim=(0, 104))
        highest = max(max(curve.losses + curve.validation_losses, default=1.0) for curve in self.curves)
        left.set_ylim(0, 1.08 * highest)
        left.legend()
        right.legend()
        return figure

    def caption(self) -> str:
        chosen = ", ".join(f"{curve.best_iteration} (seed {curve.seed})" for curve in self.curves)
        return (
            "Training tasks are of training classes, validation tasks of validation classes; bars are 95 % intervals "
            f"over tasks. The checkpoint that was tested is that of iteration {chosen}, the best in validation."
        )


def _measure_training(runs: Sequence[FinishedRun], cache: NumbersCache) -> TrainingCurves:
    (run,) = runs
    return TrainingCurves([_seed_curve(run, seed) for seed in run.seeds])


def _seed_curve(run: FinishedRun, seed: int) -> SeedCurve:
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
    lasts = [values[max(0, end - window) : end] for end in range(1, len(values) + 1)]
    return [math.fsum(last) / len(last) for last in lasts]


TRAINING = FigureKind(
    "training", "Training and validation", "Did it learn, and when was it best?", TrainingCurves, _measure_training
)

# -- what adaptation does to a task -----------------------------------------------------------------------------------

LEAST_STEPS = 5
MOST_TASKS = 20


@dataclass(frozen=True)
class InnerLoopCurves(FigureNumbers):
    """``support_losses[t][j]``, ``query_losses[t][j]`` and ``accuracies[t][j]`` of task t after j inner steps."""

    seed: int
    configured_steps: int
    support_losses: list[list[float]]
    query_losses: list[list[float]]
    accuracies: list[list[float]]

    def draw(self) -> Figure:
        """Losses on the left, accuracy on the right: the mean over tasks in a band of the middle four fifths."""
        figure, (left, right) = canvas(8.6, 3.2, 1, 2)
        _band(left, self.support_losses, COLOURS[0], "o", "-", "support")
        _band(left, self.query_losses, COLOURS[4], "s", "--", "query")
        _band(right, [percents(row) for row in self.accuracies], COLOURS[4], "s", "--", "query")
        for panel in (left, right):
            panel.axvline(self.configured_steps, color="black", lw=0.8, ls=":", label="steps that the run takes")
            panel.set_xlabel("inner steps taken")
            panel.set_xticks(range(len(self.accuracies[0])))
            panel.legend(loc="best")
        left.set(ylabel="loss, nats", title="Loss of a test task", ylim=(0, None))
        right.set(ylabel=PERCENT, title="Accuracy of a test task")
        return figure

    def caption(self) -> str:
        accuracies = np.array(self.accuracies).mean(axis=0)
        return (
            f"Mean over {len(self.accuracies)} test tasks (seed {self.seed}); bands hold the middle 80 % of them. "
            f"Without a step accuracy is {100 * accuracies[0]:.1f} %, after the run's {self.configured_steps} it is "
            f"{100 * accuracies[self.configured_steps]:.1f} %."
        )


def _measure_inner_loop(runs: Sequence[FinishedRun], cache: NumbersCache) -> InnerLoopCurves:
    """Adapt to test tasks and evaluate them after every step, also a few more than the run takes."""
    (run,) = runs
    seed = run.seeds[0]
    method = run.method(seed)
    configured = method.eval_steps
    steps = max(configured, LEAST_STEPS)
    count = min(cache.options.tasks, MOST_TASKS, len(run.accuracies[seed]))
    learner, source = learner_of(method), method.sources["test"]
    curves = InnerLoopCurves(seed, configured, [], [], [])
    with cache.progress_bar(count * (steps + 1), "inner loop", "step") as bar:
        for group in learner.inner_loop.in_groups(source[index] for index in range(count)):
            supports: list[Sequence[float]] = []  # [steps + 1][tasks of the group]
            queries: list[Sequence[float]] = []
            accuracies: list[Sequence[float]] = []
            with learner.adapting(group) as adaptation:
                for step in range(steps + 1):
                    predicted, losses = adaptation.evaluate()
                    supports.append(adaptation.step() if step < steps else adaptation.support_losses())
                    queries.append(losses)
                    accuracies.append([query_accuracy(*pair) for pair in zip(predicted, group, strict=True)])
                    bar.update(len(group))
            for rows, by_step in (
                (curves.support_losses, supports),
                (curves.query_losses, queries),
                (curves.accuracies, accuracies),
            ):
                rows += map(list, zip(*by_step, strict=True))
    return curves


def _band(panel: Any, rows: list[list[float]], colour: str, marker: str, line: str, name: str) -> None:
    values = np.array(rows)
    steps = range(values.shape[1])
    low, high = np.quantile(values, [0.1, 0.9], axis=0)
    panel.fill_between(steps, low, high, color=colour, alpha=0.15, lw=0)
    panel.plot(steps, values.mean(axis=0), line, marker=marker, ms=4, color=colour, label=name)


def _takes_inner_steps(runs: Sequence[FinishedRun]) -> bool:
    return any(run.config.method_section.evaluation_work(run.config).steps > 0 for run in runs)


INNER_LOOP = FigureKind(
    "inner-loop",
    "Inner loop",
    "What does adaptation to a task do?",
    InnerLoopCurves,
    _measure_inner_loop,
    fits=_takes_inner_steps,
    slow=True,
)
