"""ProtoVerbalizer: OpenPrompt's where that runs, and a loop over examples where it does not."""

from __future__ import annotations

import logging
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from openprompt import PromptDataLoader
from openprompt.prompts import ProtoVerbalizer as OpenPromptProtoVerbalizer

from openprompt_meta.errors import VerbalizerError
from openprompt_meta.verbalizers.proto import ProtoVerbalizer, prototype_loss
from tests.helpers.prompts import (
    CLASSES,
    WORDS,
    batch_of,
    classifier,
    close,
    cosine,
    examples,
    hidden_at_mask,
    pool_template,
)

pytestmark = pytest.mark.prompts


@pytest.fixture
def bert(tiny):
    return tiny("bert")


def labelled(shots, size=32, seed=0, dtype=torch.float32):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.tensor([label for label, count in enumerate(shots) for _ in range(count)])
    features = torch.randn(len(labels), size, generator=generator, dtype=dtype) + labels.unsqueeze(1)
    order = torch.randperm(len(labels), generator=generator)
    return features[order], labels[order]


def stacked(features, labels):
    """OpenPrompt's order: ``[C, shots, d]``."""
    return torch.stack([features[labels == c] for c in range(int(labels.max()) + 1)])


def twins(mlm, **options) -> tuple[ProtoVerbalizer, OpenPromptProtoVerbalizer]:
    """Ours and OpenPrompt's with the same projection and prototypes."""
    ours = ProtoVerbalizer(mlm.tokenizer, mlm.model, CLASSES, label_words=WORDS, **options)
    stock = OpenPromptProtoVerbalizer(mlm.tokenizer, mlm.model, CLASSES, label_words=WORDS, **options)
    with torch.no_grad():
        stock.head.weight.copy_(ours.head.weight)
        stock.proto.copy_(ours.proto)
    return ours, stock


def train_stock(stock, features, labels) -> None:
    """OpenPrompt's ``train_proto`` after its loop over batches, which only runs on CUDA."""
    embeds = stacked(features, labels)
    for _ in range(stock.epochs):
        stock.optimizer.zero_grad()
        stock.pcl_loss(stock.head(embeds)).backward()
        stock.optimizer.step()
    stock.trained = True


def loss_by_loops(embeddings, labels, prototypes) -> float:
    x, y, p = embeddings.tolist(), labels.tolist(), prototypes.tolist()
    n, prototype_part, instance_part = len(x), 0.0, 0.0
    for i in range(n):
        powers = [math.exp(cosine(x[i], prototype)) for prototype in p]
        prototype_part -= math.log(powers[y[i]] / math.fsum(powers))
    for anchor in range(n):
        negatives = math.fsum(math.exp(cosine(x[j], x[anchor])) for j in range(n) if y[j] != y[anchor])
        for i in range(n):
            if y[i] == y[anchor]:
                positive = math.exp(cosine(x[i], x[anchor]))
                instance_part -= math.log(positive / (positive + negatives))
    return prototype_part / (n * len(p)) + instance_part / n**2


# -- losses ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shots", [1, 2, 4])
def test_the_loss_and_its_gradient_equal_openprompts_for_equal_shots(bert, shots):
    _, stock = twins(bert)
    features, labels = labelled([shots] * 3)
    by_class = stacked(features, labels)
    theirs = stock.pcl_loss(stock.head(by_class))
    their_gradient = torch.autograd.grad(theirs, [stock.head.weight, stock.proto])
    ours = prototype_loss(stock.head(features), labels, stock.proto)
    our_gradient = torch.autograd.grad(ours, [stock.head.weight, stock.proto])
    close(ours, theirs.detach(), 1e-6)
    for one, other in zip(our_gradient, their_gradient, strict=True):
        close(one, other, 1e-6)


@settings(max_examples=25, deadline=None, derandomize=True)
@given(st.lists(st.integers(1, 4), min_size=2, max_size=4), st.integers(2, 5))
def test_the_loss_equals_loops_over_examples_for_any_shots(shots, size):
    embeddings, labels = labelled(shots, size, dtype=torch.float64)
    prototypes = torch.randn(len(shots), size, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    close(prototype_loss(embeddings, labels, prototypes), loss_by_loops(embeddings, labels, prototypes), 1e-9)


def test_gradients_of_the_loss_equal_finite_differences():
    embeddings, labels = labelled([1, 3], 3, dtype=torch.float64)
    prototypes = torch.randn(2, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(
        lambda x, p: prototype_loss(x, labels, p), (embeddings.requires_grad_(), prototypes)
    )


# -- the same as OpenPrompt's ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("multi_verb", ["multi", "proto"])
def test_learned_prototypes_and_predictions_equal_openprompts(bert, multi_verb):
    ours, stock = twins(bert, multi_verb=multi_verb, epochs=7, lr=0.01, mid_dim=16)
    features, labels = labelled([3, 3, 3])
    start = ours.proto.detach().clone()
    ours.fit_support(features, None, labels)
    train_stock(stock, features, labels)
    assert (ours.proto - start).abs().max() > 0.01
    close(ours.proto, stock.proto.detach(), 1e-5)
    close(ours.head.weight, stock.head.weight.detach(), 1e-5)
    hidden, logits = torch.randn(5, 32), torch.randn(5, len(bert.tokenizer))
    found = ours.process_outputs([hidden, logits] if ours.needs_vocabulary_head else hidden)
    theirs = stock.process_outputs((hidden, logits), batch=None)
    close(found, theirs.log_softmax(dim=-1).detach(), 1e-5)
    close(found.exp().sum(dim=-1), [1.0] * 5, 1e-5)


def test_before_training_the_ensemble_trusts_the_words_alone_as_openprompts_does(bert):
    ours, stock = twins(bert)
    hidden, logits = torch.randn(5, 32), torch.randn(5, len(bert.tokenizer))
    theirs = stock.process_outputs((hidden, logits), batch=None)
    close(ours.process_outputs([hidden, logits]), theirs.log_softmax(dim=-1), 1e-5)


def test_train_proto_learns_from_a_data_loader_on_the_models_device(bert):
    template = pool_template(bert)
    ours, stock = twins(bert)
    model = classifier(bert, template, ours)
    loader = PromptDataLoader(
        examples(),
        template,
        tokenizer=bert.tokenizer,
        tokenizer_wrapper_class=bert.wrapper,
        max_seq_length=32,
        batch_size=4,
    )
    model.train()
    ours.train_proto(model, loader, 0)
    assert model.training
    batch = batch_of(bert, template, max_seq_length=32)
    train_stock(stock, hidden_at_mask(bert, template, batch).detach(), batch["label"])
    close(ours.proto, stock.proto.detach(), 1e-5)
    assert ours.trained
    assert all(parameter.grad is None for parameter in ours.parameters())
    with pytest.raises(VerbalizerError, match="without batches"):
        ours.train_proto(model, [])


# -- beyond OpenPrompt's ---------------------------------------------------------------------------------------------


def test_unequal_shots_learn_and_separate_the_classes(bert):
    verbalizer = ProtoVerbalizer(bert.tokenizer, bert.model, CLASSES, epochs=60, lr=0.02)
    features, labels = labelled([1, 4, 2])
    with torch.no_grad():
        verbalizer.fit_support(features, None, labels)
    assert verbalizer.process_outputs(features).argmax(dim=-1).tolist() == labels.tolist()


def test_each_task_starts_from_the_same_projection_and_prototypes(bert):
    verbalizer = ProtoVerbalizer(bert.tokenizer, bert.model, CLASSES)
    first = verbalizer.proto.detach().clone()
    starts = {}
    for classes in (CLASSES, CLASSES[:2], CLASSES, ["a", "b"]):
        verbalizer.begin_task(classes)
        assert not verbalizer.trained
        start = torch.cat([verbalizer.head.weight.flatten(), verbalizer.proto.flatten()]).detach().clone()
        assert torch.equal(starts.setdefault(len(classes), start), start)
        features, labels = labelled([2] * len(classes))
        verbalizer.fit_support(features, None, labels)
        learned = torch.cat([verbalizer.head.weight.flatten(), verbalizer.proto.flatten()]).detach()
        assert (learned - start).abs().max() > 1e-3
        assert verbalizer.process_outputs(features).shape == (len(labels), len(classes))
    verbalizer.begin_task(CLASSES)
    assert torch.equal(verbalizer.proto, first)


def test_a_task_fitted_twice_alike_learns_the_same(bert):
    verbalizer = ProtoVerbalizer(bert.tokenizer, bert.model)
    features, labels = labelled([2, 3, 1])
    learned = []
    for _ in range(2):
        verbalizer.begin_task(CLASSES)
        verbalizer.fit_support(features, None, labels)
        learned.append(verbalizer.proto.detach().clone())
    assert torch.equal(*learned)


def test_lambda_mixes_prototypes_with_hand_crafted_words(bert):
    verbalizer = ProtoVerbalizer(bert.tokenizer, bert.model, CLASSES, label_words=WORDS, mix_lambda=0.5)
    assert verbalizer.multi_verb == "proto"
    features, labels = labelled([2, 2, 2])
    verbalizer.fit_support(features, None, labels)
    hidden, logits = torch.randn(5, 32), torch.randn(5, len(bert.tokenizer))
    words = verbalizer.hand_crafted.process_logits(logits).exp()
    soft = verbalizer.sim(verbalizer.head(hidden), verbalizer.proto).softmax(dim=-1)
    close(verbalizer.process_outputs([hidden, logits]).exp(), (0.5 * words + 0.5 * soft).detach(), 1e-6)


@pytest.mark.parametrize("mix_lambda", [0.5, 1.0])
def test_openprompts_arguments_reach_the_hand_crafted_part(bert, mix_lambda):
    verbalizer = ProtoVerbalizer(
        bert.tokenizer,
        bert.model,
        CLASSES,
        label_words=WORDS,
        mix_lambda=mix_lambda,
        multi_token_handler="max",  # noqa: S106
        prefix="",
    )
    assert verbalizer.hand_crafted.multi_token_handler == "max"  # noqa: S105
    assert verbalizer.hand_crafted.prefix == ""


def test_without_label_words_it_needs_no_vocabulary_head(bert):
    verbalizer = ProtoVerbalizer(bert.tokenizer, bert.model.bert, CLASSES)
    assert verbalizer.multi_verb == "proto"
    assert not verbalizer.needs_vocabulary_head
    assert {name for name, _ in verbalizer.named_parameters()} == {"head.weight", "proto"}


def test_learning_is_logged_and_not_printed(bert, caplog, capsys):
    verbalizer = ProtoVerbalizer(bert.tokenizer, bert.model, CLASSES)
    with caplog.at_level(logging.DEBUG, logger="openprompt_meta"):
        verbalizer.fit_support(*_with_none(labelled([2, 2, 2])))
    assert "Prototypes learned in 5 steps" in caplog.text
    assert capsys.readouterr().out == ""


def _with_none(pair):
    return pair[0], None, pair[1]


def test_what_cannot_work_is_refused(bert):
    with pytest.raises(VerbalizerError, match="multi, proto; got 'both'"):
        ProtoVerbalizer(bert.tokenizer, bert.model, CLASSES, multi_verb="both")
    with pytest.raises(VerbalizerError, match="two ways to bring in hand-crafted words; choose one"):
        ProtoVerbalizer(bert.tokenizer, bert.model, CLASSES, label_words=WORDS, multi_verb="multi", mix_lambda=0.5)
    with pytest.raises(VerbalizerError, match="multi_verb: multi needs predictions of words, and BertModel has no"):
        ProtoVerbalizer(bert.tokenizer, bert.model.bert, CLASSES, label_words=WORDS)
    verbalizer = ProtoVerbalizer(bert.tokenizer, bert.model, CLASSES)
    features, labels = labelled([2, 2])
    with pytest.raises(VerbalizerError, match="No support example for class 'food'"):
        verbalizer.fit_support(features, None, labels)
