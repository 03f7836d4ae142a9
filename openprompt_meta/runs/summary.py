"""Accuracies over tasks and seeds as a mean with its uncertainty."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

__all__ = ["SeedsSummary", "TasksSummary", "summarise_seeds", "summarise_tasks"]

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
