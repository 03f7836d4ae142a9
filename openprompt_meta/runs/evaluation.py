"""Evaluating a method on many tasks: accuracies, and their mean with its uncertainty."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from openprompt_meta.learners.task import TaskLearner, TaskOutcome
from openprompt_meta.methods.method import TaskSource

# -- Accuracies over tasks and seeds as a mean with its uncertainty ---------------------------------------------------

_Z95 = 1.959963984540054  # two-sided 95 % quantile of the normal distribution


@dataclass(frozen=True)
class TasksSummary:
    """Accuracy over the tasks of one run."""

    mean: float
    interval: float | None
    """Half the width of the 95 % confidence interval of the mean over tasks, of two tasks or more."""
    tasks: int

    def __str__(self) -> str:
        return f"{100 * self.mean:.2f} ± {_percent(self.interval)}"


@dataclass(frozen=True)
class SeedsSummary:
    """Accuracy over the runs of several seeds."""

    mean: float
    interval: float | None
    """Half the width of the 95 % confidence interval over all tasks of all seeds, of two tasks or more."""
    deviation: float | None
    """Standard deviation of the seeds' means, of two seeds or more."""
    seeds: int
    tasks: int
    """Tasks of each seed."""

    def __str__(self) -> str:
        spread = "" if self.deviation is None else f" (deviation over {self.seeds} seeds {100 * self.deviation:.2f})"
        return f"{100 * self.mean:.2f} ± {_percent(self.interval)}{spread}"

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def summarise_tasks(accuracies: Sequence[float]) -> TasksSummary:
    """Mean and interval over tasks."""
    return TasksSummary(_mean(accuracies), _half_width(accuracies), len(accuracies))


def summarise_seeds(accuracies: Sequence[Sequence[float]]) -> SeedsSummary:
    """Mean over all tasks of all seeds, its interval over tasks, and the deviation of the seeds' means."""
    means = [_mean(tasks) for tasks in accuracies]
    pooled = [value for tasks in accuracies for value in tasks]
    deviation = _deviation(means) if len(means) > 1 else None
    return SeedsSummary(_mean(means), _half_width(pooled), deviation, len(means), len(accuracies[0]))


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _deviation(values: Sequence[float]) -> float:
    mean = _mean(values)
    return math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1))


def _half_width(values: Sequence[float]) -> float | None:
    return _Z95 * _deviation(values) / math.sqrt(len(values)) if len(values) > 1 else None


def _percent(value: float | None) -> str:
    return "?" if value is None else f"{100 * value:.2f}"


# -- Evaluating a method on many tasks --------------------------------------------------------------------------------


class Interrupted(Exception):  # noqa: N818 - a message to the caller, not a failure
    """A stop was asked for before the tasks were through."""


def evaluate_tasks(
    learner: TaskLearner,
    source: TaskSource,
    tasks: int,
    steps: int,
    bar: Any = None,
    stop: Callable[[], bool] = lambda: False,
) -> list[TaskOutcome]:
    """Evaluate tasks 0 .. ``tasks - 1`` of a split, each from the same start.

    Args:
        learner: learns and evaluates each.
        source: the split's tasks.
        tasks: how many.
        steps: inner steps, J.
        bar: a progress bar to advance.
        stop: asked before each group of tasks that are evaluated side by side.

    Raises:
        Interrupted: ``stop`` said so.
    """
    outcomes: list[TaskOutcome] = []
    groups = learner.evaluate_all((source[index] for index in range(tasks)), steps)
    while len(outcomes) < tasks:
        if stop():
            raise Interrupted
        group = next(groups)
        outcomes += group
        if bar is not None:
            bar.update(len(group))
            bar.set_postfix(accuracy=f"{100 * sum(o.accuracy for o in outcomes) / len(outcomes):.1f}")
    return outcomes
