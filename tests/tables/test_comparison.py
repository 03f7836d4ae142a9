"""The statistics against scipy's, against trying everything, and against flipping coins."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy import stats

from openprompt_meta.errors import RunError
from openprompt_meta.tables.results import (
    compare,
    holm,
    sign_flip_p,
    t_half_width,
)


def accuracies(count: int, seed: int, shift: float = 0.0) -> list[float]:
    values = np.random.default_rng(seed).normal(0.8 + shift, 0.08, count)
    return [round(float(value) * 75) / 75 for value in values]  # of 75 queries


@pytest.mark.parametrize("count", [2, 5, 300])
def test_the_interval_is_that_of_scipys_paired_t_test(count: int) -> None:
    ours, theirs = accuracies(count, 1), accuracies(count, 2)
    expected = stats.ttest_rel(ours, theirs).confidence_interval(0.95)
    difference = compare(ours, theirs)
    assert difference.interval is not None
    assert difference.mean - difference.interval == pytest.approx(expected.low)
    assert difference.mean + difference.interval == pytest.approx(expected.high)
    assert difference.tasks == count


def exact_p(differences: np.ndarray) -> float:
    """The share of all sign patterns whose sum is as far from zero."""
    sums = [
        abs(sum(sign * value for sign, value in zip(signs, differences, strict=True)))
        for signs in itertools.product((-1, 1), repeat=len(differences))
    ]
    observed = abs(sum(differences))
    return sum(value >= observed - 1e-9 for value in sums) / len(sums)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("count", [1, 2, 8, 13])
def test_few_differences_are_flipped_in_every_way(count: int, seed: int) -> None:
    differences = np.array(accuracies(count, seed)) - np.array(accuracies(count, seed + 100))
    assert sign_flip_p(differences) == exact_p(differences)


@pytest.mark.parametrize("values", [(0.1, 0.2, -0.3), (0.1, 0.2, 0.3, -0.6), (0.7, 0.1, -0.8, 0.1, -0.1, 0.2, -0.2)])
def test_differences_that_cancel_have_a_p_value_of_one(values: tuple[float, ...]) -> None:
    # In floating point their sum is not quite zero, and not the same in every order.
    assert sign_flip_p(values) == exact_p(np.array(values)) == 1.0


@pytest.mark.parametrize("shift", [0.0, 0.02, 0.05])
def test_many_differences_give_the_p_value_of_coins_up_to_the_draw(shift: float) -> None:
    differences = np.array(accuracies(40, 3, shift)) - np.array(accuracies(40, 4))
    signs = np.random.default_rng(5).choice((-1.0, 1.0), (100_000, 40))
    expected = np.mean(np.abs(signs @ differences) >= abs(differences.sum()) - 1e-9)
    deviation = (max(expected, 1e-4) / 10_000) ** 0.5
    assert sign_flip_p(differences) == pytest.approx(expected, abs=4 * deviation)


def test_the_p_value_is_never_below_the_observed_pattern_alone() -> None:
    assert sign_flip_p([0.1] * 100) == 1 / 10_001


def test_the_draw_is_the_same_every_time() -> None:
    differences = np.array(accuracies(30, 1)) - np.array(accuracies(30, 2))
    state = np.random.get_state()[1].copy()
    assert sign_flip_p(differences) == sign_flip_p(differences)
    assert (np.random.get_state()[1] == state).all(), "the program's own generator was used"


def test_no_difference_at_all_has_a_p_value_of_one() -> None:
    for count in (3, 50):
        same = accuracies(count, 0)
        difference = compare(same, same)
        assert (difference.mean, difference.p) == (0.0, 1.0)


def test_a_pair_tells_apart_what_two_intervals_do_not() -> None:
    # Tasks differ by far more than the methods do, and the methods always in the same direction.
    tasks = np.random.default_rng(0).normal(0.7, 0.15, 100)
    jitter = np.random.default_rng(1).normal(0.01, 0.01, 100)
    difference = compare(list(tasks + jitter), list(tasks))
    apart = 1.96 * tasks.std(ddof=1) / 10
    assert difference.mean < apart
    assert difference.p < 0.001


def test_one_task_has_no_interval() -> None:
    assert t_half_width([0.1]) is None
    assert compare([0.9], [0.8]).p == 1.0  # both signs reach as far


def test_different_tasks_cannot_be_paired() -> None:
    with pytest.raises(RunError, match="3 and 2 tasks"):
        compare([0.1, 0.2, 0.3], [0.1, 0.2])


def test_holms_correction_is_the_textbook_example() -> None:
    # Worked by hand: 4 × 0.005, 3 × 0.01, 2 × 0.03, 1 × 0.04, none below the one before.
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([]) == []


@pytest.mark.parametrize("seed", range(5))
def test_holm_rejects_what_stepping_down_by_definition_rejects(seed: int) -> None:
    p_values = list(np.random.default_rng(seed).uniform(0, 0.05, 6))
    rejected = set()
    for step, at in enumerate(sorted(range(6), key=p_values.__getitem__)):
        if p_values[at] > 0.05 / (6 - step):
            break
        rejected.add(at)
    assert {at for at, p in enumerate(holm(p_values)) if p <= 0.05} == rejected
