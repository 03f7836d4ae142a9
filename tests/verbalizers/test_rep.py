"""RepVerbalizer against loops in float64, finite differences, and an ordinary OpenPrompt loop."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from openprompt import PromptDataLoader

from openprompt_meta.errors import VerbalizerError
from openprompt_meta.verbalizers.manual import ManualVerbalizer
from openprompt_meta.verbalizers.rep import RepVerbalizer
from tests.helpers.prompts import (
    CLASSES,
    WORDS,
    batch_of,
    classifier,
    close,
    cosine,
    dot,
    examples,
    hidden_at_mask,
    mean_of,
    minus,
    pool_template,
    softmax,
)

pytestmark = pytest.mark.prompts


def data(shots: list[int], size: int = 5, queries: int = 4, seed: int = 0):
    """Features and labels of a shuffled support set with the given shots, and features to predict."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.tensor([label for label, count in enumerate(shots) for _ in range(count)])
    labels = labels[torch.randperm(len(labels), generator=generator)]
    support = torch.randn(len(labels), size, dtype=torch.float64, generator=generator) + labels.unsqueeze(1)
    query = torch.randn(queries, size, dtype=torch.float64, generator=generator) + 1
    return support, labels, query


def by_loops(support, labels, query, similarity="cosine", temperature=10.0, centring="none") -> list[list[float]]:
    support, labels, query = support.tolist(), labels.tolist(), query.tolist()
    centre = [0.0] * len(support[0])
    if centring != "none":
        centre = mean_of(support if centring == "support" else [*support, *query])
    support, query = [minus(h, centre) for h in support], [minus(h, centre) for h in query]
    own = [mean_of([h for h, y in zip(support, labels, strict=True) if y == c]) for c in range(max(labels) + 1)]
    rows = []
    for h in query:
        if similarity == "cosine":
            scores = [temperature * cosine(v, h) for v in own]
        else:
            scores = [-temperature * math.sqrt(dot(minus(h, v), minus(h, v))) for v in own]
        rows.append([math.log(p) for p in softmax(scores)])
    return rows


def fitted(shots, support, labels, **options) -> RepVerbalizer:
    verbalizer = RepVerbalizer(**options)
    verbalizer.begin_task([f"class {i}" for i in range(len(shots))])
    verbalizer.fit_support(support, None, labels)
    return verbalizer


# -- numbers ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("similarity", ["cosine", "euclidean"])
@pytest.mark.parametrize("centring", ["none", "support", "transductive"])
@settings(max_examples=12, deadline=None, derandomize=True)
@given(
    st.lists(st.integers(1, 4), min_size=2, max_size=5),
    st.integers(2, 6),
    st.integers(1, 4),
    st.sampled_from([0.5, 1.0, 10.0]),
)
def test_predictions_equal_the_papers_equations(similarity, centring, shots, size, queries, temperature):
    support, labels, query = data(shots, size, queries)
    options = {"similarity": similarity, "centring": centring, "temperature": temperature}
    verbalizer = fitted(shots, support, labels, **options)
    found = verbalizer.process_outputs(query)
    close(found, by_loops(support, labels, query, **options), 1e-9)
    close(found.exp().sum(dim=-1), [1.0] * queries)


def test_label_embeddings_are_the_means_of_their_class_with_unequal_shots():
    support, labels, _ = data([1, 3, 2])
    verbalizer = fitted([1, 3, 2], support, labels)
    expected = [mean_of(support[labels == c].tolist()) for c in range(3)]
    close(verbalizer.label_embeddings, expected)


def test_one_shot_label_embeddings_are_the_examples_themselves():
    support, labels, _ = data([1, 1, 1])
    verbalizer = fitted([1, 1, 1], support, labels)
    close(verbalizer.label_embeddings, support[labels.argsort()].tolist())


def test_temperature_is_10_unless_said_otherwise_and_sharpens():
    support, labels, query = data([2, 2])
    close(fitted([2, 2], support, labels).process_outputs(query), by_loops(support, labels, query), 1e-9)
    soft = fitted([2, 2], support, labels, temperature=1e-3).process_outputs(query).exp()
    hard = fitted([2, 2], support, labels, temperature=1e4).process_outputs(query).exp()
    close(soft, torch.full((4, 2), 0.5), 1e-2)
    assert (hard.max(dim=-1).values > 0.99).all()


def test_the_inner_temperature_holds_for_the_support_set_alone():
    support, labels, query = data([2, 3])
    verbalizer = fitted([2, 3], support, labels, inner_temperature=1.0)
    close(
        verbalizer.support_log_probabilities(support, None), by_loops(support, labels, support, temperature=1.0), 1e-9
    )
    close(verbalizer.log_probabilities(query, None), by_loops(support, labels, query), 1e-9)


def test_only_transductive_centring_makes_a_prediction_depend_on_the_rest_of_the_batch():
    support, labels, query = data([2, 3])
    for centring, depends in (("none", False), ("support", False), ("transductive", True)):
        verbalizer = fitted([2, 3], support, labels, centring=centring)
        alone = verbalizer.process_outputs(query[:1])
        together = verbalizer.process_outputs(query)[:1]
        assert torch.allclose(alone, together, atol=1e-12) is not depends


@pytest.mark.parametrize("mix_lambda", [0.0, 0.3, 1.0])
def test_lambda_mixes_probabilities_with_hand_crafted_words(tiny, mix_lambda):
    tokenizer = tiny("bert").tokenizer
    support, labels, query = data([2, 2, 2])
    logits = torch.randn(4, len(tokenizer), dtype=torch.float64)
    verbalizer = RepVerbalizer(tokenizer, mix_lambda=mix_lambda, label_words=WORDS, classes=CLASSES)
    verbalizer.begin_task(CLASSES, WORDS)
    verbalizer.fit_support(support, None, labels)
    words = ManualVerbalizer(tokenizer, CLASSES, label_words=WORDS).process_logits(logits)
    soft = torch.tensor(by_loops(support, labels, query), dtype=torch.float64)
    found = verbalizer.process_outputs(query if mix_lambda == 1 else (query, logits))
    close(found.exp(), (1 - mix_lambda) * words.exp() + mix_lambda * soft.exp(), 1e-9)
    if mix_lambda == 0:
        assert torch.equal(found, words)
    if mix_lambda == 1:
        assert not verbalizer.needs_vocabulary_head
        assert torch.equal(found, verbalizer.soft_log_probabilities(query))


# -- gradients -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("centring", ["none", "support", "transductive"])
@pytest.mark.parametrize("similarity", ["cosine", "euclidean"])
def test_gradients_through_support_and_query_equal_finite_differences(similarity, centring):
    support, labels, query = data([1, 2], size=3, queries=2)

    def run(support, query):
        return fitted([1, 2], support, labels, similarity=similarity, centring=centring).process_outputs(query)

    inputs = (support.requires_grad_(), query.requires_grad_())
    assert torch.autograd.gradcheck(run, inputs)
    assert torch.autograd.gradgradcheck(run, inputs)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("similarity", ["cosine", "euclidean"])
def test_one_shot_gradients_on_the_support_itself_are_finite(similarity, dtype):
    support, labels, _ = data([1, 1, 1])
    support = support.to(dtype).requires_grad_()
    verbalizer = fitted([1, 1, 1], support, labels, similarity=similarity)
    loss = torch.nn.functional.nll_loss(verbalizer.process_outputs(support), labels)
    (gradient,) = torch.autograd.grad(loss, support, create_graph=True)
    assert gradient.isfinite().all()
    assert gradient.abs().max() > 0
    (second,) = torch.autograd.grad(gradient.square().sum(), support)
    assert second.isfinite().all()


def test_gradients_of_the_mixture_equal_finite_differences(tiny):
    tokenizer = tiny("bert").tokenizer
    support, labels, query = data([1, 1, 1], size=3, queries=2)
    verbalizer = RepVerbalizer(tokenizer, mix_lambda=0.4, label_words=WORDS, classes=CLASSES)
    logits = torch.randn(2, len(tokenizer), dtype=torch.float64, requires_grad=True)

    def run(support, query, logits):
        verbalizer.fit_support(support, logits, labels)
        return verbalizer.process_outputs([query, logits])

    assert torch.autograd.gradcheck(run, (support.requires_grad_(), query.requires_grad_(), logits), fast_mode=True)


# -- episodes --------------------------------------------------------------------------------------------------------


def test_each_task_forgets_the_one_before():
    verbalizer = RepVerbalizer()
    for shots in ([2, 2], [1, 3, 2], [1, 1, 1, 1]):
        support, labels, query = data(shots, seed=len(shots))
        verbalizer.begin_task([f"class {i}" for i in range(len(shots))])
        with pytest.raises(VerbalizerError, match="seen no labelled example yet"):
            verbalizer.process_outputs(query)
        verbalizer.fit_support(support, None, labels)
        close(verbalizer.process_outputs(query), by_loops(support, labels, query), 1e-9)


def test_a_fitted_task_is_not_disturbed_by_labelled_batches_in_training_mode():
    support, labels, query = data([2, 2])
    verbalizer = fitted([2, 2], support, labels).train()
    before, saved = verbalizer.process_outputs(query), dict(verbalizer.state_dict())
    again = verbalizer.process_outputs(query, {"label": torch.tensor([0, 1, 1, 0])})
    assert torch.equal(again, before)
    assert all(torch.equal(value, saved[name]) for name, value in verbalizer.state_dict().items())


def test_a_task_follows_an_ordinary_loop_and_a_loop_follows_a_task():
    support, labels, query = data([2, 2])
    verbalizer = RepVerbalizer(num_classes=2)
    verbalizer.process_outputs(support, {"label": labels})
    verbalizer.begin_task(["a", "b", "c"])
    other, other_labels, _ = data([1, 2, 1], seed=3)
    verbalizer.fit_support(other, None, other_labels)
    close(verbalizer.process_outputs(query), by_loops(other, other_labels, query), 1e-9)
    verbalizer.begin_task(["a", "b"])
    verbalizer.train().process_outputs(support, {"label": labels})
    close(verbalizer.eval().process_outputs(query), by_loops(support, labels, query), 1e-9)


def test_a_class_without_support_is_an_error_that_names_it():
    support, _, _ = data([2, 2])
    verbalizer = RepVerbalizer()
    verbalizer.begin_task(["rain", "sun", "wind"])
    with pytest.raises(VerbalizerError, match=r"No support example for class 'sun'. Each class needs at least one"):
        verbalizer.fit_support(support, None, torch.tensor([0, 2, 0, 2]))
    nameless = RepVerbalizer(num_classes=3)
    with pytest.raises(VerbalizerError, match="No support example for class 1, 2"):
        nameless.fit_support(support, None, torch.tensor([0, 0, 0, 0]))


@pytest.mark.parametrize(
    ("features", "labels", "says"),
    [
        (torch.zeros(3, 4), torch.tensor([0, 1]), r"\[3, 4\] and \[2\]"),
        (torch.zeros(2, 2, 4), torch.tensor([0, 1]), r"\[2, 2, 4\]"),
        (torch.zeros(0, 4), torch.zeros(0, dtype=torch.long), r"n ≥ 1"),
        (torch.zeros(2, 4), torch.tensor([0, 3]), "between 0 and 1 for 2 classes, got 0 to 3"),
        (torch.zeros(2, 4), torch.tensor([-1, 1]), "got -1 to 1"),
    ],
)
def test_a_support_set_whose_parts_do_not_fit_is_refused(features, labels, says):
    with pytest.raises(VerbalizerError, match=says):
        RepVerbalizer(num_classes=2).fit_support(features, None, labels)


def test_labels_may_be_any_whole_numbers():
    support, labels, query = data([2, 2])
    verbalizer = fitted([2, 2], support, labels.int())
    close(verbalizer.process_outputs(query), by_loops(support, labels, query), 1e-9)


def test_classes_must_be_known():
    with pytest.raises(VerbalizerError, match="does not know its classes: give classes, or call begin_task"):
        RepVerbalizer().fit_support(torch.zeros(2, 3), None, torch.tensor([0, 1]))
    with pytest.raises(VerbalizerError, match="at least two classes"):
        RepVerbalizer().begin_task(["only"])


# -- an ordinary OpenPrompt loop -------------------------------------------------------------------------------------


def pieces(shots=(4, 3, 5), sizes=(3, 4, 5), seed=0):
    support, labels, query = data(list(shots), seed=seed)
    ends = [sum(sizes[: i + 1]) for i in range(len(sizes))]
    return [(support[end - n : end], labels[end - n : end]) for n, end in zip(sizes, ends, strict=True)], query


def test_averages_over_labelled_training_batches_are_kept_for_evaluation():
    batches, query = pieces()
    verbalizer = RepVerbalizer(num_classes=3).train()
    for features, labels in batches:
        verbalizer.process_outputs(features, {"label": labels})
    support, labels = (torch.cat(part) for part in zip(*batches, strict=True))
    verbalizer.eval()
    for _ in range(2):  # evaluation learns nothing, though its batches are labelled too
        found = verbalizer.process_outputs(query, {"label": torch.tensor([0, 0, 1, 2])})
        close(found, by_loops(support, labels, query), 1e-9)
    close(verbalizer.label_embeddings, [mean_of(support[labels == c].tolist()) for c in range(3)])


def test_a_training_batch_is_predicted_with_what_was_seen_up_to_and_with_it():
    batches, _ = pieces()
    verbalizer = RepVerbalizer(num_classes=3).train()
    (one, one_labels), (two, two_labels), _ = batches
    verbalizer.process_outputs(one, {"label": one_labels})
    found = verbalizer.process_outputs(two, {"label": two_labels})
    support, labels = torch.cat([one, two]), torch.cat([one_labels, two_labels])
    assert set(labels.tolist()) == {0, 1, 2}
    close(found, by_loops(support, labels, two), 1e-9)


def test_the_gradient_of_a_training_batch_stays_within_the_batch():
    batches, _ = pieces()
    verbalizer = RepVerbalizer(num_classes=3).train()
    (one, one_labels), (two, two_labels), _ = batches
    one, two = one.clone().requires_grad_(), two.clone().requires_grad_()
    verbalizer.process_outputs(one, {"label": one_labels}).exp().sum().backward()
    assert not verbalizer.feature_sum.requires_grad
    one.grad = None
    loss = torch.nn.functional.nll_loss(verbalizer.process_outputs(two, {"label": two_labels}), two_labels)
    loss.backward()  # a second backward through the first batch's graph would fail here
    assert one.grad is None
    assert two.grad.abs().max() > 0


def test_an_unseen_class_has_no_probability_in_training_and_is_a_named_error_in_evaluation():
    support, labels, query = data([2, 2])
    verbalizer = RepVerbalizer(classes=["rain", "sun", "wind"]).train()
    support = support.requires_grad_()
    found = verbalizer.process_outputs(support, {"label": labels})
    assert (found[:, 2] == -math.inf).all()
    close(found[:, :2], by_loops(support.detach(), labels, support.detach()), 1e-9)
    torch.nn.functional.cross_entropy(found, labels).backward()
    assert support.grad.isfinite().all()
    verbalizer.eval()
    with pytest.raises(VerbalizerError, match="No training example of class 'wind' has come by"):
        verbalizer.process_outputs(query)


def test_evaluation_before_any_training_says_what_to_do():
    with pytest.raises(VerbalizerError, match=r"seen no labelled example yet. Call fit_support, or run labelled"):
        RepVerbalizer(num_classes=2).eval().process_outputs(torch.zeros(1, 3))


def test_training_after_an_evaluation_starts_new_averages_class_by_class():
    support, labels, query = data([3, 3])
    later, later_labels, _ = data([2, 2], seed=9)
    verbalizer = RepVerbalizer(num_classes=2).train()
    verbalizer.process_outputs(support, {"label": labels})
    verbalizer.eval().process_outputs(query)
    verbalizer.train()
    ones = later_labels == 1
    verbalizer.process_outputs(later[ones], {"label": later_labels[ones]})
    verbalizer.eval()
    close(verbalizer.label_embeddings[0], mean_of(support[labels == 0].tolist()))  # not seen again yet
    close(verbalizer.label_embeddings[1], mean_of(later[ones].tolist()))  # the old round is gone
    verbalizer.train()
    verbalizer.process_outputs(later, {"label": later_labels})
    verbalizer.process_outputs(later, {"label": later_labels})  # of the same round: both count
    close(verbalizer.eval().process_outputs(query), by_loops(later, later_labels, query), 1e-9)


def test_training_mode_set_again_does_not_start_a_new_round():
    support, labels, query = data([3, 3])
    verbalizer = RepVerbalizer(num_classes=2).train()
    for part in (support[:3], labels[:3]), (support[3:], labels[3:]):
        verbalizer.train()
        verbalizer.process_outputs(part[0], {"label": part[1]})
    close(verbalizer.eval().process_outputs(query), by_loops(support, labels, query), 1e-9)


def test_decay_weighs_later_batches_more():
    features = torch.tensor([[1.0, 0.0], [0.0, 1.0]], dtype=torch.float64)
    labels = torch.tensor([0, 1])
    verbalizer = RepVerbalizer(num_classes=2, decay=0.5).train()
    for factor in (1, 2, 4):
        verbalizer.process_outputs(factor * features, {"label": labels})
    only_first = verbalizer.process_outputs(8 * features[:1], {"label": labels[:1]})
    assert only_first.shape == (1, 2)
    first = (0.125 * 1 + 0.25 * 2 + 0.5 * 4 + 8) / (0.125 + 0.25 + 0.5 + 1)
    second = (0.25 * 1 + 0.5 * 2 + 4) / (0.25 + 0.5 + 1)
    close(verbalizer.label_embeddings, [[first, 0.0], [0.0, second]])
    # The batch without the second class did not age it: its earlier batches weigh as much as if there had been none.
    verbalizer.process_outputs(16 * features[1:], {"label": labels[1:]})
    second = (0.125 * 1 + 0.25 * 2 + 0.5 * 4 + 16) / (0.125 + 0.25 + 0.5 + 1)
    close(verbalizer.label_embeddings, [[first, 0.0], [0.0, second]])


def test_what_was_learned_goes_through_a_state_dict_into_a_fresh_verbalizer():
    support, labels, query = data([3, 2])
    verbalizer = RepVerbalizer(num_classes=2).train()
    verbalizer.process_outputs(support[:3], {"label": labels[:3]})
    fresh = RepVerbalizer(num_classes=2)
    fresh.load_state_dict(verbalizer.state_dict())
    for one in (verbalizer, fresh):  # in the middle of a round
        one.process_outputs(support[3:], {"label": labels[3:]})
    assert torch.equal(fresh.eval().process_outputs(query), verbalizer.eval().process_outputs(query))
    close(fresh.process_outputs(query), by_loops(support, labels, query), 1e-9)
    fresh.load_state_dict(RepVerbalizer(num_classes=2).state_dict())
    with pytest.raises(VerbalizerError, match="seen no labelled example"):
        fresh.process_outputs(query)


def test_it_has_no_parameters():
    support, labels, _ = data([2, 2])
    assert list(fitted([2, 2], support, labels).parameters()) == []


@pytest.mark.parametrize("mix_lambda", [1.0, 0.5])
def test_an_ordinary_openprompt_loop_learns_and_evaluates(tiny, mix_lambda):
    mlm = tiny("bert")
    template = pool_template(mlm)
    verbalizer = RepVerbalizer(mlm.tokenizer, mlm.model, CLASSES, mix_lambda=mix_lambda, label_words=WORDS)
    model = classifier(mlm, template, verbalizer, freeze_plm=True, plm_eval_mode=True)
    loader = PromptDataLoader(
        examples(),
        template,
        tokenizer=mlm.tokenizer,
        tokenizer_wrapper_class=mlm.wrapper,
        max_seq_length=32,
        batch_size=4,
    )
    model.train()
    for batch in loader:
        loss = torch.nn.functional.cross_entropy(model(batch), batch["label"])
        loss.backward()
        assert loss.isfinite()
    model.eval()
    batch = batch_of(mlm, template)
    features = hidden_at_mask(mlm, template, batch).detach().double()
    soft = torch.tensor(by_loops(features, batch["label"], features))
    close(verbalizer.soft_log_probabilities(features.float()).exp(), soft.exp(), 1e-4)
    assert model(batch).argmax(dim=-1).shape == (6,)


# -- refusals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"similarity": "dot"}, "cosine, euclidean; got 'dot'"),
        ({"centring": "query"}, "none, support, transductive; got 'query'"),
        ({"temperature": 0}, "temperature.*above 0, got 0"),
        ({"temperature": math.nan}, "temperature.*above 0, got nan"),
        ({"inner_temperature": -1.0}, "above 0, got .*-1.0"),
        ({"decay": 0.0}, "decay must lie above 0 and not above 1, got 0.0"),
        ({"decay": 1.5}, "got 1.5"),
        ({"mix_lambda": 2}, "mix_lambda must lie between 0"),
    ],
)
def test_options_that_cannot_work_are_refused(options, says):
    with pytest.raises(VerbalizerError, match=says):
        RepVerbalizer(num_classes=2, **options)


def test_two_masks_a_text_are_refused():
    support, labels, _ = data([2, 2])
    verbalizer = fitted([2, 2], support, labels)
    for mode in (True, False):
        verbalizer.train(mode)
        with pytest.raises(VerbalizerError, match=r"one \[MASK\] a text; got hidden states of shape \[2, 2, 5\]"):
            verbalizer.process_outputs(torch.zeros(2, 2, 5), {"label": torch.tensor([0, 1])})


def test_outputs_without_hidden_states_are_refused_with_a_remedy():
    with pytest.raises(VerbalizerError, match=r"no hidden states.*output_hidden_states=True"):
        RepVerbalizer(num_classes=2).gather_outputs(SimpleNamespace(logits=None))


def test_mixing_needs_a_vocabulary_head(tiny):
    mlm = tiny("bert")
    with pytest.raises(
        VerbalizerError, match=r"RepVerbalizer with mix_lambda = 0.5 needs.*BertModel has no vocabulary"
    ):
        RepVerbalizer(mlm.tokenizer, mlm.model.bert, CLASSES, mix_lambda=0.5, label_words=WORDS)
    verbalizer = RepVerbalizer(mlm.tokenizer, mlm.model, CLASSES, mix_lambda=0.5, label_words=WORDS)
    with pytest.raises(VerbalizerError, match="needs vocabulary logits"):
        verbalizer.process_outputs(torch.zeros(1, 32))
    with pytest.raises(VerbalizerError, match="has no vocabulary head"):
        verbalizer.gather_outputs(SimpleNamespace(hidden_states=[torch.zeros(1, 2, 32)]))


def test_a_fit_to_a_support_set_is_saved_and_loaded() -> None:
    fitted, fresh = RepVerbalizer(num_classes=2), RepVerbalizer(num_classes=2)
    fitted.fit_support(torch.randn(4, 5), None, torch.tensor([0, 1, 0, 1]))
    fresh.load_state_dict(fitted.state_dict())
    features = torch.randn(3, 5)
    fitted.eval()
    fresh.eval()
    assert torch.equal(fresh.log_probabilities(features, None), fitted.log_probabilities(features, None))
