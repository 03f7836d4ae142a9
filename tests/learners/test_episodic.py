"""Learning a network across tasks without an inner loop."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from openprompt_meta.errors import NotFiniteError
from openprompt_meta.learners.episodic import EpisodicLearner
from openprompt_meta.learners.task import Task

pytestmark = pytest.mark.meta


class Linear(nn.Module):
    """Logits of fixed features, with dropout."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(3, 2)
        self.dropout = nn.Dropout(dropout)

    def forward(self, task: Task) -> Tensor:
        logits: Tensor = self.layer(self.dropout(task.query["features"]))
        return logits


def task_of(index: int) -> Task:
    generator = torch.Generator().manual_seed(index)
    query = {"features": torch.randn(4, 3, generator=generator), "label": torch.tensor([0, 1, 1, 0])}
    return Task(index, ["a", "b"], {}, query, query)


def mean_gradient(network: Linear, indices: list[int]) -> Tensor:
    logits = [network(task_of(index)) for index in indices]
    loss = torch.stack([F.cross_entropy(one, torch.tensor([0, 1, 1, 0])) for one in logits]).mean()
    return torch.autograd.grad(loss, network.layer.weight)[0]


@pytest.mark.parametrize("longest", [None, 0.05])
def test_a_step_is_down_the_mean_gradient_shortened_if_it_is_too_long(longest: float | None) -> None:
    network, start = Linear(), Linear()
    learner = EpisodicLearner(network, torch.optim.SGD(network.parameters(), 1.0), longest_gradient=longest)
    gradient = mean_gradient(start, [1, 2])
    step = learner.meta_step([task_of(1), task_of(2)])
    moved = start.layer.weight - network.layer.weight
    assert torch.allclose(moved, gradient * (1.0 if longest is None else longest / step.gradient_norm), atol=1e-6)
    assert step.gradient_norm > 0.05


def test_dropout_is_on_in_training_only_and_belongs_to_seed_and_task() -> None:
    losses = []
    for _ in range(2):
        network = Linear(dropout=0.5)
        learner = EpisodicLearner(network, torch.optim.SGD(network.parameters(), 0.0), seed=3)
        torch.manual_seed(len(losses))  # what else is drawn must not matter
        losses.append(learner.meta_step([task_of(5)]).loss)
        outcome = learner.evaluate(task_of(5), 0)
        plain = Linear()(task_of(5)).log_softmax(dim=-1)
        assert torch.allclose(outcome.log_probabilities, plain)
        assert outcome.loss != pytest.approx(losses[-1])
    assert losses[0] == losses[1]


def test_what_is_not_a_number_is_refused_before_the_step() -> None:
    network = Linear()
    learner = EpisodicLearner(network, torch.optim.SGD(network.parameters(), 1.0))
    broken = task_of(7)
    broken.query["features"][0, 0] = torch.inf
    before = network.layer.weight.clone()
    with pytest.raises(NotFiniteError, match="Task 7"):
        learner.meta_step([broken])
    assert torch.equal(network.layer.weight, before)
