"""Reptile, BMG, ANIL's inner loop and tuning a whole model, against loops written out by hand, in float64."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from openprompt_meta.encoder.classifier import MaskClassifier, MaskOnlyClassifier
from openprompt_meta.encoder.loading import LoadedMLM
from openprompt_meta.encoder.packed import PackedClassifier
from openprompt_meta.errors import NotFiniteError
from openprompt_meta.learners.adapters import InPlace, PoolClones
from openprompt_meta.learners.meta import (
    AdaptingLearner,
    BmgLearner,
    MamlLearner,
    ReptileLearner,
)
from openprompt_meta.learners.optim import InnerSteps
from openprompt_meta.verbalizers.manual import ManualVerbalizer
from openprompt_meta.verbalizers.proto import ProtoVerbalizer
from openprompt_meta.verbalizers.warp import WarpVerbalizer
from tests.helpers.oracles import ALPHA, QUERY_LABELS, STEPS, SUPPORT_LABELS, Setting, rep_log_probabilities, rep_loss

pytestmark = pytest.mark.meta

MODEL_LR = 0.05


def start_of(setting: Setting) -> list[Tensor]:
    pool = setting.template.pool
    return [pool.keys.detach().clone().requires_grad_(), pool.prompts.detach().clone().requires_grad_()]


def support_loss(setting: Setting, now: list[Tensor]) -> Tensor:
    support = setting.features(*now, setting.task.support)
    return rep_loss(support, support, SUPPORT_LABELS)


def query_loss(setting: Setting, now: list[Tensor]) -> Tensor:
    support = setting.features(*now, setting.task.support)
    return rep_loss(support, setting.features(*now, setting.task.query), QUERY_LABELS)


def query_predictions(setting: Setting, now: list[Tensor]) -> Tensor:
    support = setting.features(*now, setting.task.support)
    return rep_log_probabilities(support, setting.features(*now, setting.task.query))


def divergence(target: Tensor, predicted: Tensor) -> Tensor:
    """KL(target ‖ predicted), averaged over the texts."""
    rows = [(t.exp() * (t - p)).sum() for t, p in zip(target, predicted, strict=True)]
    return torch.stack(rows).mean()


def stepped(loss: Tensor, now: list[Tensor], first_order: bool = True, chosen: str = "all") -> list[Tensor]:
    gradients = torch.autograd.grad(loss, now, create_graph=not first_order)
    moves = {"all": (1, 1), "keys": (1, 0), "prompts": (0, 1)}[chosen]
    return [
        p - move * ALPHA * (g.detach() if first_order else g) for p, g, move in zip(now, gradients, moves, strict=True)
    ]


def gradients_of(setting: Setting, kind: Any, first_order: bool = True, chosen: Any = "all", **more: Any) -> list[Any]:
    """What a learner hands its optimiser."""
    pool = setting.template.pool
    adapter = PoolClones(pool, ALPHA, first_order, chosen)
    learner = kind(
        pool, setting.base, torch.optim.SGD(pool.parameters(), lr=0.0), inner_steps=STEPS, adapter=adapter, **more
    )
    learner.meta_step([setting.task])
    return [pool.keys.grad, pool.prompts.grad]


def assert_close(found: list[Any], expected: list[Any]) -> None:
    for one, two in zip(found, expected, strict=True):
        assert torch.allclose(one, two, rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize("classifier", [MaskClassifier, PackedClassifier])
@pytest.mark.parametrize("first_order", [True, False])
@pytest.mark.parametrize("chosen", ["keys", "prompts"])
def test_what_the_inner_loop_leaves_alone_is_still_learned_outside(
    mlm: LoadedMLM, chosen: str, first_order: bool, classifier: type[MaskClassifier]
) -> None:
    setting = Setting(mlm, kind=classifier)
    start = start_of(setting)
    now = list(start)
    for _ in range(STEPS):
        now = stepped(support_loss(setting, now), now, first_order, chosen)
    expected = list(torch.autograd.grad(query_loss(setting, now), start))
    found = gradients_of(setting, MamlLearner, first_order, chosen)
    assert_close(found, expected)
    assert all(bool(gradient.abs().max() > 0) for gradient in found)
    assert not torch.allclose(found[1], gradients_of(Setting(mlm), MamlLearner, first_order)[1], rtol=1e-4)


def test_reptile_moves_the_start_towards_the_adapted_pool(mlm: LoadedMLM) -> None:
    setting = Setting(mlm)
    pool, start = setting.template.pool, start_of(setting)
    now = start
    for _ in range(STEPS):
        now = stepped(support_loss(setting, now), now)
    now = stepped(query_loss(setting, now), now)
    epsilon = 0.25
    optimizer = torch.optim.SGD(pool.parameters(), lr=epsilon)
    learner = ReptileLearner(pool, setting.base, optimizer, PoolClones(pool, ALPHA), STEPS)
    learner.meta_step([setting.task])
    expected = [one + epsilon * (two - one) for one, two in zip(start, now, strict=True)]
    assert_close([pool.keys, pool.prompts], expected)


@pytest.mark.parametrize("tokens_at_once", [0, 10_000], ids=["one by one", "side by side"])
@pytest.mark.parametrize("kind", [ReptileLearner, BmgLearner])
def test_a_meta_batch_averages_what_its_tasks_teach(mlm: LoadedMLM, kind: Any, tokens_at_once: int) -> None:
    setting = Setting(mlm, kind=PackedClassifier, tokens_at_once=tokens_at_once)
    query = {**setting.task.query, "label": torch.tensor([2, 1, 0, 0])}
    other = replace(setting.task, index=8, query=query)
    pool = setting.template.pool
    learner = kind(pool, setting.base, torch.optim.SGD(pool.parameters(), lr=0.0), PoolClones(pool, ALPHA), STEPS)
    gradients = []
    for tasks in ([setting.task], [other], [setting.task, other]):
        learner.meta_step(tasks)
        gradients.append(pool.prompts.grad.clone())
    assert torch.allclose(gradients[2], (gradients[0] + gradients[1]) / 2, rtol=1e-8, atol=1e-13)
    assert not torch.allclose(gradients[0], gradients[1], rtol=1e-3)


@pytest.mark.parametrize("target_steps", [1, 3])
@pytest.mark.parametrize("first_order", [True, False])
def test_bmg_matches_predictions_with_a_target_some_steps_further(
    mlm: LoadedMLM, first_order: bool, target_steps: int
) -> None:
    setting = Setting(mlm)
    start = start_of(setting)
    now = list(start)
    for _ in range(STEPS):
        now = stepped(support_loss(setting, now), now, first_order)
    further = [p.detach().requires_grad_() for p in now]
    for _ in range(target_steps - 1):
        further = [p.detach().requires_grad_() for p in stepped(support_loss(setting, further), further)]
    further = stepped(query_loss(setting, further), further)
    target = query_predictions(setting, further).detach()
    expected = torch.autograd.grad(divergence(target, query_predictions(setting, now)), start)
    found = gradients_of(setting, BmgLearner, first_order, target_steps=target_steps)
    assert_close(found, list(expected))
    assert bool(found[1].abs().max() > 0)


@pytest.mark.parametrize("label_embeddings", ["adapted", "last_inner_step"])
@pytest.mark.parametrize("kind", [WarpVerbalizer, ProtoVerbalizer, ManualVerbalizer])
@pytest.mark.parametrize("learner", [ReptileLearner, BmgLearner])
def test_every_verbalizer_goes_with_every_learner(
    mlm: LoadedMLM, learner: Any, kind: Any, label_embeddings: Any
) -> None:
    verbalizer = kind(tokenizer=mlm.tokenizer, model=mlm.model).double()
    setting = Setting(mlm, verbalizer, PackedClassifier, label_embeddings=label_embeddings)
    pool = setting.template.pool
    before = pool.prompts.detach().clone()
    learner(
        pool, setting.base, torch.optim.Adam(pool.parameters(), lr=1e-2), PoolClones(pool, ALPHA), STEPS
    ).meta_step([setting.task])
    assert not torch.equal(before, pool.prompts)
    assert bool(torch.isfinite(pool.prompts).all())


# -- the whole language model, in place ---------------------------------------------------------------------------


class Whole:
    """A setting whose language model is tuned with the prompts, and the same written out by hand on a copy."""

    def __init__(
        self, mlm: LoadedMLM, optimizer: Any = "sgd", kind: type[MaskClassifier] = MaskOnlyClassifier
    ) -> None:
        self.setting = Setting(mlm, kind=kind)
        self.model = mlm.model.requires_grad_(True)
        self.pool = self.setting.template.pool
        self.parameters = [self.pool.prompts, *self.model.parameters()]
        steps = [
            InnerSteps([self.pool.prompts], ALPHA),
            InnerSteps(list(self.model.parameters()), MODEL_LR, optimizer),
        ]
        self.adapter = InPlace(self.pool, steps)
        # By hand: a copy of everything, stepped by its own optimisers.
        self.copy = copy.deepcopy(mlm.model)
        self.prompts = nn.Parameter(self.pool.prompts.detach().clone())
        self.copied = [self.prompts, *self.copy.parameters()]
        self.setting.mlm = self.copy
        of_model = torch.optim.Adam if optimizer == "adam" else torch.optim.SGD
        self.optimizers = [
            torch.optim.SGD([self.prompts], lr=ALPHA),
            of_model(list(self.copy.parameters()), lr=MODEL_LR),
        ]

    def learner(self, kind: Any, lr: float = 0.0, **more: Any) -> Any:
        learned = nn.ParameterList(self.parameters)
        optimizer = torch.optim.SGD(self.parameters, lr=lr)
        return kind(learned, self.setting.base, optimizer, inner_steps=STEPS, adapter=self.adapter, **more)

    @property
    def now(self) -> list[Tensor]:
        return [self.pool.keys.detach(), self.prompts]

    def step(self, loss: Tensor) -> None:
        for optimizer in self.optimizers:
            optimizer.zero_grad()
        loss.backward()
        for optimizer in self.optimizers:
            optimizer.step()

    def adapt(self, steps: int) -> None:
        for _ in range(steps):
            self.step(support_loss(self.setting, self.now))

    def gradients(self, loss: Tensor) -> list[Tensor | None]:
        return list(torch.autograd.grad(loss, self.copied, allow_unused=True))

    def assert_gradients(self, expected: list[Tensor | None]) -> None:
        assert sum(gradient is not None for gradient in expected) > 20
        for parameter, gradient in zip(self.parameters, expected, strict=True):
            if gradient is None:
                assert parameter.grad is None or not parameter.grad.any()
            else:
                assert torch.allclose(parameter.grad, gradient, rtol=1e-6, atol=1e-10)


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
@pytest.mark.parametrize("kind", [MaskClassifier, MaskOnlyClassifier])
def test_maml_over_a_whole_model_is_the_gradient_at_the_adapted_weights(
    mlm: LoadedMLM, kind: type[MaskClassifier], optimizer: str
) -> None:
    whole = Whole(mlm, optimizer, kind)
    whole.adapt(STEPS)
    expected = whole.gradients(query_loss(whole.setting, whole.now))
    whole.learner(MamlLearner).meta_step([whole.setting.task])
    whole.assert_gradients(expected)


def test_reptile_over_a_whole_model_is_the_way_from_the_start(mlm: LoadedMLM) -> None:
    whole = Whole(mlm)
    start = [parameter.detach().clone() for parameter in whole.copied]
    whole.adapt(STEPS)
    whole.step(query_loss(whole.setting, whole.now))
    moved = [one - two.detach() for one, two in zip(start, whole.copied, strict=True)]
    whole.learner(ReptileLearner).meta_step([whole.setting.task])
    whole.assert_gradients(list(moved))


@pytest.mark.parametrize("target_steps", [1, 2])
def test_bmg_over_a_whole_model_matches_a_target_and_comes_back(mlm: LoadedMLM, target_steps: int) -> None:
    whole = Whole(mlm)
    whole.adapt(STEPS)
    halfway = [parameter.detach().clone() for parameter in whole.copied]
    whole.adapt(target_steps - 1)
    whole.step(query_loss(whole.setting, whole.now))
    target = query_predictions(whole.setting, whole.now).detach()
    with torch.no_grad():
        for parameter, before in zip(whole.copied, halfway, strict=True):
            parameter.copy_(before)
    expected = whole.gradients(divergence(target, query_predictions(whole.setting, whole.now)))
    whole.learner(BmgLearner, target_steps=target_steps).meta_step([whole.setting.task])
    whole.assert_gradients(expected)


@pytest.mark.parametrize("kind", [MamlLearner, ReptileLearner, BmgLearner])
def test_a_meta_batch_over_a_whole_model_averages_what_its_tasks_teach(mlm: LoadedMLM, kind: Any) -> None:
    whole = Whole(mlm)
    task = whole.setting.task
    other = replace(task, index=8, query={**task.query, "label": torch.tensor([2, 1, 0, 0])})
    learner = whole.learner(kind)
    gradients = []
    for tasks in ([task], [other], [task, other]):
        learner.meta_step(tasks)
        gradients.append([None if p.grad is None else p.grad.clone() for p in whole.parameters])
    for one, two, both in zip(*gradients, strict=True):
        assert both is None or torch.allclose(both, (one + two) / 2, rtol=1e-7, atol=1e-12)


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_no_task_leaks_into_the_next(mlm: LoadedMLM, optimizer: str) -> None:
    whole = Whole(mlm, optimizer)
    before = [parameter.detach().clone() for parameter in whole.parameters]
    learner = AdaptingLearner(whole.setting.base, whole.adapter)
    first = learner.evaluate(whole.setting.task, 4)
    assert all(torch.equal(one, two) for one, two in zip(whole.parameters, before, strict=True))
    learner.evaluate(replace(whole.setting.task, index=8, support=whole.setting.task.support), 2)
    again = learner.evaluate(whole.setting.task, 4)
    assert torch.equal(first.log_probabilities, again.log_probabilities)
    assert not torch.equal(first.log_probabilities, learner.evaluate(whole.setting.task, 0).log_probabilities)
    assert all(torch.equal(one, two) for one, two in zip(whole.parameters, before, strict=True))
    assert all(parameter.grad is None for parameter in whole.parameters)


def test_learning_nothing_puts_every_bit_back(mlm: LoadedMLM) -> None:
    for kind in (MamlLearner, ReptileLearner, BmgLearner):
        whole = Whole(mlm)
        before = [parameter.detach().clone() for parameter in whole.parameters]
        whole.learner(kind, lr=0.0).meta_step([whole.setting.task])
        assert all(torch.equal(one, two) for one, two in zip(whole.parameters, before, strict=True))


def test_a_task_that_fails_halfway_puts_every_bit_back(mlm: LoadedMLM) -> None:
    whole = Whole(mlm)
    before = [parameter.detach().clone() for parameter in whole.parameters]
    steps = [InnerSteps(whole.parameters, 1e200)]  # the first step is huge, the loss after it is not a number
    learner = AdaptingLearner(whole.setting.base, InPlace(whole.pool, steps))
    with pytest.raises(NotFiniteError):
        learner.evaluate(whole.setting.task, 3)
    assert all(torch.equal(one, two) for one, two in zip(whole.parameters, before, strict=True))


def test_memory_to_put_back_is_taken_once_not_for_each_task(mlm: LoadedMLM) -> None:
    whole = Whole(mlm)
    learner = AdaptingLearner(whole.setting.base, whole.adapter)
    places = []
    for index in range(3):
        learner.evaluate(replace(whole.setting.task, index=index), 1)
        places.append([kept.data_ptr() for kept in whole.adapter._start.kept])
    assert places[0] == places[1] == places[2]
    assert not whole.adapter._halfway.kept, "only BMG goes further and comes back"


def test_a_verbalizers_own_parameters_are_tuned_along_if_asked_for(mlm: LoadedMLM) -> None:
    losses = {}
    for along in (None, (0.5, "sgd")):
        verbalizer = WarpVerbalizer(mlm.tokenizer, mlm.model, fit_steps=0)
        setting = Setting(mlm, verbalizer, MaskOnlyClassifier)
        mlm.model.requires_grad_(True)
        adapter = InPlace(setting.template.pool, [InnerSteps(list(mlm.model.parameters()), 1e-12)], along)
        losses[along] = AdaptingLearner(setting.base, adapter).evaluate(setting.task, 3).inner_losses
    assert losses[None] == pytest.approx([losses[None][0]] * 3, rel=1e-6)
    assert losses[0.5, "sgd"][2] < losses[0.5, "sgd"][0]
