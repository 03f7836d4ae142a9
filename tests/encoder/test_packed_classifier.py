"""Several batches, each with its own pool, in one pass: the same numbers as one by one by OpenPrompt's own code."""

from __future__ import annotations

import copy
import shutil
from collections.abc import Callable
from typing import Any

import pytest
import torch

from openprompt_meta.encoder.classifier import MaskClassifier, MaskOnlyClassifier, vocabulary_head
from openprompt_meta.encoder.loading import LoadedMLM, load_mlm
from openprompt_meta.encoder.packed import SLOTS_OF_A_PASS, PackedClassifier, PackedEncoder
from openprompt_meta.encoder.texts import TokenizedTexts
from openprompt_meta.errors import ModelError
from openprompt_meta.prompts.pool_template import PromptPoolTemplate
from openprompt_meta.prompts.pooling import FEATURES
from openprompt_meta.verbalizers.manual import ManualVerbalizer
from openprompt_meta.verbalizers.rep import RepVerbalizer
from tests.helpers.tiny_models import LABEL_WORDS

pytestmark = pytest.mark.meta

TEXT = '{"placeholder": "text_a"} {"pool"} topic is {"mask"}.'
TEXTS = ["rain", "a storm at night " * 20, "the player", "we want soup in the city", "win", "", "a good game " * 9]
CLASSES = list(LABEL_WORDS)


@pytest.fixture(params=["bert", "roberta", "electra"])
def mlm(request: pytest.FixtureRequest, tiny_mlm_folder: Callable[[str], Any]) -> LoadedMLM:
    loaded = load_mlm(tiny_mlm_folder(request.param), attn_implementation="eager")
    loaded.model.double().requires_grad_(False).eval()
    return loaded


def setting(
    mlm: LoadedMLM, kind: type[MaskClassifier], features: str = "mask", **options: Any
) -> tuple[MaskClassifier, TokenizedTexts]:
    settings = {"num_prompts": 3, "prompt_length": 2, "seed": 0, "features": features, **options}
    template = PromptPoolTemplate(mlm.model, mlm.tokenizer, TEXT, **settings).double()
    verbalizer = ManualVerbalizer(mlm.tokenizer, CLASSES, label_words=LABEL_WORDS)
    classifier = kind(mlm.model, template, verbalizer, freeze_plm=True, plm_eval_mode=True)
    return classifier, TokenizedTexts(TEXTS, template, mlm.wrapper(tokenizer=mlm.tokenizer, max_seq_length=120))


def another_pool(classifier: MaskClassifier) -> Any:
    pool = copy.deepcopy(classifier.template.pool)
    with torch.no_grad():
        pool.prompts.mul_(-2)
        pool.keys.mul_(3)
    return pool


@pytest.mark.parametrize("features", FEATURES)
def test_batches_with_pools_of_their_own_are_read_as_one_by_one(mlm: LoadedMLM, features: str) -> None:
    found = []
    for kind in (MaskClassifier, MaskOnlyClassifier, PackedClassifier):
        classifier, texts = setting(mlm, kind, features)
        pools = [classifier.template.pool, another_pool(classifier)]
        batches = [texts.batch([1, 0, 5]), texts.batch([6, 2, 3, 4])]
        readings = classifier.encode(classifier.prepare(batches), pools)
        evaluated = torch.cat([classifier.verbalizer.log_probabilities(*reading) for reading in readings])
        gradients = torch.autograd.grad(evaluated[:, 0].sum(), [p for pool in pools for p in pool.parameters()])
        found.append([torch.cat([r.features for r in readings]).detach(), evaluated.detach(), *gradients])
    for other in found[1:]:
        for one, two in zip(found[0], other, strict=True):
            assert torch.allclose(one, two, rtol=1e-8, atol=1e-11)


@pytest.mark.parametrize("slots", [40, 4096], ids=["passes smaller than a batch", "one pass"])
@pytest.mark.parametrize("num_prompts", [1, 3])
@pytest.mark.parametrize("features", ["mask", "both"])
def test_batches_with_prefixes_of_their_own_are_read_as_one_by_one(
    mlm: LoadedMLM, features: str, num_prompts: int, slots: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(SLOTS_OF_A_PASS, "cpu", slots)
    found = []
    for kind in (MaskClassifier, MaskOnlyClassifier, PackedClassifier):
        options = {"num_prompts": num_prompts, "as_prefix": True, "prefix_strength": 0.4}
        classifier, texts = setting(mlm, kind, features, **options)
        own, other = classifier.template.pool, another_pool(classifier)
        batches = [texts.batch([1, 0]), texts.batch([6, 2, 3, 4]), texts.batch([5])]
        readings = classifier.encode(classifier.prepare(batches), [own, other, own])  # two share a pool
        evaluated = torch.cat([classifier.verbalizer.log_probabilities(*reading) for reading in readings])
        gradients = torch.autograd.grad(evaluated[:, 0].sum(), [own.prompts, other.prompts])
        found.append([torch.cat([r.features for r in readings]).detach(), evaluated.detach(), *gradients])
    for others in found[1:]:
        for one, two in zip(found[0], others, strict=True):
            assert torch.allclose(one, two, rtol=1e-8, atol=1e-11)


def test_words_at_a_mask_that_is_left_out_are_refused(tiny: Callable[[str], LoadedMLM]) -> None:
    with pytest.raises(ModelError, match="ManualVerbalizer has the \\[MASK\\] predict words"):
        setting(tiny("bert"), MaskClassifier, "mean", as_prefix=True)


def test_reading_leaves_the_template_and_what_was_laid_out_as_they_were(mlm: LoadedMLM) -> None:
    classifier, texts = setting(mlm, PackedClassifier)
    own, other = classifier.template.pool, another_pool(classifier)
    prepared = classifier.prepare([texts.batch([0, 1])])
    first = classifier.encode(prepared, [own])[0].features
    classifier.encode(prepared, [other])
    assert classifier.template.pool is own
    assert torch.equal(classifier.encode(prepared, [own])[0].features, first)


@pytest.mark.parametrize("features", FEATURES)
def test_texts_that_bring_no_query_vectors_are_read_all_the_same(mlm: LoadedMLM, features: str) -> None:
    classifier, texts = setting(mlm, PackedClassifier, features)
    batch = texts.batch(range(len(TEXTS)))
    without = {key: value for key, value in batch.items() if key != "query"}
    expected = setting(mlm, MaskClassifier, features)[0].read(without).features
    assert torch.allclose(classifier.read(without).features, expected, rtol=1e-9, atol=1e-11)


def test_a_pool_of_one_prompt_takes_one_pass(mlm: LoadedMLM, monkeypatch: pytest.MonkeyPatch) -> None:
    template = PromptPoolTemplate(mlm.model, mlm.tokenizer, TEXT, num_prompts=1, prompt_length=2, seed=0).double()
    verbalizer = ManualVerbalizer(mlm.tokenizer, CLASSES, label_words=LABEL_WORDS)
    texts = TokenizedTexts(
        TEXTS, template, mlm.wrapper(tokenizer=mlm.tokenizer, max_seq_length=120), keep_queries=False
    )
    batch = texts.batch(range(len(TEXTS)))
    asked = {**batch, "query": template.queries(batch)}
    expected = MaskClassifier(mlm.model, template, verbalizer, freeze_plm=True).eval().read(asked).features
    classifier = PackedClassifier(mlm.model, template, verbalizer, freeze_plm=True).eval()
    monkeypatch.delattr(PackedEncoder, "read_batch")
    assert torch.allclose(classifier.read(batch).features, expected, rtol=1e-9, atol=1e-11)


def test_second_derivatives_are_those_of_the_plain_path(mlm: LoadedMLM) -> None:
    found = []
    for kind in (MaskClassifier, PackedClassifier):
        classifier, texts = setting(mlm, kind)
        pool = classifier.template.pool
        loss = classifier(texts.batch([0, 3, 6]))[:, 1].sum()
        (gradient,) = torch.autograd.grad(loss, [pool.prompts], create_graph=True)
        found.append(torch.autograd.grad(gradient.square().sum(), list(pool.parameters())))
    for one, two in zip(*found, strict=True):
        assert torch.allclose(one, two, rtol=1e-7, atol=1e-10)


def test_the_head_for_wanted_words_is_a_part_of_the_whole_head(mlm: LoadedMLM) -> None:
    head = vocabulary_head(mlm.model)
    assert head is not None
    hidden = torch.randn(3, mlm.config.hidden_size, dtype=torch.float64)
    wanted = torch.tensor([2, 3, 17])
    assert torch.allclose(head(hidden, wanted), head(hidden)[:, wanted], rtol=1e-12)


def test_a_verbalizer_is_given_the_logits_of_its_words_alone(mlm: LoadedMLM) -> None:
    classifier, texts = setting(mlm, PackedClassifier)
    (reading,) = classifier.encode(classifier.prepare([texts.batch([0, 1])]), [classifier.template.pool])
    wanted = classifier.verbalizer.wanted_words
    assert reading.logits is not None
    assert reading.logits.shape == (2, len(wanted))
    assert set(wanted.tolist()) == set(classifier.verbalizer.label_words_ids.flatten().tolist())


def test_a_model_that_is_built_otherwise_is_refused_with_the_class_that_takes_it(
    tiny: Callable[[str], LoadedMLM],
) -> None:
    mlm = tiny("mpnet")
    template = PromptPoolTemplate(mlm.model, mlm.tokenizer, TEXT, num_prompts=3, prompt_length=2, seed=0)
    with pytest.raises(ModelError, match=r"not built as BERT is.*MaskOnlyClassifier"):
        PackedClassifier(mlm.model, template, RepVerbalizer(mlm.tokenizer, mlm.model))


@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler")
@pytest.mark.parametrize("slots", [40, 4096], ids=["several passes", "one pass"])
def test_compiled_layers_say_the_same(
    slots: int, tiny: Callable[[str], LoadedMLM], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(SLOTS_OF_A_PASS, "cpu", slots)
    mlm = tiny("bert")
    template = PromptPoolTemplate(mlm.model, mlm.tokenizer, TEXT, num_prompts=3, prompt_length=2, seed=0)
    texts = TokenizedTexts(TEXTS, template, mlm.wrapper(tokenizer=mlm.tokenizer, max_seq_length=120))
    found = []
    for compiled in (False, True):
        classifier = PackedClassifier(
            mlm.model, template, RepVerbalizer(mlm.tokenizer, mlm.model), freeze_plm=True, compiled=compiled
        )
        features = classifier.eval().read(texts.batch(range(len(TEXTS)))).features
        found.append([features, *torch.autograd.grad(features.square().sum(), list(template.pool.parameters()))])
    for one, two in zip(*found, strict=True):
        assert torch.allclose(one, two, rtol=1e-3, atol=1e-4)
