"""Tuning an encoder in each task against loops written out by hand."""

from __future__ import annotations

import copy
from collections import Counter
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from openprompt_meta.encoder.loading import LoadedMLM
from openprompt_meta.learners.baselines import (
    ContrastiveLearner,
    HeadLearner,
    class_means,
    draw_pairs,
    mean_pooled,
)
from openprompt_meta.learners.inner import task_randomness
from openprompt_meta.learners.task import Task
from openprompt_meta.methods.baselines import BareTexts
from tests.helpers.oracles import CLASSES, QUERY, QUERY_LABELS, SUPPORT, SUPPORT_LABELS

pytestmark = pytest.mark.meta


@pytest.fixture
def encoder(mlm: LoadedMLM) -> Any:
    return mlm.model.base_model.requires_grad_(True)


@pytest.fixture
def task(mlm: LoadedMLM) -> Task:
    texts = BareTexts([*SUPPORT, *QUERY], mlm, 32)
    support, query = texts.batch(range(6), SUPPORT_LABELS), texts.batch(range(6, 10), QUERY_LABELS)
    return Task(7, CLASSES, {}, support, query)


def one_by_one(encoder: Any, batch: Any) -> Tensor:
    """Mean-pooled features, a text at a time, no padding."""
    rows = []
    for ids, mask in zip(batch["input_ids"], batch["attention_mask"], strict=True):
        hidden = encoder(input_ids=ids[mask > 0].unsqueeze(0)).last_hidden_state[0]
        rows.append(hidden.mean(dim=0))
    return torch.stack(rows)


def test_padding_has_no_say_in_mean_pooled_features(encoder: Any, task: Task) -> None:
    assert int(task.support["attention_mask"].sum(dim=1).unique().numel()) > 1
    found, expected = mean_pooled(encoder, task.support), one_by_one(encoder, task.support)
    assert torch.allclose(found, expected, rtol=1e-9, atol=1e-12)


def test_fine_tuning_is_adam_on_encoder_and_head(encoder: Any, task: Task) -> None:
    steps, lr, head_lr = 3, 1e-3, 1e-2
    by_hand = copy.deepcopy(encoder)
    with task_randomness(4, task):
        head = nn.Linear(32, 3).double()
    optimizer = torch.optim.Adam(
        [{"params": by_hand.parameters(), "lr": lr}, {"params": head.parameters(), "lr": head_lr}]
    )
    losses = []
    for _ in range(steps):
        logits = head(one_by_one(by_hand, task.support))
        loss = -torch.stack([row.log_softmax(0)[y] for row, y in zip(logits, SUPPORT_LABELS, strict=True)]).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    expected = head(one_by_one(by_hand, task.query)).log_softmax(dim=-1)
    before = copy.deepcopy(encoder.state_dict())
    outcome = HeadLearner(encoder, lr, head_lr, seed=4).evaluate(task, steps)
    assert outcome.inner_losses == pytest.approx(losses, rel=1e-8)
    assert torch.allclose(outcome.log_probabilities, expected, rtol=1e-5, atol=1e-7)
    assert all(torch.equal(value, before[name]) for name, value in encoder.state_dict().items())


def test_contrastive_steps_bring_texts_of_one_class_together(encoder: Any, task: Task) -> None:
    before = copy.deepcopy(encoder.state_dict())
    learner = ContrastiveLearner(encoder, 1e-3, class_means(), pairs=8, seed=1)
    outcome = learner.evaluate(task, 25)
    assert sum(outcome.inner_losses[-5:]) < 0.5 * sum(outcome.inner_losses[:5])
    assert all(torch.equal(value, before[name]) for name, value in encoder.state_dict().items())
    assert outcome.inner_losses == learner.evaluate(task, 25).inner_losses, "pairs belong to seed and task"


def test_the_contrastive_loss_is_the_squared_error_of_cosines(encoder: Any, task: Task) -> None:
    features = one_by_one(encoder, task.support).detach()
    with task_randomness(1, task):
        first, second = draw_pairs(torch.tensor(SUPPORT_LABELS), 6)
    errors = []
    for i, j in zip(first.tolist(), second.tolist(), strict=True):
        cosine = features[i] @ features[j] / (features[i].norm() * features[j].norm())
        errors.append((cosine - float(SUPPORT_LABELS[i] == SUPPORT_LABELS[j])) ** 2)
    found = ContrastiveLearner(encoder, 1e-3, class_means(), pairs=6, seed=1).evaluate(task, 1).inner_losses
    assert found == pytest.approx([float(sum(errors) / 6)], rel=1e-8)


@pytest.mark.parametrize("labels", [[0, 0, 1, 1, 2, 2], [0, 1, 2], [0, 0, 0, 1]])
def test_half_of_the_pairs_are_of_one_class_and_all_such_pairs_come(labels: list[int]) -> None:
    first, second = draw_pairs(torch.tensor(labels), 2000)
    kinds = Counter(labels[i] == labels[j] for i, j in zip(first.tolist(), second.tolist(), strict=True))
    assert kinds == {True: 1000, False: 1000}
    drawn = set(zip(first.tolist(), second.tolist(), strict=True))
    lone = len(set(labels)) == len(labels)
    possible = {(i, j) for i in range(len(labels)) for j in range(len(labels)) if i != j or lone}
    assert drawn == possible
