"""WARP's and DART's verbalizers: learnable label embeddings, compared by inner product."""

from __future__ import annotations

import copy
import math

import pytest
import torch

from openprompt_meta.errors import VerbalizerError
from openprompt_meta.verbalizers.manual import ManualVerbalizer
from openprompt_meta.verbalizers.warp import DartVerbalizer, WarpVerbalizer
from tests.helpers.prompts import CLASSES, WORDS, batch_of, classifier, close, dot, mean_of, pool_template, softmax

pytestmark = pytest.mark.prompts


@pytest.fixture
def bert(tiny):
    return tiny("bert")


def support(shots=(2, 3, 1), seed=0):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.tensor([label for label, count in enumerate(shots) for _ in range(count)])
    return torch.randn(len(labels), 32, generator=generator) + labels.unsqueeze(1), labels


def test_predictions_are_the_softmax_of_inner_products(bert):
    verbalizer = WarpVerbalizer(bert.tokenizer, bert.model, CLASSES, init_std=0.5)
    features, _ = support()
    own = verbalizer.label_embeddings.double().tolist()
    expected = [[math.log(p) for p in softmax([dot(v, h) for v in own])] for h in features.double().tolist()]
    found = verbalizer.process_outputs(features)
    close(found, expected, 1e-5)
    close(found.exp().sum(dim=-1), [1.0] * 6, 1e-5)


def test_label_embeddings_start_normal_with_the_given_deviation(bert):
    verbalizer = WarpVerbalizer(bert.tokenizer, bert.model, num_classes=200, init_std=0.05)
    assert verbalizer.label_embeddings.shape == (200, 32)
    assert verbalizer.label_embeddings.std().item() == pytest.approx(0.05, rel=0.05)


def test_dart_starts_from_the_mean_input_embedding_of_each_classs_words(tiny):
    for family in ("bert", "roberta", "mpnet"):
        mlm = tiny(family)
        verbalizer = DartVerbalizer(mlm.tokenizer, mlm.model, CLASSES, label_words={**WORDS, "other": ["sky"]})
        embedding = mlm.model.get_input_embeddings().weight.double().tolist()
        expected = [
            mean_of(
                [embedding[i] for word in WORDS[c] for i in mlm.tokenizer.encode(f" {word}", add_special_tokens=False)]
            )
            for c in CLASSES
        ]
        close(verbalizer.label_embeddings, expected, 1e-6)
        assert verbalizer.label_embeddings.requires_grad


def test_label_embeddings_are_the_only_parameters_and_learn_in_an_ordinary_loop(bert):
    template = pool_template(bert)
    verbalizer = WarpVerbalizer(bert.tokenizer, bert.model, CLASSES)
    assert [name for name, _ in verbalizer.named_parameters()] == ["label_embeddings"]
    model = classifier(bert, template, verbalizer, freeze_plm=True, plm_eval_mode=True)
    optimizer = torch.optim.Adam(verbalizer.parameters(), lr=0.05)
    batch = batch_of(bert, template)
    losses = []
    for _ in range(12):
        loss = torch.nn.functional.cross_entropy(model(batch), batch["label"])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.5 * losses[0]


def test_fit_support_takes_the_asked_for_steps_of_adam_on_the_mean_loss(bert):
    verbalizer = WarpVerbalizer(bert.tokenizer, bert.model, CLASSES, fit_steps=4, fit_lr=0.03)
    features, labels = support()
    by_hand = verbalizer.label_embeddings.detach().clone().requires_grad_()
    optimizer = torch.optim.Adam([by_hand], lr=0.03)
    for _ in range(4):
        optimizer.zero_grad()
        loss = torch.zeros(())
        for h, y in zip(features, labels, strict=True):
            scores = by_hand @ h
            loss = loss - (scores[y] - torch.log(scores.exp().sum())) / len(labels)
        loss.backward()
        optimizer.step()
    with torch.no_grad():  # an evaluation loop may call it
        verbalizer.fit_support(features, None, labels)
    close(verbalizer.label_embeddings, by_hand.detach(), 1e-5)
    assert verbalizer.label_embeddings.grad is None


def test_fit_support_leaves_the_features_graph_alone(bert):
    verbalizer = WarpVerbalizer(bert.tokenizer, bert.model, CLASSES)
    features, labels = support()
    features.requires_grad_()
    verbalizer.fit_support(features * 2, None, labels)
    assert features.grad is None


def test_no_steps_leave_all_learning_to_an_optimiser_outside(bert):
    verbalizer = WarpVerbalizer(bert.tokenizer, bert.model, CLASSES, fit_steps=0)
    before = verbalizer.label_embeddings.clone()
    verbalizer.fit_support(support()[0], None, support()[1])
    assert torch.equal(verbalizer.label_embeddings, before)


def test_each_task_starts_anew_with_its_own_number_of_classes(bert):
    verbalizer = DartVerbalizer(bert.tokenizer, bert.model)
    for classes in (CLASSES, CLASSES[:2]):
        verbalizer.begin_task(classes, WORDS)
        start = verbalizer.label_embeddings.detach().clone()
        features, labels = support([2] * len(classes))
        verbalizer.fit_support(features, None, labels)
        assert not torch.equal(verbalizer.label_embeddings, start)
        verbalizer.begin_task(classes, WORDS)
        assert torch.equal(verbalizer.label_embeddings, start)
        assert verbalizer.process_outputs(features).shape == (2 * len(classes), len(classes))


def test_lambda_mixes_with_hand_crafted_words(bert):
    verbalizer = WarpVerbalizer(bert.tokenizer, bert.model, CLASSES, mix_lambda=0.25, label_words=WORDS, init_std=0.5)
    features, logits = torch.randn(4, 32), torch.randn(4, len(bert.tokenizer))
    words = ManualVerbalizer(bert.tokenizer, CLASSES, label_words=WORDS).process_logits(logits).exp()
    soft = (features @ verbalizer.label_embeddings.T).softmax(dim=-1)
    close(verbalizer.process_outputs([features, logits]).exp(), (0.75 * words + 0.25 * soft).detach(), 1e-6)


def test_a_deep_copy_does_not_copy_the_language_model(bert):
    verbalizer = WarpVerbalizer(bert.tokenizer, bert.model, CLASSES)
    twin = copy.deepcopy(verbalizer)
    twin.begin_task(["a", "b"])
    assert twin._model.model is bert.model


def test_what_cannot_work_is_refused(tiny, bert):
    with pytest.raises(VerbalizerError, match="dart_verbalizer starts from label words: give some for each class"):
        DartVerbalizer(bert.tokenizer, bert.model, CLASSES)
    with pytest.raises(
        VerbalizerError, match=r"16 wide in ElectraForMaskedLM, while its features are 32 wide. Use warp_"
    ):
        DartVerbalizer(tiny("electra").tokenizer, tiny("electra").model, CLASSES, label_words=WORDS)
    with pytest.raises(VerbalizerError, match=r"makes nothing of the label words of 'food'"):
        DartVerbalizer(bert.tokenizer, bert.model, CLASSES, label_words={**WORDS, "food": ["\x00"]})
    with pytest.raises(VerbalizerError, match="does not know its classes: give classes, or call begin_task"):
        WarpVerbalizer(bert.tokenizer, bert.model).process_outputs(torch.zeros(1, 32))
    features, labels = support()
    with pytest.raises(VerbalizerError, match="No support example for class 'food'"):
        WarpVerbalizer(bert.tokenizer, bert.model, CLASSES).fit_support(features[:5], None, labels[:5])
