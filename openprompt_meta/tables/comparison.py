"""Paired comparison: the same tasks judged by two methods, and what their difference is worth.

Two methods that see the same tasks share what makes a task hard. The differences task by task do not contain it, so
they tell apart methods whose own intervals overlap.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from openprompt_meta.errors import RunError

__all__ = ["LEVEL", "PairedDifference", "compare", "holm", "sign_flip_p", "t_half_width"]

LEVEL = 0.05
"""A difference is called significant below this, after Holm's correction."""
FLIPS = 10_000
_EXACT_UP_TO = 12  # differences: 4096 sign patterns are tried one by one
_AT_ONCE = 1_000  # sign patterns in memory
_TIE = 1e-9  # sums of the same numbers in another order; accuracies are far coarser


@dataclass(frozen=True)
class PairedDifference:
    """Accuracy of a row minus that of the reference, over tasks that both were judged on."""

    mean: float
    interval: float | None
    """Half the width of the 95 % interval by the paired t distribution, of two tasks or more."""
    p: float
    """Two-sided, by flipping signs: how often chance alone gives a difference as large."""
    tasks: int


def compare(row: Sequence[float], reference: Sequence[float]) -> PairedDifference:
    """Compare accuracies task by task; ``row[i]`` and ``reference[i]`` are of the same task.

    Raises:
        RunError: there are not as many of one as of the other, or none.
    """
    if len(row) != len(reference) or not row:
        raise RunError(
            f"A paired comparison needs the same tasks on both sides; got {len(row)} and {len(reference)} tasks."
        )
    differences = np.asarray(row, dtype=np.float64) - np.asarray(reference, dtype=np.float64)
    return PairedDifference(
        mean=math.fsum(differences) / len(differences),
        interval=t_half_width(differences),
        p=sign_flip_p(differences),
        tasks=len(differences),
    )


def t_half_width(differences: Sequence[float] | np.ndarray, confidence: float = 0.95) -> float | None:
    """Half the width of the t interval around the mean of ``differences``; ``None`` for fewer than two."""
    count = len(differences)
    if count < 2:
        return None
    quantile = stats.t.ppf(0.5 + confidence / 2, count - 1)
    return float(quantile * np.std(differences, ddof=1) / math.sqrt(count))


def sign_flip_p(differences: Sequence[float] | np.ndarray, flips: int = FLIPS, seed: int = 0) -> float:
    """Two-sided p-value of a mean of zero, by flipping the sign of each difference.

    If the two methods were exchangeable, a difference would be as likely as its negative. Up to twelve differences all
    sign patterns are tried; beyond, ``flips`` random ones from ``seed``, the observed one counted among them.
    """
    values = np.asarray(differences, dtype=np.float64)
    observed = abs(values.sum())
    if len(values) <= _EXACT_UP_TO:
        patterns = (np.arange(2 ** len(values))[:, None] >> np.arange(len(values))) & 1
        return float(np.mean(_reaches(patterns, values, observed)))
    generator = np.random.default_rng(seed)
    hits = 0
    for start in range(0, flips, _AT_ONCE):
        patterns = generator.integers(0, 2, (min(_AT_ONCE, flips - start), len(values)), dtype=np.int8)
        hits += int(_reaches(patterns, values, observed).sum())
    return (hits + 1) / (flips + 1)


def _reaches(patterns: np.ndarray, values: np.ndarray, observed: float) -> np.ndarray:
    """Whether the sum under each pattern of signs ``[n, tasks]`` is as far from zero as the observed one."""
    sums = (2.0 * patterns - 1.0) @ values
    reached: np.ndarray = np.abs(sums) >= observed - _TIE
    return reached


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's adjusted p-values in the order given: below a level with that chance of any false alarm among all."""
    adjusted = [0.0] * len(p_values)
    running = 0.0
    for rank, at in enumerate(sorted(range(len(p_values)), key=lambda index: p_values[index])):
        running = max(running, min(1.0, (len(p_values) - rank) * p_values[at]))
        adjusted[at] = running
    return adjusted
