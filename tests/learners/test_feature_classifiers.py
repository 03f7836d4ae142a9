"""Classifiers of fixed features against sums written out by hand."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from openprompt_meta.learners.baselines import (
    FeatureLearner,
    class_means,
    logistic_regression,
    nearest_neighbours,
)
from openprompt_meta.learners.task import Task

pytestmark = pytest.mark.meta

LABELS = torch.tensor([0, 0, 0, 1, 1, 1, 2, 2, 2])


def some_features(seed: int = 0) -> tuple[Tensor, Tensor]:
    """Support and query, each class around a point of its own."""
    generator = torch.Generator().manual_seed(seed)
    centres = torch.randn(3, 5, generator=generator)
    return tuple(centres[LABELS] + 0.4 * torch.randn(9, 5, generator=generator) for _ in range(2))  # type: ignore[return-value]


def cosine(one: Tensor, two: Tensor) -> float:
    return float(one @ two) / (float(one @ one) ** 0.5 * float(two @ two) ** 0.5)


def test_class_means_compare_by_cosine() -> None:
    support, query = some_features()
    found = class_means()(support, LABELS)(query)
    for i, text in enumerate(query):
        scores = [10 * cosine(text, support[label == LABELS].mean(dim=0)) for label in range(3)]
        total = sum(map(math.exp, scores))
        assert found[i].tolist() == pytest.approx([score - math.log(total) for score in scores], rel=1e-4, abs=1e-5)


@pytest.mark.parametrize("neighbours", [1, 3, 100])
def test_nearest_neighbours_count_by_their_nearness(neighbours: int) -> None:
    support, query = some_features()
    found = nearest_neighbours(neighbours)(support, LABELS)(query)
    for i, text in enumerate(query):
        distances = [1 - cosine(text, one) for one in support]
        nearest = sorted(range(9), key=distances.__getitem__)[:neighbours]
        votes = [sum(1 / distances[j] for j in nearest if LABELS[j] == label) for label in range(3)]
        expected = torch.tensor(votes) / sum(votes)
        assert torch.allclose(found[i].exp().float(), expected, atol=1e-4)
    assert torch.isfinite(found).all(), "a class without a neighbour is unlikely, not impossible"


def test_a_logistic_regression_is_at_the_least_of_its_penalised_loss() -> None:
    support, query = some_features()
    strength = 10.0
    predicted = logistic_regression(strength)(support, LABELS)(query)
    # scikit-learn's objective, minimised by other means: ½‖W‖² + C Σ loss, the intercept free.
    unit = torch.nn.functional.normalize(support.double(), dim=-1)
    weight = torch.zeros(3, 5, dtype=torch.float64, requires_grad=True)
    bias = torch.zeros(3, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS([weight, bias], max_iter=500, tolerance_grad=1e-10, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimizer.zero_grad()
        fit = torch.nn.functional.cross_entropy(unit @ weight.T + bias, LABELS, reduction="sum")
        total = 0.5 * weight.square().sum() + strength * fit
        total.backward()
        return total

    optimizer.step(loss)
    evaluated = torch.nn.functional.normalize(query.double(), dim=-1)
    expected = (evaluated @ weight.T + bias).log_softmax(dim=-1)
    assert torch.allclose(predicted, expected, atol=1e-3)


def test_a_task_is_judged_by_its_own_support_set_alone() -> None:
    tasks = []
    for seed in range(2):
        support, query = some_features(seed)
        batches = ({"features": one, "label": LABELS} for one in (support, query))
        tasks.append(Task(seed, ["a", "b", "c"], {}, *batches))
    for fit in (class_means(), logistic_regression(), nearest_neighbours(3)):
        learner = FeatureLearner(fit)
        assert [group[0].index for group in learner.in_groups(tasks)] == [0, 1]
        together = learner.evaluate_batch(tasks, 0)
        for task, outcome in zip(tasks, together, strict=True):
            alone = learner.evaluate(task, 0)
            assert torch.equal(alone.log_probabilities, outcome.log_probabilities)
            right = (outcome.log_probabilities.argmax(dim=-1) == LABELS).float().mean().item()
            assert outcome.accuracy == pytest.approx(right)
            assert outcome.accuracy > 0.5
