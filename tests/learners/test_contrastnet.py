"""ContrastNet against cross-entropies written out, text by text."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from openprompt_meta.encoder.loading import LoadedMLM
from openprompt_meta.learners.contrastnet import ContrastNet, ContrastNetLearner, Views, contrastive_loss
from openprompt_meta.learners.task import Task
from openprompt_meta.methods.baselines import BareTexts
from tests.helpers.oracles import CLASSES, QUERY, QUERY_LABELS, SUPPORT, SUPPORT_LABELS

pytestmark = pytest.mark.meta

MORE = ["will it rain", "rain will it", "a song", "song", "some food please", "please some food"]


def some_features(count: int) -> Tensor:
    return torch.randn(count, 5, generator=torch.Generator().manual_seed(count)).double()


def test_with_one_positive_each_it_is_the_cross_entropy_of_the_matrix_without_its_diagonal() -> None:
    features = some_features(6)
    partner = [1, 0, 3, 2, 5, 4]
    scores = features @ features.T / 3.0
    rows = torch.stack([torch.cat([row[:i], row[i + 1 :]]) for i, row in enumerate(scores)])  # [6, 5]
    targets = torch.tensor([other - (other > i) for i, other in enumerate(partner)])
    found = contrastive_loss(features, torch.tensor([0, 0, 1, 1, 2, 2]), 3.0)
    assert torch.allclose(found, F.cross_entropy(rows, targets))


def test_it_is_the_mean_over_positives_and_a_lone_example_is_no_anchor() -> None:
    features, labels = some_features(6), [0, 0, 0, 1, 1, 2]
    losses = []
    for i in range(6):
        exponentials = [(features[i] @ features[k] / 2.0).exp() for k in range(6)]
        total = sum(exponentials[k] for k in range(6) if k != i)
        own = [-(exponentials[j] / total).log() for j in range(6) if j != i and labels[j] == labels[i]]
        losses += [sum(own) / len(own)] if own else []
    assert len(losses) == 5
    found = contrastive_loss(features, torch.tensor(labels), 2.0)
    assert torch.allclose(found, sum(losses) / 5)  # type: ignore[arg-type]


def test_large_inner_products_do_not_overflow() -> None:
    features = (1000 * some_features(4)).float().requires_grad_()
    loss = contrastive_loss(features, torch.tensor([0, 0, 1, 1]), 1.0)
    loss.backward()
    assert torch.isfinite(loss)
    assert features.grad is not None
    assert torch.isfinite(features.grad).all()


@pytest.fixture
def encoder(mlm: LoadedMLM) -> Any:
    return mlm.model.base_model.requires_grad_(True)


def task_of(mlm: LoadedMLM, index: int) -> Task:
    texts = BareTexts([*SUPPORT, *QUERY], mlm, 32)
    return Task(index, CLASSES, {}, texts.batch(range(6), SUPPORT_LABELS), texts.batch(range(6, 10), QUERY_LABELS))


def views_of(mlm: LoadedMLM) -> Views:
    texts = BareTexts(MORE, mlm, 32)
    first, second = texts.batch([0, 2, 4]), texts.batch([1, 3, 5])
    return Views((first, second), [(texts.batch([0, 2]), texts.batch([1, 3])), (texts.batch([4]), texts.batch([5]))])


def read(encoder: Any, mlm: LoadedMLM, text: str) -> Tensor:
    ids = mlm.tokenizer(text, return_tensors="pt")["input_ids"]
    mean: Tensor = encoder(input_ids=ids).last_hidden_state[0].mean(dim=0)
    return mean


@pytest.mark.parametrize(("index", "share"), [(0, 0.95), (30, 0.95 * 0.25), (99, 0.0)])
def test_the_loss_is_the_sum_of_three_contrasts(encoder: Any, mlm: LoadedMLM, index: int, share: float) -> None:
    task = task_of(mlm, index)
    network = ContrastNet(encoder, 2.0)
    optimizer = torch.optim.SGD(network.parameters(), 0.1)
    learner = ContrastNetLearner(
        network,
        optimizer,
        views=lambda task: views_of(mlm),
        temperatures=(3.0, 4.0),
        fading=40,
        task_weight=0.3,
    )
    found, logits = learner.loss(task)
    own = torch.stack([read(encoder, mlm, text) for text in (*SUPPORT, *QUERY)])
    more = torch.stack([read(encoder, mlm, text) for text in MORE])
    tasks = torch.stack([more[[0, 2]].mean(0), more[[1, 3]].mean(0), more[4], more[5]])
    parts = (
        contrastive_loss(own, torch.tensor([*SUPPORT_LABELS, *QUERY_LABELS]), 2.0),
        contrastive_loss(more, torch.tensor([0, 0, 1, 1, 2, 2]), 3.0),
        contrastive_loss(tasks, torch.tensor([0, 0, 1, 1]), 4.0),
    )
    assert torch.allclose(found, share * parts[0] + (1 - share) * parts[1] + 0.3 * parts[2], rtol=1e-9)
    means = torch.stack([own[:6][torch.tensor(SUPPORT_LABELS) == label].mean(0) for label in range(len(CLASSES))])
    assert torch.allclose(logits, own[6:] @ means.T / 2.0, rtol=1e-9)
    assert torch.allclose(network(task), logits, rtol=1e-9)


def test_the_encoders_dropout_is_on_in_training_only_if_asked_for(encoder: Any) -> None:
    for dropout in (False, True):
        network = ContrastNet(encoder, 1.0, dropout)
        assert network.train().encoder.training is dropout
        assert network.eval().encoder.training is False
