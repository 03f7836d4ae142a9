"""ManualVerbalizer against loops over label words and against OpenPrompt's ManualVerbalizer."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from openprompt.prompts import ManualVerbalizer as OpenPromptManualVerbalizer

from openprompt_meta.errors import VerbalizerError
from openprompt_meta.verbalizers.manual import ManualVerbalizer
from tests.helpers.prompts import CLASSES, WORDS, close, softmax

pytestmark = pytest.mark.prompts

# "xyz" and "rainy" are several tokens in every vocabulary of the tests.
MANY_TOKENS = {"weather": ["rainy", "storm"], "sport": ["xyz", "player", "goal"], "food": ["soup"]}


@pytest.fixture(params=["bert", "roberta", "mpnet"])
def tokenizer(request, tiny):
    return tiny(request.param).tokenizer


def logits_for(tokenizer, rows: int = 4, spread: float = 3.0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(5)
    return spread * torch.randn(rows, len(tokenizer), dtype=torch.float64, generator=generator)


def by_loops(tokenizer, logits, words, handler, aggregation) -> list[list[float]]:
    rows = []
    for row in logits.tolist():
        scores = []
        for own in words.values():
            values = []
            for word in own:
                tokens = [row[i] for i in tokenizer.encode(f" {word}", add_special_tokens=False)]
                values.append(
                    {"first": tokens[0], "max": max(tokens), "mean": math.fsum(tokens) / len(tokens)}[handler]
                )
            if aggregation == "logits":
                scores.append(math.fsum(values) / len(values))
            else:  # log of the mean probability; the vocabulary's normaliser is the same for every class
                scores.append(math.log(math.fsum(math.exp(v) for v in values) / len(values)))
        rows.append([math.log(p) for p in softmax(scores)])
    return rows


@pytest.mark.parametrize("words", [WORDS, MANY_TOKENS], ids=["one token a word", "several tokens a word"])
@pytest.mark.parametrize("handler", ["first", "max", "mean"])
@pytest.mark.parametrize("aggregation", ["logits", "probabilities"])
def test_predictions_equal_loops_over_words_and_tokens(tokenizer, words, handler, aggregation):
    verbalizer = ManualVerbalizer(
        tokenizer, CLASSES, label_words=words, multi_token_handler=handler, aggregation=aggregation
    )
    logits = logits_for(tokenizer)
    found = verbalizer.process_logits(logits)
    close(found, by_loops(tokenizer, logits, words, handler, aggregation), 1e-9)
    close(found.exp().sum(dim=-1), [1.0] * 4)
    assert torch.equal(verbalizer.log_probabilities(torch.empty(0), logits), found)


@pytest.mark.parametrize("handler", ["first", "max", "mean"])
@pytest.mark.parametrize("post_log_softmax", [True, False])
def test_predictions_are_the_same_distribution_as_openprompts(tokenizer, handler, post_log_softmax):
    options = {
        "label_words": MANY_TOKENS,
        "multi_token_handler": handler,
        "post_log_softmax": post_log_softmax,
    }
    ours = ManualVerbalizer(tokenizer, CLASSES, **options)
    stock = OpenPromptManualVerbalizer(tokenizer, CLASSES, **options)
    logits = logits_for(tokenizer)
    close(ours.process_logits(logits), stock.process_logits(logits).log_softmax(dim=-1).detach(), 1e-6)


def test_a_calibrated_prediction_is_the_same_distribution_as_openprompts(tokenizer):
    ours = ManualVerbalizer(tokenizer, CLASSES, label_words=WORDS)
    stock = OpenPromptManualVerbalizer(tokenizer, CLASSES, label_words=WORDS)
    logits, prior = logits_for(tokenizer), logits_for(tokenizer, 5)[4]
    plain = ours.process_logits(logits)
    for verbalizer in (ours, stock):
        verbalizer.register_calibrate_logits(prior)
    close(ours.process_logits(logits), stock.process_logits(logits).log_softmax(dim=-1), 1e-6)
    assert (ours.process_logits(logits) - plain).abs().max() > 0.01


@pytest.mark.parametrize("spread", [1e2, 1e4])
@pytest.mark.parametrize("aggregation", ["logits", "probabilities"])
def test_extreme_logits_give_finite_predictions_and_gradients(tokenizer, spread, aggregation):
    verbalizer = ManualVerbalizer(tokenizer, CLASSES, label_words=WORDS, aggregation=aggregation)
    logits = logits_for(tokenizer, spread=spread).float().requires_grad_()
    found = verbalizer.process_logits(logits)
    found.sum().backward()
    assert found.isfinite().all()
    assert logits.grad.isfinite().all()
    close(found.exp().sum(dim=-1), [1.0] * 4, 1e-5)


def test_gradients_equal_finite_differences(tokenizer):
    logits = logits_for(tokenizer, 2).requires_grad_()
    for aggregation in ("logits", "probabilities"):
        verbalizer = ManualVerbalizer(tokenizer, CLASSES, label_words=MANY_TOKENS, aggregation=aggregation)
        assert torch.autograd.gradcheck(verbalizer.process_logits, (logits,), fast_mode=True)


def test_the_logits_of_the_caller_are_left_as_they_are(tokenizer):
    logits = logits_for(tokenizer)
    before = logits.clone()
    ManualVerbalizer(tokenizer, CLASSES, label_words=MANY_TOKENS).process_logits(logits)
    assert torch.equal(logits, before)


@settings(max_examples=15, deadline=None, derandomize=True)
@given(st.lists(st.integers(1, 4), min_size=2, max_size=5))
def test_any_numbers_of_words_a_class_give_a_distribution(bert_tokenizer, counts):
    classes = [f"class {i}" for i in range(len(counts))]
    words = {name: ["rain", "game", "soup", "xyz"][:count] for name, count in zip(classes, counts, strict=True)}
    verbalizer = ManualVerbalizer(bert_tokenizer, classes, label_words=words)
    logits = logits_for(bert_tokenizer)
    close(verbalizer.process_logits(logits), by_loops(bert_tokenizer, logits, words, "first", "logits"), 1e-9)


@pytest.fixture(scope="session")
def bert_tokenizer(tiny_mlm_folder):
    from openprompt_meta.encoder.loading import load_mlm

    return load_mlm(tiny_mlm_folder("bert")).tokenizer


def test_it_has_no_parameters_and_its_words_are_buffers(tokenizer):
    verbalizer = ManualVerbalizer(tokenizer, CLASSES, label_words=WORDS)
    assert list(verbalizer.parameters()) == []
    assert set(verbalizer.state_dict()) == {"label_words_ids", "words_ids_mask", "label_words_mask"}


def test_a_new_task_replaces_classes_and_words(tokenizer):
    verbalizer = ManualVerbalizer(tokenizer)
    logits = logits_for(tokenizer)
    for words in (WORDS, {"a": ["sun"], "b": ["tax", "law"]}, MANY_TOKENS):
        verbalizer.begin_task(list(words), words)
        verbalizer.fit_support(torch.empty(0), None, torch.empty(0))
        assert verbalizer.classes == list(words)
        close(verbalizer.process_logits(logits), by_loops(tokenizer, logits, words, "first", "logits"), 1e-9)


def test_label_words_follow_the_order_of_the_classes_and_may_cover_more(tokenizer):
    logits = logits_for(tokenizer)
    straight = ManualVerbalizer(tokenizer, CLASSES, label_words=WORDS).process_logits(logits)
    turned = {"travel": ["trip"], **dict(reversed(WORDS.items()))}
    for given_words in (turned, list(WORDS.values()), [WORDS["weather"], WORDS["sport"], "soup"]):
        verbalizer = ManualVerbalizer(tokenizer, CLASSES, label_words=given_words)
        assert torch.equal(verbalizer.process_logits(logits), straight)
        nameless = ManualVerbalizer(tokenizer, num_classes=3, label_words=list(WORDS.values()))
        assert torch.equal(nameless.process_logits(logits), straight)


def test_refused_label_words_change_no_prediction_and_do_not_stop_better_ones(bert_tokenizer):
    verbalizer = ManualVerbalizer(bert_tokenizer, CLASSES, label_words=WORDS)
    logits = logits_for(bert_tokenizer)
    before = verbalizer.process_logits(logits)
    with pytest.raises(VerbalizerError):
        verbalizer.label_words = [["rain"], ["game"], ["\x00"]]
    assert torch.equal(verbalizer.process_logits(logits), before)
    verbalizer.label_words = [["sun"], ["tax"], ["law"]]
    expected = by_loops(bert_tokenizer, logits, {"a": ["sun"], "b": ["tax"], "c": ["law"]}, "first", "logits")
    close(verbalizer.process_logits(logits), expected, 1e-9)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"aggregation": "sum"}, ["logits, probabilities", "'sum'"]),
        ({"multi_token_handler": "last"}, ["first, max, mean", "'last'"]),
        (
            {"label_words": {"weather": ["rain"]}},
            ["No label words for 'sport', 'food'", "there are some for 'weather'"],
        ),
        ({"label_words": [["rain"], ["game"]]}, ["2 lists of label words", "3 classes", "in their order"]),
        ({"label_words": [["rain"], ["game"], []]}, ["'food'", "empty", "at least one word"]),
        ({"label_words": [["rain"], ["game"], ["  "]]}, ["'food'", "empty"]),
        ({"label_words": {**WORDS, "food": []}}, ["No label words for 'food'"]),
    ],
)
def test_words_and_options_that_cannot_work_are_refused(bert_tokenizer, options, says):
    with pytest.raises(VerbalizerError) as caught:
        ManualVerbalizer(bert_tokenizer, CLASSES, **{"label_words": WORDS, **options})
    for part in says:
        assert part in str(caught.value)


def test_words_that_the_tokenizer_makes_nothing_of_are_refused_by_the_name_of_their_class(bert_tokenizer):
    for words in ([["rain"], ["game"], ["\x00"]], [["\x00"], ["\x00"], ["\x00"]]):
        with pytest.raises(VerbalizerError, match=r"makes nothing of the label words of .*'food'"):
            ManualVerbalizer(bert_tokenizer, CLASSES, label_words=words)


def test_a_task_needs_label_words_and_distinct_classes(bert_tokenizer):
    verbalizer = ManualVerbalizer(bert_tokenizer)
    with pytest.raises(VerbalizerError, match="needs label words for 'a', 'b'"):
        verbalizer.begin_task(["a", "b"])
    with pytest.raises(VerbalizerError, match="at least two classes with distinct names"):
        verbalizer.begin_task(["a", "a"], {"a": ["rain"]})
    with pytest.raises(VerbalizerError, match="No label words for 'b'"):
        verbalizer.begin_task(["a", "b"], {"a": ["rain"]})
    assert verbalizer.classes is None  # nothing was taken from the tasks that were refused


def test_a_prediction_before_there_are_words_says_so(bert_tokenizer):
    with pytest.raises(VerbalizerError, match="no label words yet"):
        ManualVerbalizer(bert_tokenizer, CLASSES).process_logits(logits_for(bert_tokenizer))


def test_a_model_without_a_vocabulary_head_is_refused_with_a_remedy(tiny):
    mlm = tiny("bert")
    with pytest.raises(VerbalizerError) as caught:
        ManualVerbalizer(mlm.tokenizer, CLASSES, label_words=WORDS, model=mlm.model.bert)
    for part in ("BertModel has no vocabulary head", "AutoModelForMaskedLM", "rep_verbalizer"):
        assert part in str(caught.value)
    ManualVerbalizer(mlm.tokenizer, CLASSES, label_words=WORDS, model=mlm.model)
    with pytest.raises(VerbalizerError, match="has no vocabulary head"):
        ManualVerbalizer(mlm.tokenizer, CLASSES, label_words=WORDS).gather_outputs(SimpleNamespace())
    with pytest.raises(VerbalizerError, match="needs vocabulary logits"):
        ManualVerbalizer(mlm.tokenizer, CLASSES, label_words=WORDS).log_probabilities(torch.zeros(1, 2), None)
