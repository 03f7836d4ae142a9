"""Inner and outer updates against loops written out by hand, in float64."""

from __future__ import annotations

import copy
import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from openprompt_meta.encoder.classifier import MaskClassifier
from openprompt_meta.encoder.loading import LoadedMLM
from openprompt_meta.encoder.packed import PackedClassifier
from openprompt_meta.errors import NotFiniteError
from openprompt_meta.learners.adapters import PoolClones
from openprompt_meta.learners.meta import MamlLearner
from openprompt_meta.learners.task import Task
from openprompt_meta.verbalizers.manual import ManualVerbalizer
from openprompt_meta.verbalizers.proto import ProtoVerbalizer
from openprompt_meta.verbalizers.rep import RepVerbalizer
from openprompt_meta.verbalizers.warp import WarpVerbalizer
from tests.helpers.oracles import ALPHA, CLASSES, QUERY_LABELS, STEPS, SUPPORT_LABELS, WORDS, Setting, rep_loss

pytestmark = pytest.mark.meta


def unrolled(setting: Setting, first_order: bool, rho_inner: float = 10.0, reduction: str = "mean") -> list[Tensor]:
    """The meta-gradient by a loop written out by hand."""
    pool = setting.template.pool
    start = [pool.keys.detach().clone().requires_grad_(), pool.prompts.detach().clone().requires_grad_()]
    now = list(start)
    for _ in range(STEPS):
        support = setting.features(*now, setting.task.support)
        loss = rep_loss(support, support, SUPPORT_LABELS, rho_inner, reduction)
        gradients = torch.autograd.grad(loss, now, create_graph=not first_order)
        now = [p - ALPHA * (g.detach() if first_order else g) for p, g in zip(now, gradients, strict=True)]
    support = setting.features(*now, setting.task.support)
    query = setting.features(*now, setting.task.query)
    loss = rep_loss(support, query, QUERY_LABELS, 10.0, reduction)
    return list(torch.autograd.grad(loss, start))


def meta_gradient(setting: Setting, first_order: bool) -> list[Tensor]:
    """What the learner hands its optimiser."""
    pool = setting.template.pool
    optimizer = torch.optim.SGD(pool.parameters(), lr=0.0)
    learner = MamlLearner(pool, setting.base, optimizer, PoolClones(pool, ALPHA, first_order), STEPS)
    learner.meta_step([setting.task])
    return [pool.keys.grad, pool.prompts.grad]


@pytest.mark.parametrize("kind", [MaskClassifier, PackedClassifier])
@pytest.mark.parametrize("first_order", [True, False])
def test_the_meta_gradient_equals_a_loop_unrolled_by_hand(
    mlm: LoadedMLM, first_order: bool, kind: type[MaskClassifier]
) -> None:
    setting = Setting(mlm, kind=kind)
    for found, expected in zip(meta_gradient(setting, first_order), unrolled(setting, first_order), strict=True):
        assert torch.allclose(found, expected, rtol=1e-8, atol=1e-12)


def test_first_and_second_order_differ(mlm: LoadedMLM) -> None:
    # Without this, a learner that ignored first_order would pass one of the two cases above by accident only.
    first, second = meta_gradient(Setting(mlm), True)[1], meta_gradient(Setting(mlm), False)[1]
    assert not torch.allclose(first, second, rtol=1e-4)


def test_the_sum_of_losses_and_another_inner_temperature_are_as_unrolled_by_hand(mlm: LoadedMLM) -> None:
    verbalizer = RepVerbalizer(mlm.tokenizer, mlm.model, inner_temperature=1.0)
    setting = Setting(mlm, verbalizer, loss="sum")
    for found, expected in zip(meta_gradient(setting, True), unrolled(setting, True, 1.0, "sum"), strict=True):
        assert torch.allclose(found, expected, rtol=1e-8, atol=1e-12)


def test_label_embeddings_of_the_last_inner_step_are_those_before_its_update(mlm: LoadedMLM) -> None:
    setting = Setting(mlm, label_embeddings="last_inner_step")
    pool = setting.template.pool
    now = [pool.keys.detach().clone().requires_grad_(), pool.prompts.detach().clone().requires_grad_()]
    support = torch.empty(0)
    for _ in range(STEPS):
        support = setting.features(*now, setting.task.support)
        gradients = torch.autograd.grad(rep_loss(support, support, SUPPORT_LABELS), now)
        now = [(p - ALPHA * g).detach().requires_grad_() for p, g in zip(now, gradients, strict=True)]
    query = setting.features(*now, setting.task.query)
    expected = torch.autograd.grad(rep_loss(support.detach(), query, QUERY_LABELS), now)
    for found, wanted in zip(meta_gradient(setting, True), expected, strict=True):
        assert torch.allclose(found, wanted, rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize("tokens_at_once", [0, 10_000], ids=["one by one", "side by side"])
@pytest.mark.parametrize("kind", [MaskClassifier, PackedClassifier])
@pytest.mark.parametrize("first_order", [True, False])
def test_a_meta_batch_averages_the_gradients_of_its_tasks(
    mlm: LoadedMLM, first_order: bool, kind: type[MaskClassifier], tokens_at_once: int
) -> None:
    setting = Setting(mlm, kind=kind, tokens_at_once=tokens_at_once)
    other = Task(
        8, CLASSES, WORDS, {**setting.task.support}, {**setting.task.query, "label": torch.tensor([2, 1, 0, 0])}
    )
    pool = setting.template.pool
    optimizer = torch.optim.SGD(pool.parameters(), lr=0.0)
    learner = MamlLearner(pool, setting.base, optimizer, PoolClones(pool, ALPHA, first_order), STEPS)
    gradients = []
    for tasks in ([setting.task], [other], [setting.task, other]):
        learner.meta_step(tasks)
        gradients.append(pool.prompts.grad.clone())
    assert torch.allclose(gradients[2], (gradients[0] + gradients[1]) / 2, rtol=1e-8, atol=1e-13)
    assert not torch.allclose(gradients[0], gradients[1], rtol=1e-3)


@pytest.mark.parametrize("label_embeddings", ["adapted", "last_inner_step"])
@pytest.mark.parametrize("kind", [RepVerbalizer, WarpVerbalizer, ProtoVerbalizer, ManualVerbalizer])
def test_tasks_judged_side_by_side_are_judged_as_one_by_one(mlm: LoadedMLM, kind: Any, label_embeddings: Any) -> None:
    verbalizer = kind(tokenizer=mlm.tokenizer, model=mlm.model).double()
    setting = Setting(mlm, verbalizer, PackedClassifier, label_embeddings=label_embeddings, tokens_at_once=10_000)
    pool = setting.template.pool
    learner = MamlLearner(pool, setting.base, torch.optim.Adam(pool.parameters()), PoolClones(pool, ALPHA), STEPS)
    # Other classes, other texts, another number of them: what is random in a task is its own.
    swapped = {"weather": WORDS["sport"], "sport": WORDS["food"], "food": WORDS["weather"]}
    few = {key: value[:3] for key, value in setting.task.query.items()}
    tasks = [setting.task, Task(9, CLASSES[::-1], swapped, setting.task.support, few), replace(setting.task, index=3)]
    assert [len(group) for group in setting.base.in_groups(tasks)] == [3]
    for alone, together in zip(
        [learner.evaluate(task, 2) for task in tasks], learner.evaluate_batch(tasks, 2), strict=True
    ):
        assert alone.index == together.index
        assert alone.inner_losses == pytest.approx(together.inner_losses, rel=1e-9)
        assert torch.allclose(alone.log_probabilities, together.log_probabilities, rtol=1e-8, atol=1e-10)


def test_tasks_go_together_in_their_order_as_long_as_their_tokens_allow(mlm: LoadedMLM) -> None:
    setting = Setting(mlm)
    tokens = int(setting.task.support["attention_mask"].sum())
    tasks = [replace(setting.task, index=index) for index in range(5)]
    for room, sizes in ((0, [1] * 5), (tokens - 1, [1] * 5), (2 * tokens, [2, 2, 1]), (5 * tokens, [5])):
        setting.base.tokens_at_once = room
        groups = list(setting.base.in_groups(iter(tasks)))
        assert [len(group) for group in groups] == sizes
        assert [task.index for group in groups for task in group] == [0, 1, 2, 3, 4]


def test_judging_changes_neither_pool_nor_language_model_and_learning_only_the_pool(mlm: LoadedMLM) -> None:
    setting = Setting(mlm)
    pool = setting.template.pool
    model_before = copy.deepcopy(mlm.model.state_dict())
    pool_before = copy.deepcopy(pool.state_dict())
    learner = MamlLearner(
        pool, setting.base, torch.optim.Adam(pool.parameters(), lr=1e-2), PoolClones(pool, ALPHA), STEPS
    )
    learner.evaluate(setting.task, 2)
    assert all(torch.equal(value, pool_before[name]) for name, value in pool.state_dict().items())
    assert setting.template.pool is pool
    learner.meta_step([setting.task])
    assert not torch.equal(pool.prompts, pool_before["prompts"])
    assert all(torch.equal(value, model_before[name]) for name, value in mlm.model.state_dict().items())
    assert all(p.grad is None for p in mlm.model.parameters())


def test_judging_without_steps_is_the_plain_prediction(mlm: LoadedMLM) -> None:
    setting = Setting(mlm)
    pool = setting.template.pool
    learner = MamlLearner(pool, setting.base, torch.optim.Adam(pool.parameters()), PoolClones(pool, ALPHA), STEPS)
    outcome = learner.evaluate(setting.task, 0)
    support = setting.features(pool.keys, pool.prompts, setting.task.support)
    query = setting.features(pool.keys, pool.prompts, setting.task.query)
    assert outcome.loss == pytest.approx(rep_loss(support, query, QUERY_LABELS).item(), rel=1e-9)
    assert outcome.inner_losses == []
    assert torch.allclose(outcome.log_probabilities.exp().sum(-1), torch.ones(4, dtype=torch.float64))


@pytest.mark.parametrize("kind", [WarpVerbalizer, ProtoVerbalizer, ManualVerbalizer])
def test_every_verbalizer_goes_through_the_inner_and_the_outer_loop(mlm: LoadedMLM, kind: Any) -> None:
    setting = Setting(mlm, kind(tokenizer=mlm.tokenizer, model=mlm.model).double())
    pool = setting.template.pool
    learner = MamlLearner(
        pool, setting.base, torch.optim.Adam(pool.parameters(), lr=1e-2), PoolClones(pool, ALPHA), STEPS
    )
    before = pool.prompts.detach().clone()
    step = learner.meta_step([setting.task])
    assert len(step.inner_losses) == STEPS
    assert math.isfinite(step.loss)
    assert not torch.equal(before, pool.prompts)


def test_a_loss_that_is_not_a_number_names_the_task_and_the_step(mlm: LoadedMLM) -> None:
    setting = Setting(mlm)
    pool = setting.template.pool
    with torch.no_grad():
        pool.prompts[0, 0, 0] = math.nan
    learner = MamlLearner(pool, setting.base, torch.optim.Adam(pool.parameters()), PoolClones(pool, ALPHA), STEPS)
    with pytest.raises(NotFiniteError, match=r"Task 7: inner step 1 is nan"):
        learner.meta_step([setting.task])


def test_a_meta_gradient_that_is_not_a_number_never_reaches_the_pool(mlm: LoadedMLM) -> None:
    setting = Setting(mlm)
    pool = setting.template.pool
    before = copy.deepcopy(pool.state_dict())
    pool.prompts.register_hook(lambda gradient: gradient * math.inf)  # a finite loss, an infinite slope
    learner = MamlLearner(
        pool, setting.base, torch.optim.Adam(pool.parameters()), PoolClones(pool, ALPHA), inner_steps=0
    )
    with pytest.raises(NotFiniteError, match=r"Task 7: the meta-gradient"):
        learner.meta_step([setting.task])
    assert all(torch.equal(value, before[name]) for name, value in pool.state_dict().items())


def test_what_is_random_inside_a_task_depends_on_seed_and_task_alone(mlm: LoadedMLM) -> None:
    def losses(seed: int, noise: int) -> list[float]:
        setting = Setting(mlm, WarpVerbalizer(mlm.tokenizer, mlm.model), seed=seed)
        pool = setting.template.pool
        learner = MamlLearner(pool, setting.base, torch.optim.Adam(pool.parameters()), PoolClones(pool, ALPHA), STEPS)
        torch.manual_seed(noise)
        state = torch.get_rng_state()
        found = learner.evaluate(setting.task, 2).inner_losses
        assert torch.equal(torch.get_rng_state(), state), "a program's own random numbers are left alone"
        return found

    assert losses(0, noise=1) == losses(0, noise=2)
    assert losses(0, noise=1) != losses(1, noise=1)
