"""Reading the [MASK] with less work gives what OpenPrompt's own classes give."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from openprompt import PromptForClassification

from openprompt_meta.encoder.batching import divide_batch, length_groups
from openprompt_meta.encoder.classifier import MaskClassifier, MaskOnlyClassifier, vocabulary_head
from openprompt_meta.encoder.loading import LoadedMLM
from openprompt_meta.encoder.texts import TokenizedTexts
from openprompt_meta.prompts.pool_template import PromptPoolTemplate
from openprompt_meta.prompts.pooling import FEATURES
from openprompt_meta.verbalizers.manual import ManualVerbalizer
from openprompt_meta.verbalizers.proto import ProtoVerbalizer
from openprompt_meta.verbalizers.rep import RepVerbalizer
from openprompt_meta.verbalizers.warp import DartVerbalizer, WarpVerbalizer
from tests.helpers.tiny_models import FAMILIES, LABEL_WORDS

pytestmark = pytest.mark.prompts

TEXT = '{"placeholder": "text_a"} {"pool"} topic is {"mask"}.'
# Very different lengths, so that the batch is divided.
TEXTS = [
    "rain",
    "a storm at night " * 40,
    "the player",
    "we want soup in the city " * 30,
    "win",
    "",
    "a good game " * 60,
]
CLASSES = list(LABEL_WORDS)


def template_of(mlm: LoadedMLM, features: str = "mask") -> PromptPoolTemplate:
    return PromptPoolTemplate(
        mlm.model, mlm.tokenizer, TEXT, num_prompts=3, prompt_length=2, seed=0, features=features
    )


def texts_of(mlm: LoadedMLM, template: PromptPoolTemplate, texts: Sequence[str] = TEXTS) -> TokenizedTexts:
    return TokenizedTexts(texts, template, mlm.wrapper(tokenizer=mlm.tokenizer, max_seq_length=300))


@pytest.mark.parametrize("features", FEATURES)
@pytest.mark.parametrize("family", FAMILIES)
def test_less_work_gives_the_same_predictions_and_gradients(
    family: str, features: str, tiny: Callable[[str], LoadedMLM]
) -> None:
    mlm = tiny(family)
    template = template_of(mlm, features)
    torch.manual_seed(0)
    verbalizer = WarpVerbalizer(
        mlm.tokenizer,
        mlm.model,
        CLASSES,
        init_std=1.0,
        mix_lambda=0.5,
        label_words=LABEL_WORDS,
        feature_size=template.feature_size,
    )
    batch = texts_of(mlm, template).batch(range(len(TEXTS)), [0, 1, 2, 3, 0, 1, 2])
    found = []
    for kind in (PromptForClassification, MaskClassifier, MaskOnlyClassifier):
        classifier = kind(mlm.model, template, verbalizer, freeze_plm=True, plm_eval_mode=True)
        predicted = classifier(batch)
        template.pool.zero_grad()
        predicted[:, 0].sum().backward()
        found.append((predicted.detach(), template.pool.prompts.grad.clone(), template.pool.keys.grad.clone()))
    for other in found[1:]:
        for one, two in zip(found[0], other, strict=True):
            assert torch.allclose(one, two, rtol=1e-4, atol=1e-5)


def test_no_vocabulary_head_is_run_for_a_verbalizer_that_needs_none(tiny: Callable[[str], LoadedMLM]) -> None:
    mlm = tiny("bert")
    template = template_of(mlm)
    classifier = MaskOnlyClassifier(mlm.model, template, RepVerbalizer(mlm.tokenizer, mlm.model))
    mlm.model.cls.forward = None  # any call would fail
    reading = classifier.read(texts_of(mlm, template).batch([0, 1]))
    assert reading.logits is None
    assert reading.features.shape == (2, mlm.config.hidden_size)


def test_a_head_that_disagrees_with_the_model_is_not_trusted(tiny: Callable[[str], LoadedMLM]) -> None:
    mlm = tiny("bert")
    assert vocabulary_head(mlm.model) is not None
    head = mlm.model.cls
    mlm.model.forward = lambda *args, real=mlm.model.forward, **kwargs: _doubled(real(*args, **kwargs))
    assert vocabulary_head(mlm.model) is None
    assert mlm.model.cls is head


def _doubled(outputs):  # type: ignore[no-untyped-def]
    outputs.logits = 2 * outputs.logits
    return outputs


def test_a_batch_does_not_depend_on_what_was_asked_for_before(tiny: Callable[[str], LoadedMLM]) -> None:
    # Resuming relies on it: a resumed run asks for texts in another order than the straight one did.
    mlm = tiny("bert")
    template = template_of(mlm)
    fresh, used = texts_of(mlm, template), texts_of(mlm, template)
    used.batch([6, 3, 1])
    used.batch([0, 2])
    one, two = fresh.batch([0, 1, 2]), used.batch([0, 1, 2])
    assert one.keys() == two.keys()
    assert all(torch.equal(one[key], two[key]) for key in one)


def test_batches_equal_those_of_openprompts_data_loader_without_its_padding(tiny: Callable[[str], LoadedMLM]) -> None:
    from openprompt import PromptDataLoader
    from openprompt.data_utils import InputExample

    mlm = tiny("roberta")
    template = template_of(mlm)
    examples = [InputExample(guid=str(i), text_a=text) for i, text in enumerate(TEXTS)]
    (theirs,) = PromptDataLoader(
        examples,
        template,
        tokenizer=mlm.tokenizer,
        tokenizer_wrapper_class=mlm.wrapper,
        max_seq_length=300,
        batch_size=len(examples),
    )
    ours = texts_of(mlm, template).batch(range(len(TEXTS)))
    length = ours["input_ids"].shape[1]
    for key in ("input_ids", "attention_mask", "loss_ids", "soft_token_ids"):
        assert torch.equal(ours[key], theirs[key][:, :length])
    assert int(theirs["attention_mask"][:, length:].sum()) == 0


@given(st.lists(st.integers(1, 300), min_size=1, max_size=9), st.integers(0, 400))
@settings(deadline=None, derandomize=True, max_examples=60)
def test_groups_are_the_cheapest_of_all_divisions(lengths: list[int], pass_cost: int) -> None:
    def cost(groups: list[list[int]]) -> int:
        return sum(len(group) * max(lengths[row] for row in group) + pass_cost for group in groups)

    def divisions(rows: list[int]) -> list[list[list[int]]]:
        if not rows:
            return [[]]
        return [[rows[:n], *rest] for n in range(1, len(rows) + 1) for rest in divisions(rows[n:])]

    found = length_groups(lengths, pass_cost)
    assert sorted(row for group in found for row in group) == list(range(len(lengths)))
    ordered = sorted(range(len(lengths)), key=lengths.__getitem__)
    assert cost(found) == min(cost(division) for division in divisions(ordered))


def test_a_divided_batch_is_put_together_in_its_own_order() -> None:
    mask = torch.tensor([[1] * n + [0] * (600 - n) for n in (3, 600, 4, 590, 2)])
    batch = {"attention_mask": mask, "input_ids": mask * torch.arange(1, 6).unsqueeze(1), "label": torch.arange(5)}
    parts, where = divide_batch(batch)
    assert [part["input_ids"].shape[1] for part in parts] == [4, 600]
    assert torch.equal(torch.cat([part["label"] for part in parts])[where], torch.arange(5))


def test_a_model_in_half_precision_is_judged_in_single(tiny: Callable[[str], LoadedMLM]) -> None:
    mlm = tiny("bert")
    template = template_of(mlm)
    verbalizer = ManualVerbalizer(mlm.tokenizer, CLASSES, label_words=LABEL_WORDS)
    batch = texts_of(mlm, template).batch(range(len(TEXTS)))
    exact = MaskOnlyClassifier(mlm.model, template, verbalizer)(batch)
    mlm.model.to(torch.bfloat16)
    for kind in (MaskClassifier, MaskOnlyClassifier):
        reading = kind(mlm.model, template, verbalizer).read(batch)
        assert reading.features.dtype == torch.float32
        rough = verbalizer.log_probabilities(*reading)
        assert torch.allclose(rough.exp(), exact.exp(), atol=0.1)
        rough.sum().backward()  # the pool, in float32, learns through it


@pytest.mark.parametrize("kind", [WarpVerbalizer, DartVerbalizer, ProtoVerbalizer])
def test_verbalizers_that_learn_work_on_a_model_in_half_precision(kind: Any, tiny: Callable[[str], LoadedMLM]) -> None:
    mlm = tiny("bert")
    mlm.model.to(torch.bfloat16)
    verbalizer = kind(tokenizer=mlm.tokenizer, model=mlm.model)
    verbalizer.begin_task(CLASSES, LABEL_WORDS)
    features = torch.randn(4, mlm.config.hidden_size)
    verbalizer.fit_support(features, None, torch.arange(4))
    assert verbalizer.log_probabilities(features, None).exp().sum().item() == pytest.approx(4, abs=1e-4)
