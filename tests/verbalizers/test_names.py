"""Names read as texts, leave-one-out means, soft assignment and learned scalars, against loops in float64."""

from __future__ import annotations

import copy
import math

import pytest
import torch

from openprompt_meta import read_names_with
from openprompt_meta.errors import VerbalizerError
from openprompt_meta.verbalizers.mixed import LearnedScalars
from openprompt_meta.verbalizers.names import NameVerbalizer
from openprompt_meta.verbalizers.rep import RepVerbalizer
from openprompt_meta.verbalizers.warp import WarpVerbalizer
from tests.helpers.prompts import (
    CLASSES,
    LABELS,
    WORDS,
    batch_of,
    classifier,
    cosine,
    examples,
    hidden_at_mask,
    mean_of,
    pool_template,
    softmax,
)

pytestmark = pytest.mark.prompts

NAMES = ["a", "b", "c"]


def data(shots=(2, 3, 1), size=5, queries=4, seed=0):
    """Support features and labels, features of names, features to predict."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.tensor([label for label, count in enumerate(shots) for _ in range(count)])
    labels = labels[torch.randperm(len(labels), generator=generator)]

    def draw(count):
        return torch.randn(count, size, dtype=torch.float64, generator=generator) + 0.5

    return draw(len(labels)), labels, draw(len(shots)), draw(queries)


def fitted(support, labels, names, **options):
    verbalizer = RepVerbalizer(**options).double()
    verbalizer.begin_task(NAMES)
    verbalizer.fit_names(names, torch.arange(len(names)))
    verbalizer.fit_support(support, None, labels)
    return verbalizer


def weighted(vectors, weights):
    return [math.fsum(w * v[k] for v, w in zip(vectors, weights, strict=True)) / math.fsum(weights) for k in range(5)]


def log_rows(rows):
    return torch.tensor([[math.log(p) for p in softmax(row)] for row in rows], dtype=torch.float64)


def with_names(support, labels, names, weight, left_out=None):
    """v_y of each class: its examples but one, and its name as ``weight`` of them."""
    own = []
    for c in range(len(names)):
        members = [h for i, (h, y) in enumerate(zip(support, labels, strict=True)) if y == c and i != left_out]
        own.append(weighted([*members, names[c]], [1.0] * len(members) + [weight]))
    return own


@pytest.mark.parametrize("weight", [0.3, 1.0, 2.5])
def test_a_name_counts_as_w_examples(weight):
    support, labels, names, query = data()
    found = fitted(support, labels, names, name_weight=weight, temperature=7.0).log_probabilities(query, None)
    own = with_names(support.tolist(), labels.tolist(), names.tolist(), weight)
    expected = log_rows([[7.0 * cosine(v, h) for v in own] for h in query.tolist()])
    assert torch.allclose(found, expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("similarity", ["cosine", "euclidean"])
@pytest.mark.parametrize("weight", [0.0, 1.5])
def test_a_support_text_is_compared_with_what_the_others_make_of_its_class(similarity, weight):
    support, labels, names, _ = data((2, 3, 2))
    verbalizer = fitted(support, labels, names, name_weight=weight, leave_one_out=True, similarity=similarity)
    found = verbalizer.support_log_probabilities(support, None)
    rows = []
    for i, (h, label) in enumerate(zip(support.tolist(), labels.tolist(), strict=True)):
        whole = with_names(support.tolist(), labels.tolist(), names.tolist(), weight or 1e-300)
        left = with_names(support.tolist(), labels.tolist(), names.tolist(), weight or 1e-300, left_out=i)
        own = [left[c] if c == label else whole[c] for c in range(3)]
        rows.append([10 * cosine(v, h) if similarity == "cosine" else -10 * math.dist(v, h) for v in own])
    assert torch.allclose(found, log_rows(rows), rtol=1e-9, atol=1e-11)
    # Texts that are not of the support set are compared with all of it.
    assert torch.equal(
        verbalizer.log_probabilities(support, None),
        fitted(support, labels, names, name_weight=weight, similarity=similarity).log_probabilities(support, None),
    )


def test_with_one_shot_a_support_text_is_compared_with_the_name():
    support, labels, names, _ = data((1, 1, 1))
    found = fitted(support, labels, names, name_weight=2.0, leave_one_out=True).support_log_probabilities(
        support, None
    )
    rows = []
    for h, label in zip(support.tolist(), labels.tolist(), strict=True):
        whole = with_names(support.tolist(), labels.tolist(), names.tolist(), 2.0)
        rows.append([10 * cosine(names.tolist()[c] if c == label else whole[c], h) for c in range(3)])
    assert torch.allclose(found, log_rows(rows), rtol=1e-9, atol=1e-11)


def test_the_only_example_of_a_class_without_a_name_stays_in():
    support, labels, names, _ = data((1, 1, 1))
    alone = fitted(support, labels, names, leave_one_out=True).support_log_probabilities(support, None)
    expected = fitted(support, labels, names).log_probabilities(support, None)
    assert torch.allclose(alone, expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("rounds", [1, 3])
@pytest.mark.parametrize("weight", [0.0, 1.0])
def test_texts_under_prediction_join_the_label_embeddings_by_their_probabilities(rounds, weight):
    support, labels, names, query = data()
    verbalizer = fitted(support, labels, names, name_weight=weight, assignment_rounds=rounds, temperature=6.0)
    found = verbalizer.log_probabilities(query, None)
    points, known, texts = support.tolist(), labels.tolist(), query.tolist()
    shares = [[0.0] * 3 for _ in texts]
    for _ in range(rounds + 1):
        own = []
        for c in range(3):
            members = [h for h, y in zip(points, known, strict=True) if y == c]
            vectors = [*members, names.tolist()[c], *texts]
            own.append(weighted(vectors, [1.0] * len(members) + [weight] + [share[c] for share in shares]))
        shares = [softmax([20 * cosine(v, h) for v in own]) for h in texts]
    expected = log_rows([[6.0 * cosine(v, h) for v in own] for h in texts])
    assert torch.allclose(found, expected, rtol=1e-9, atol=1e-11)


def test_names_alone_classify_and_classes_may_lack_examples():
    support, labels, names, query = data((2, 0, 1))
    none = fitted(support[:0], labels[:0], names, name_weight=3.0).log_probabilities(query, None)
    by_name = NameVerbalizer().double()
    by_name.begin_task(NAMES)
    by_name.fit_names(names, torch.arange(3))
    assert torch.allclose(none, by_name.log_probabilities(query, None), rtol=1e-12)
    expected = log_rows([[10 * cosine(n, h) for n in names.tolist()] for h in query.tolist()])
    assert torch.allclose(none, expected, rtol=1e-10)
    some = fitted(support, labels, names, name_weight=1.0)
    assert torch.allclose(some.label_embeddings[1], names[1])


def test_several_names_of_a_class_are_averaged():
    verbalizer = NameVerbalizer().double()
    verbalizer.begin_task(NAMES)
    features = torch.randn(5, 4, dtype=torch.float64)
    verbalizer.fit_names(features, torch.tensor([0, 1, 1, 2, 0]))
    expected = torch.tensor(
        [mean_of(features[[0, 4]].tolist()), mean_of(features[[1, 2]].tolist()), features[3].tolist()],
        dtype=torch.float64,
    )
    assert torch.allclose(verbalizer.name_features, expected, rtol=1e-12)
    with pytest.raises(VerbalizerError, match="No name of class 2"):
        verbalizer.fit_names(features[:3], torch.tensor([0, 1, 1]))


@pytest.mark.parametrize("kind", [RepVerbalizer, WarpVerbalizer])
def test_lambda_mixes_names_on_an_encoder_without_a_head(kind, tiny):
    mlm = tiny("bert")
    encoder = mlm.model.bert  # no vocabulary head
    verbalizer = kind(mlm.tokenizer, encoder, CLASSES, mix_lambda=0.3, words_read_by="encoder")
    assert verbalizer.reads_names
    assert not verbalizer.needs_vocabulary_head
    verbalizer.begin_task(CLASSES)
    names, support, query = (torch.randn(n, 32) for n in (3, 6, 4))
    verbalizer.fit_names(names, torch.arange(3))
    verbalizer.fit_support(support, None, torch.tensor(LABELS))
    found = verbalizer.log_probabilities(query, None).exp()
    soft = verbalizer.soft_log_probabilities(query).exp()
    by_name = torch.tensor([softmax([10 * cosine(n, h) for n in names.tolist()]) for h in query.tolist()])
    assert torch.allclose(found, 0.7 * by_name + 0.3 * soft, atol=1e-6)


# -- scalars ----------------------------------------------------------------------------------------------------------


def test_learned_scalars_have_the_gradient_of_finite_differences():
    support, labels, names, query = data()
    wanted = torch.tensor([0, 1, 2, 1])

    def loss(verbalizer):
        verbalizer.fit_names(names, torch.arange(3))
        verbalizer.fit_support(support, None, labels)
        return torch.nn.functional.nll_loss(verbalizer.log_probabilities(query, None), wanted)

    options = {"name_weight": 1.5, "temperature": 8.0, "mix_lambda": 0.4, "words_read_by": "encoder"}
    verbalizer = RepVerbalizer(**options, learn=["name_weight", "temperature", "mix_lambda"]).double()
    verbalizer.begin_task(NAMES)
    loss(verbalizer).backward()
    for name in ("name_weight", "temperature", "mix_lambda"):
        moved = []
        for step in (1e-6, -1e-6):
            value = options[name]
            # The parameter is the logarithm, or the logit of λ: a step of it, taken on the value.
            new = (
                1 / (1 + math.exp(-(math.log(value / (1 - value)) + step)))
                if name == "mix_lambda"
                else value * math.exp(step)
            )
            other = RepVerbalizer(**{**options, name: new}).double()
            other.begin_task(NAMES)
            moved.append(loss(other).item())
        expected = (moved[0] - moved[1]) / 2e-6
        assert getattr(verbalizer.scalars, name).grad.item() == pytest.approx(expected, rel=1e-4, abs=1e-9)


def test_learned_scalars_start_where_they_are_told_and_are_shared_by_the_verbalizers_of_all_tasks():
    verbalizer = RepVerbalizer(name_weight=2.0, temperature=12.0, learn=["name_weight", "temperature"])
    assert verbalizer.scalars.values() == pytest.approx({"mix_lambda": 1.0, "temperature": 12.0, "name_weight": 2.0})
    other = verbalizer.clone()
    assert other.scalars is verbalizer.scalars
    assert copy.deepcopy(verbalizer).scalars is not verbalizer.scalars


def test_mixing_by_a_learned_lambda_is_mixing_by_its_value_however_near_to_one(tiny):
    support, labels, names, query = data()
    options = {"mix_lambda": 0.3, "words_read_by": "encoder"}
    learned = fitted(support, labels, names, **options, learn=["mix_lambda"])
    fixed = fitted(support, labels, names, **options)
    assert torch.allclose(learned.log_probabilities(query, None), fixed.log_probabilities(query, None), atol=1e-6)
    with torch.no_grad():
        learned.scalars.mix_lambda.fill_(60.0)
    learned.log_probabilities(query, None)[:, 0].sum().backward()
    assert learned.scalars.mix_lambda.grad.isfinite()


@pytest.mark.parametrize("centring", ["support", "transductive"])
def test_the_centre_is_that_of_before_the_rounds(centring):
    support, labels, names, query = data()
    found = fitted(support, labels, names, centring=centring, assignment_rounds=2).log_probabilities(query, None)
    centre = support.mean(dim=0) if centring == "support" else torch.cat([support, query]).mean(dim=0)
    moved = fitted(support - centre, labels, names, assignment_rounds=2).log_probabilities(query - centre, None)
    assert torch.allclose(found, moved, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("kind", [RepVerbalizer, NameVerbalizer])
def test_what_is_loaded_replaces_what_was_fitted(kind):
    support, labels, names, query = data()
    options = {"name_weight": 1.0} if kind is RepVerbalizer else {}
    verbalizers = []
    for shift in (0.0, 2.0):
        verbalizer = kind(**options).double()
        verbalizer.begin_task(NAMES)
        verbalizer.fit_names(names - shift, torch.arange(3))
        verbalizer.fit_support(support - shift, None, labels)
        verbalizers.append(verbalizer)
    one, two = verbalizers
    assert not torch.allclose(one.log_probabilities(query, None), two.log_probabilities(query, None))
    one.load_state_dict(two.state_dict())
    assert torch.equal(one.log_probabilities(query, None), two.log_probabilities(query, None))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"learn": ["temperature", "temperature"]}, "names a scalar twice"),
        ({"learn": ["rho"]}, "learn: 'rho' cannot be learned here"),
        ({"learn": ["name_weight"]}, "name_weight starts from 0; to be learned it must lie above 0"),
        ({"learn": ["mix_lambda"]}, "mix_lambda starts from 1; to be learned it must lie strictly between 0 and 1"),
        ({"name_weight": -1.0}, "must be at least 0"),
        ({"words_read_by": "people"}, "words_read_by must be one of head, encoder; got 'people'"),
    ],
)
def test_what_cannot_be_is_refused(options, message):
    with pytest.raises(VerbalizerError, match=message):
        RepVerbalizer(**options)


def test_scalars_that_are_fixed_are_no_parameters():
    assert not list(LearnedScalars({"temperature": 10.0}).parameters())
    assert not list(RepVerbalizer(name_weight=1.0).parameters())


# -- an ordinary OpenPrompt script ------------------------------------------------------------------------------------


@pytest.mark.parametrize("features", ["mask", "mean"])
def test_a_stock_model_reads_names_with_its_own_prompts(features, tiny):
    mlm = tiny("bert")
    mlm.model.double().requires_grad_(False).eval()
    template = pool_template(mlm, features=features).double()
    verbalizer = NameVerbalizer(mlm.tokenizer, CLASSES)
    model = classifier(mlm, template, verbalizer).eval()
    read_names_with(model, WORDS)
    found = model(batch_of(mlm, template))
    texts = [", ".join(WORDS[name]) for name in CLASSES]
    names = hidden_at_mask(mlm, template, batch_of(mlm, template, examples(texts, [0, 1, 2]))).tolist()
    queries = hidden_at_mask(mlm, template, batch_of(mlm, template)).tolist()
    assert torch.allclose(found, log_rows([[10 * cosine(n, h) for n in names] for h in queries]), rtol=1e-7, atol=1e-9)
    found[:, 0].sum().backward()
    assert template.pool.prompts.grad.abs().sum() > 0

    twin = copy.deepcopy(model)  # reads names with its own prompts
    with torch.no_grad():
        twin.template.pool.prompts.mul_(-3)
    batch = batch_of(mlm, template)
    assert not torch.allclose(twin(batch), model(batch), atol=1e-3)


def test_names_count_as_examples_in_an_ordinary_loop(tiny):
    mlm = tiny("bert")
    template = pool_template(mlm)
    verbalizer = RepVerbalizer(mlm.tokenizer, mlm.model, CLASSES, name_weight=2.0)
    model = classifier(mlm, template, verbalizer)
    model.plm.eval()
    with pytest.raises(VerbalizerError, match="the names of the classes have not been read"):
        model.eval()(batch_of(mlm, template))
    read_names_with(model, WORDS)
    model.train()
    model.plm.eval()
    batch = batch_of(mlm, template)
    model(batch)
    hidden = hidden_at_mask(mlm, template, batch).detach()
    texts = [", ".join(WORDS[name]) for name in CLASSES]
    names = hidden_at_mask(mlm, template, batch_of(mlm, template, examples(texts, [0, 1, 2]))).detach()
    for label in range(3):
        own = [h for h, y in zip(hidden, LABELS, strict=True) if y == label]
        expected = (sum(own) + 2 * names[label]) / (len(own) + 2)
        assert torch.allclose(verbalizer.label_embeddings[label], expected, atol=1e-5)


def test_a_verbalizer_that_reads_no_names_is_told_so(tiny):
    mlm = tiny("bert")
    template = pool_template(mlm)
    with pytest.raises(VerbalizerError, match=r"RepVerbalizer reads no names\. Use name_verbalizer"):
        read_names_with(classifier(mlm, template, RepVerbalizer(mlm.tokenizer, mlm.model, CLASSES)), WORDS)
    with pytest.raises(VerbalizerError, match="does not know its classes"):
        read_names_with(classifier(mlm, template, NameVerbalizer(mlm.tokenizer)), WORDS)
