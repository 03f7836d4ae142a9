"""AdaptiveVerbalizer against another optimiser, cross-validation in loops, and RepVerbalizer."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.optimize import minimize, minimize_scalar

from openprompt_meta.config.validation import config_from_mapping
from openprompt_meta.errors import ConfigError, VerbalizerError
from openprompt_meta.verbalizers import adaptive
from openprompt_meta.verbalizers.adaptive import AdaptiveVerbalizer, HeadChoice, balanced_weights, best_sharpness
from openprompt_meta.verbalizers.rep import RepVerbalizer
from tests.helpers.prompts import cosine

pytestmark = pytest.mark.prompts

RHO, W = 10.0, 2.0
BETA = 0.4


def data(shots=(3, 2, 4), size=5, queries=6, seed=0, apart=0.5):
    """Support features and labels, features of names, features to predict; classes of equal spread."""
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape):
        return torch.randn(*shape, dtype=torch.float64, generator=generator)

    labels = torch.tensor([label for label, count in enumerate(shots) for _ in range(count)]).long()
    labels = labels[torch.randperm(len(labels), generator=generator)]
    centres, stretch = apart * draw(len(shots), size) + 1, 1 + draw(size).abs()
    support = centres[labels] + 0.5 * draw(len(labels), size) * stretch
    names = centres + 0.5 * draw(len(shots), size)
    queries = centres[torch.arange(queries) % len(shots)] + 0.5 * draw(queries, size) * stretch
    return support, labels, names, queries


def fitted(support, labels, names=None, kind=AdaptiveVerbalizer, classes=3, named=None, **options):
    if kind is AdaptiveVerbalizer:
        options = {"strengths": (1.0, 10.0), "default_strength": None, "anchor": BETA, **options}
    verbalizer = kind(name_weight=0.0 if names is None else W, **options).double()
    verbalizer.begin_task([f"class {i}" for i in range(classes)])
    if names is not None:
        named = range(classes) if named is None else named
        verbalizer.fit_names(names[list(named)], torch.tensor(list(named)))
    with torch.no_grad():
        verbalizer.fit_support(support, None, labels)
    return verbalizer


# -- an implementation in loops ---------------------------------------------------------------------------------------


def rows_of(support, labels, names, named=range(3)):
    """Features, labels and weights of support texts and names, as lists."""
    rows = [(h, y, 1.0) for h, y in zip(support.tolist(), labels.tolist(), strict=True)]
    return rows + ([] if names is None else [(n, y, W) for y, n in enumerate(names.tolist()) if y in named])


def means(rows, classes):
    own = []
    for label in range(classes):
        members = [(h, weight) for h, y, weight in rows if y == label]
        total = math.fsum(weight for _, weight in members)
        own.append([math.fsum(w * h[k] for h, w in members) / total for k in range(len(rows[0][0]))])
    return own


def unit(h):
    return [x / math.sqrt(math.fsum(y * y for y in h)) for x in h]


def cross_entropy(scores, label):
    top = max(scores)
    return top + math.log(math.fsum(math.exp(score - top) for score in scores)) - scores[label]


def balance(labels, weights, classes):
    totals = [math.fsum(w for y, w in zip(labels, weights, strict=True) if y == c) for c in range(classes)]
    mean = math.fsum(totals) / len([total for total in totals if total])
    return [w * mean / totals[y] for y, w in zip(labels, weights, strict=True)]


def correction_by_scipy(rows, strength, classes):
    own, size = means(rows, classes), len(rows[0][0])
    base = [[RHO * cosine(v, h) for v in own] for h, _, _ in rows]
    weights = balance([y for _, y, _ in rows], [w for _, _, w in rows], classes)
    directions = np.array([unit(h) for h, _, _ in rows])

    def objective(flat):
        matrix = flat.reshape(classes, size + 1)
        loss, slope = 0.0, np.zeros_like(matrix)
        for row, (_, label, _) in enumerate(rows):
            scores = base[row] + matrix[:, :size] @ directions[row] + matrix[:, size]
            loss += strength * weights[row] * cross_entropy(scores.tolist(), label)
            probabilities = np.exp(scores - scores.max())
            probabilities /= probabilities.sum()
            probabilities[label] -= 1
            slope += strength * weights[row] * np.outer(probabilities, [*directions[row], 1.0])
        slope[:, :size] += matrix[:, :size] - centre
        return loss + 0.5 * ((matrix[:, :size] - centre) ** 2).sum(), slope.ravel()

    # Drawn towards what leaves β of the class means.
    centre = np.array([[-(1 - BETA) * RHO * x for x in unit(v)] for v in own])
    start = np.zeros(classes * (size + 1))
    options = {"maxiter": 2000, "ftol": 1e-15, "gtol": 1e-9}
    found = minimize(objective, start, jac=True, method="L-BFGS-B", options=options).x.reshape(classes, size + 1)
    return found[:, :size], found[:, size]


def held_out_by_loops(support, labels, names, strength, classes):
    """Scores and label of each held-out example, fold by fold."""
    rows = rows_of(support, labels, names)
    counts = [labels.tolist().count(c) for c in range(classes)]
    folds = min(5, max(counts))
    seen = [0] * classes
    fold_of = []
    for y in labels.tolist():
        fold_of.append(seen[y] % folds if counts[y] > 1 or names is not None else None)
        seen[y] += 1
    found = []
    for fold in range(folds):
        training = [row for i, row in enumerate(rows) if i >= len(labels) or fold_of[i] != fold]
        own = means(training, classes)
        correction = None if strength is None else correction_by_scipy(training, strength, classes)
        for i, row in enumerate(rows[: len(labels)]):
            if fold_of[i] == fold:
                scores = np.array([RHO * cosine(v, row[0]) for v in own])
                if correction is not None:
                    scores += correction[0] @ np.array(unit(row[0])) + correction[1]
                found.append((scores, row[1]))
    return found


def best_by_scipy(held_out, classes):
    weights = balance([y for _, y in held_out], [1.0] * len(held_out), classes)

    def nll(t):
        losses = [w * cross_entropy((t * s).tolist(), y) for w, (s, y) in zip(weights, held_out, strict=True)]
        return math.fsum(losses) / math.fsum(weights)

    def objective(logarithm):
        return nll(math.exp(logarithm)) + logarithm**2 / len(held_out)

    bounds = (math.log(0.25), math.log(4.0))
    t = math.exp(minimize_scalar(objective, bounds=bounds, method="bounded", options={"xatol": 1e-8}).x)
    right = [w for w, (s, y) in zip(weights, held_out, strict=True) if s.argmax() == y]
    return t, nll(t), math.fsum(right) / math.fsum(weights)


# -- the correction ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("strength", [1.0, 10.0])
@pytest.mark.parametrize("with_names", [True, False])
def test_the_correction_is_the_one_that_another_optimiser_finds(strength, with_names):
    support, labels, names, _ = data()
    names = names if with_names else None
    verbalizer = fitted(support, labels, names)
    task, _ = verbalizer._rows(support)
    weight, bias = task.correction(strength)
    expected, offsets = correction_by_scipy(rows_of(support, labels, names), strength, 3)
    assert torch.allclose(weight, torch.tensor(expected), atol=1e-4)
    # b is held by nothing but the examples, which say nothing of a number added to all classes.
    assert torch.allclose(bias - bias.mean(), torch.tensor(offsets - offsets.mean()), atol=1e-4)
    assert weight.abs().max() > 0.1


def test_predictions_are_the_equations():
    support, labels, names, query = data((6, 5, 7))
    verbalizer = fitted(support, labels, names, strengths=[3.0])
    assert verbalizer.choice.strength == 3
    rows = rows_of(support, labels, names)
    own, (weight, bias) = means(rows, 3), correction_by_scipy(rows, 3.0, 3)
    t = best_by_scipy(held_out_by_loops(support, labels, names, 3.0, 3), 3)[0]
    scores = [[RHO * cosine(v, h) for v in own] + weight @ np.array(unit(h)) + bias for h in query.tolist()]
    expected = (t * torch.tensor(np.array(scores))).log_softmax(dim=-1)
    assert abs(t - 1) > 0.05
    assert torch.allclose(verbalizer.log_probabilities(query, None), expected, atol=1e-3)


def test_classes_count_the_same_in_total_and_as_much_as_before():
    labels, weights = torch.tensor([0, 0, 0, 2, 2]), torch.tensor([1.0, 2.0, 3.0, 0.5, 0.5])
    found = balanced_weights(labels, weights, 3)  # nothing is known of class 1
    assert torch.allclose(found, torch.tensor(balance(labels.tolist(), weights.tolist(), 3)))
    assert found[:3].sum() == pytest.approx(found[3:].sum().item())
    assert found.sum() == pytest.approx(weights.sum().item())


def test_a_class_does_not_weigh_more_for_having_its_examples_twice():
    support, labels, _, _ = data((4, 4, 4))
    again = labels == 1
    task, _ = fitted(support, labels)._rows(support)
    twice, more = torch.cat([support, support[again]]), torch.cat([labels, labels[again]])
    other, _ = fitted(twice, more)._rows(twice)
    # The mean total weight is kept, so that as a whole there is a third more of it.
    assert torch.allclose(task.correction(4.0)[0], other.correction(3.0)[0], atol=1e-5)
    assert not torch.allclose(task.correction(4.0)[0], other.correction(4.0)[0], atol=1e-3)


# -- the choice -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shots", [(3, 2, 4), (7, 1, 3), (2, 2, 2)])
@pytest.mark.parametrize("with_names", [True, False])
def test_figures_of_candidates_are_those_of_cross_validation_in_loops(shots, with_names):
    support, labels, names, _ = data(shots, seed=3)
    names = names if with_names else None
    choice = fitted(support, labels, names).choice
    assert [one.strength for one in choice.candidates] == [1.0, None, 10.0]
    for candidate in choice.candidates:
        held_out = held_out_by_loops(support, labels, names, candidate.strength, 3)
        t, nll, accuracy = best_by_scipy(held_out, 3)
        assert candidate.nll == pytest.approx(nll, rel=1e-4)
        assert candidate.accuracy == pytest.approx(accuracy, abs=1e-6)
        assert candidate.sharpness == pytest.approx(t, rel=1e-3)
        assert choice.held_out == len(held_out) == sum(shots) - (not with_names) * shots.count(1)
    assert choice.folds == min(5, max(shots))


def clearly_better(one, other, labels):
    """Whether losses are lower than those of a simpler head by half a per cent and by a standard error."""
    weights = balance(labels, [1.0] * len(labels), 3)
    total = math.fsum(weights)
    gains = [b - a for a, b in zip(one, other, strict=True)]
    gain = math.fsum(w * g for w, g in zip(weights, gains, strict=True)) / total
    error = math.sqrt(math.fsum((w / total * (g - gain)) ** 2 for w, g in zip(weights, gains, strict=True)))
    simpler = math.fsum(w * b for w, b in zip(weights, other, strict=True)) / total
    return gain > error and gain > 0.005 * simpler


def test_a_correction_is_taken_where_it_is_clearly_better():
    taken, merely_better = set(), 0
    for seed in range(16):
        support, labels, names, _ = data((8, 9, 8), seed=seed, apart=0.3 + 0.05 * seed)
        choice = fitted(support, labels, names).choice
        best, losses_of_best = None, None
        for candidate in choice.candidates:
            held_out = held_out_by_loops(support, labels, names, candidate.strength, 3)
            losses = [cross_entropy((candidate.sharpness * scores).tolist(), y) for scores, y in held_out]
            if best is None or clearly_better(losses, losses_of_best, [y for _, y in held_out]):
                best, losses_of_best = candidate, losses
            else:
                merely_better += candidate.nll < best.nll
        assert choice.strength == best.strength
        taken.add(choice.strength)
    assert len(taken) >= 2
    assert None in taken
    assert merely_better, "some were better by chance alone"


def test_ties_go_to_the_simpler():
    support, labels, names, _ = data((5, 6, 5))
    choice = fitted(support, labels, names, strengths=[10.01, 10.0]).choice
    assert choice.strength == 10
    assert choice.candidates[1].nll > choice.candidates[2].nll  # by less than the margin


def test_the_temperature_is_that_of_a_brute_force_search():
    generator = torch.Generator().manual_seed(1)
    labels = torch.randint(0, 4, (30,), generator=generator)
    for scale in (0.1, 0.8, 1.5, 3.0, 40.0):
        scores = scale * (torch.randn(30, 4, generator=generator) + 1.5 * torch.eye(4)[labels]).double()
        weights = torch.rand(30, generator=generator).double()
        found, nll = best_sharpness(scores, labels, weights)
        grid = torch.logspace(math.log10(0.25), math.log10(4), 4001, dtype=torch.float64)
        losses = [
            (weights * torch.nn.functional.cross_entropy(t * scores, labels, reduction="none")).sum() / weights.sum()
            for t in grid
        ]
        best = int((torch.stack(losses) + grid.log().square() / 30).argmin())
        assert found == pytest.approx(grid[best].item(), rel=2e-3)
        assert nll == pytest.approx(losses[best].item(), rel=1e-4)


def test_a_few_scores_that_are_all_right_do_not_make_it_sure():
    scores = 3.0 * torch.eye(2, dtype=torch.float64)[[0, 1, 0, 1]]
    few, _ = best_sharpness(scores, torch.tensor([0, 1, 0, 1]), torch.ones(4, dtype=torch.float64))
    many, _ = best_sharpness(scores.repeat(250, 1), torch.tensor([0, 1] * 500), torch.ones(1000, dtype=torch.float64))
    assert 1 < few < 1.3
    assert many > 2


def test_large_tasks_are_tried_on_two_folds_with_the_smallest_strength(monkeypatch):
    support, labels, names, query = data((5, 6, 5))
    monkeypatch.setattr(adaptive, "_EVERYTHING_UP_TO", 50)
    choice = fitted(support, labels, names, strengths=[10.0, 1.0]).choice
    assert choice.folds == 2
    assert [one.strength for one in choice.candidates] == [1.0, None]
    monkeypatch.setattr(adaptive, "_CORRECTED_UP_TO", 50)
    verbalizer = fitted(support, labels, names)
    assert (verbalizer.choice.strength, verbalizer.choice.candidates) == (None, ())
    plain = fitted(support, labels, names, kind=RepVerbalizer)
    assert torch.equal(verbalizer.log_probabilities(query, None), plain.log_probabilities(query, None))


def test_single_precision_finds_the_same_head(monkeypatch):
    support, labels, names, query = data((6, 5, 7))
    precise = fitted(support, labels, names)
    monkeypatch.setattr(adaptive, "_DOUBLE_PRECISION_UP_TO", 0)
    other = fitted(support, labels, names)
    assert other.choice.strength == precise.choice.strength is not None
    assert torch.allclose(other.log_probabilities(query, None), precise.log_probabilities(query, None), atol=2e-2)


# -- where no correction is chosen ------------------------------------------------------------------------------------


def test_without_a_correction_predictions_are_repverbalizers_up_to_the_temperature():
    support, labels, names, query = data((4, 4, 4))
    verbalizer = fitted(support, labels, names, strengths=[])
    assert verbalizer.choice.strength is None
    assert verbalizer.weight is None
    plain = fitted(support, labels, names, kind=RepVerbalizer)
    t = verbalizer.sharpness
    own = 10.0 * (
        torch.nn.functional.normalize(query, dim=-1) @ torch.nn.functional.normalize(plain.label_embeddings).T
    )
    assert torch.equal(verbalizer.log_probabilities(query, None), (t * own).log_softmax(dim=-1))
    verbalizer.sharpness = None
    assert torch.equal(verbalizer.log_probabilities(query, None), plain.log_probabilities(query, None))


def test_one_shot_takes_the_default_strength_if_there_is_one_and_there_are_names():
    support, labels, names, query = data((1, 1, 1))
    verbalizer = fitted(support, labels, names, default_strength=10.0)
    assert verbalizer.choice == HeadChoice(10.0, True, True, 0, 0, ())
    weight, _ = correction_by_scipy(rows_of(support, labels, names), 10.0, 3)
    assert torch.allclose(verbalizer.weight, torch.tensor(weight), atol=1e-4)
    assert verbalizer.sharpness == 2.5  # of a regression that nothing was held out from
    for given, options in ((names, {}), (None, {"default_strength": 10.0})):
        none = fitted(support, labels, given, **options)
        assert none.choice.strength is None
        plain = fitted(support, labels, given, kind=RepVerbalizer)
        assert torch.equal(none.log_probabilities(query, None), plain.log_probabilities(query, None))


def test_names_alone_and_classes_without_examples():
    support, labels, names, query = data((1, 0, 1))
    plain = fitted(support[:0], labels[:0], names, kind=RepVerbalizer)
    none = fitted(support[:0], labels[:0], names)
    assert none.describe() == "names of the classes alone; no example could be held out to compare heads on"
    assert torch.equal(none.log_probabilities(query, None), plain.log_probabilities(query, None))
    assert fitted(support, labels, names).choice.strength is None  # not every class has an example
    support, labels, names, query = data((6, 0, 5), apart=1.0)
    verbalizer = fitted(support, labels, names)
    assert verbalizer.choice.held_out == 11
    assert verbalizer.log_probabilities(query, None).exp().sum(dim=-1).tolist() == pytest.approx([1.0] * len(query))


# -- what may not make a difference -----------------------------------------------------------------------------------


def test_the_order_of_classes_and_columns_of_zeros_change_nothing():
    support, labels, names, query = data((5, 4, 6), seed=2)
    one = fitted(support, labels, names)
    order = torch.tensor([2, 0, 1])  # class i is now class order[i]
    other = fitted(support, order[labels], names[order.argsort()])
    found = other.log_probabilities(query, None)[:, order]
    assert one.choice.strength is not None
    assert other.choice.strength == one.choice.strength
    assert torch.allclose(found, one.log_probabilities(query, None), atol=1e-4)
    wide = [torch.nn.functional.pad(part, (0, 3)) for part in (support, names, query)]
    padded = fitted(wide[0], labels, wide[1])
    assert torch.allclose(padded.log_probabilities(wide[2], None), one.log_probabilities(query, None), atol=1e-4)
    # Examples of different classes may come in any order, as long as each class keeps its own.
    by_class = labels.argsort(stable=True)
    sorted_ = fitted(support[by_class], labels[by_class], names)
    assert torch.allclose(sorted_.log_probabilities(query, None), one.log_probabilities(query, None), atol=1e-4)


def test_one_text_is_predicted_as_with_others():
    support, labels, names, query = data((5, 6, 5))
    verbalizer = fitted(support, labels, names)
    together = verbalizer.log_probabilities(query, None)
    assert torch.allclose(verbalizer.log_probabilities(query[:1], None), together[:1], atol=1e-12)


# -- saving -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("strengths", [[10.0], []])
@pytest.mark.parametrize("shots", [(6, 5, 7), (1, 1, 1), (0, 0, 0)])
def test_a_saved_head_predicts_and_describes_itself_the_same(shots, strengths):
    support, labels, names, query = data(shots)
    one = fitted(support, labels, names, strengths=strengths, default_strength=10.0)
    assert (one.weight is None) == (not any(shots) or (max(shots) > 1 and not strengths))
    fresh = AdaptiveVerbalizer(name_weight=W).double()
    fresh.begin_task(["a", "b", "c"])
    assert fresh.describe() == "class means; a correction is fitted where gradients are off"
    saved = {name: value.clone() for name, value in one.state_dict().items()}
    assert all(value.is_contiguous() for value in saved.values())
    fresh.load_state_dict(saved)
    assert torch.equal(fresh.log_probabilities(query, None), one.log_probabilities(query, None))
    assert fresh.choice == one.choice
    assert fresh.describe() == one.describe()
    fresh.begin_task(["a", "b", "c"])
    assert fresh.choice is fresh.weight is fresh.bias is fresh.sharpness is None


def test_what_is_loaded_replaces_a_correction():
    support, labels, names, query = data((6, 5, 7))
    corrected, plain = fitted(support, labels, names), fitted(support, labels, names, kind=RepVerbalizer)
    assert corrected.weight is not None
    corrected.load_state_dict(plain.state_dict())
    assert torch.equal(corrected.log_probabilities(query, None), plain.log_probabilities(query, None))


def test_a_sentence_says_which_head_and_why():
    support, labels, names, _ = data((6, 5, 7))
    verbalizer = fitted(support, labels, names, strengths=[3.0])
    with_it, without = (f"{100 * one.accuracy:.1f} % (-log P {one.nll:.2f})" for one in verbalizer.choice.candidates)
    assert verbalizer.describe() == (
        f"a logistic regression around class means with names (C = 3): {with_it} of held-out examples right, "
        f"against {without} by the means alone"
    )
    support, labels, _, _ = data((3, 2, 4), seed=3)
    verbalizer = fitted(support, labels)
    found = [f"{100 * one.accuracy:.1f} % (-log P {one.nll:.2f})" for one in verbalizer.choice.candidates]
    assert verbalizer.describe() == (
        f"a logistic regression around class means (C = 1): {found[0]} of held-out examples right, against {found[1]} "
        f"by the means alone and {found[2]} with C = 10"
    )


# -- gradients --------------------------------------------------------------------------------------------------------


def test_with_gradients_on_it_is_repverbalizer():
    support, labels, names, query = data((3, 2, 4))
    results = []
    for kind in (AdaptiveVerbalizer, RepVerbalizer):
        inputs = [part.clone().requires_grad_() for part in (support, names, query)]
        verbalizer = kind(name_weight=W, leave_one_out=True, learn=["temperature", "name_weight"]).double()
        verbalizer.begin_task(["a", "b", "c"])
        with torch.no_grad():  # a fit for evaluation leaves no trace
            verbalizer.fit_names(inputs[1], torch.arange(3))
            verbalizer.fit_support(inputs[0], None, labels)
        verbalizer.fit_names(inputs[1], torch.arange(3))
        verbalizer.fit_support(inputs[0], None, labels)
        found = verbalizer.log_probabilities(inputs[2], None)
        loss = found[:, 0].sum() + verbalizer.support_log_probabilities(inputs[0], None)[:, 1].sum()
        gradients = torch.autograd.grad(loss, [*inputs, *verbalizer.parameters()])
        results.append((found, gradients))
    (found, gradients), (expected, expected_gradients) = results
    assert torch.equal(found, expected)
    assert all(torch.equal(one, other) for one, other in zip(gradients, expected_gradients, strict=True))


def test_what_is_fitted_carries_no_gradient():
    support, labels, names, query = data((6, 5, 7))
    verbalizer = fitted(support.requires_grad_(), labels, names.requires_grad_())
    assert not any(value.requires_grad for value in verbalizer.state_dict().values())
    assert list(verbalizer.parameters()) == []
    query.requires_grad_()
    verbalizer.log_probabilities(query, None)[:, 0].sum().backward()
    assert query.grad.abs().sum() > 0


def test_an_ordinary_loop_has_no_correction():
    support, labels, _, query = data((4, 3, 4))
    loaded = fitted(support, labels)
    for verbalizer in (loaded, AdaptiveVerbalizer(num_classes=3)):
        state = verbalizer.state_dict()
        verbalizer = AdaptiveVerbalizer(num_classes=3).double()
        verbalizer.load_state_dict(state)
        plain = RepVerbalizer(num_classes=3)
        plain.load_state_dict({name: state[name] for name in state if name.startswith(("feature", "seen"))})
        for one in (verbalizer, plain):
            one.train().process_outputs(support, {"label": labels})
            one.eval()
        assert torch.equal(verbalizer.process_outputs(query), plain.process_outputs(query))


# -- missing names ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [RepVerbalizer, AdaptiveVerbalizer])
def test_a_class_without_a_name_is_known_by_its_examples(kind):
    support, labels, names, query = data((3, 2, 0), seed=4)
    verbalizer = fitted(support, labels, names, kind=kind, named=[0, 2])
    own = [
        (support[labels == 0].sum(dim=0) + W * names[0]) / (3 + W),
        support[labels == 1].mean(dim=0),
        names[2],
    ]
    assert torch.allclose(verbalizer.label_embeddings, torch.stack(own), rtol=1e-12)
    fresh = kind(name_weight=W).double()
    fresh.begin_task(["a", "b", "c"])
    fresh.load_state_dict(verbalizer.state_dict())
    assert torch.equal(fresh.label_embeddings, verbalizer.label_embeddings)
    assert torch.equal(fresh.log_probabilities(query, None), verbalizer.log_probabilities(query, None))


def test_a_name_that_is_missing_is_missing_from_the_correction_too():
    support, labels, names, _ = data((3, 2, 4), seed=4)
    named = [0, 2]
    task, has_names = fitted(support, labels, names, named=named)._rows(support)
    assert has_names
    weight, _ = task.correction(2.0)
    expected, _ = correction_by_scipy(rows_of(support, labels, names, named), 2.0, 3)
    assert torch.allclose(weight, torch.tensor(expected), atol=1e-4)


@pytest.mark.parametrize("kind", [RepVerbalizer, AdaptiveVerbalizer])
def test_a_class_with_neither_name_nor_example_is_named(kind):
    support, labels, names, _ = data((3, 0, 2))
    with pytest.raises(VerbalizerError, match="Class 'class 1' has neither an example nor a name"):
        fitted(support, labels, names, kind=kind, named=[0, 2])
    with pytest.raises(VerbalizerError, match="Class 'class 1', 'class 2' has neither"):
        fitted(support[:0], labels[:0], names, kind=kind, named=[0])


@pytest.mark.parametrize("kind", [RepVerbalizer, AdaptiveVerbalizer])
def test_a_task_may_bring_no_names(kind):
    support, labels, names, query = data((3, 2, 4))
    verbalizer = kind(name_weight=W, learn=["name_weight"]).double()
    verbalizer.begin_task(["a", "b", "c"])
    verbalizer.fit_names(names, torch.arange(3))
    verbalizer.leave_out_names()
    with torch.no_grad():
        verbalizer.fit_support(support, None, labels)
    own = {"strengths": (10.0,), "anchor": 0.3} if kind is AdaptiveVerbalizer else {}  # as it is by default
    plain = fitted(support, labels, kind=kind, **own)
    found = verbalizer.log_probabilities(query, None)
    assert torch.allclose(found, plain.log_probabilities(query, None), rtol=1e-6)
    fresh = kind(name_weight=W, learn=["name_weight"]).double()
    fresh.begin_task(["a", "b", "c"])
    fresh.load_state_dict(verbalizer.state_dict())
    assert torch.equal(fresh.log_probabilities(query, None), found)
    with pytest.raises(VerbalizerError, match="No support example for class 'c'"):
        verbalizer.fit_support(support[labels < 2], None, labels[labels < 2])
    verbalizer.fit_names(names, torch.arange(3))  # names after all
    verbalizer.fit_support(support[:0], None, labels[:0])
    verbalizer.leave_out_names()
    verbalizer.begin_task(["a", "b", "c"])
    verbalizer.fit_support(support, None, labels)
    with pytest.raises(VerbalizerError, match="names of the classes have not been read"):
        verbalizer.log_probabilities(query, None)


def test_words_that_contribute_by_themselves_cannot_be_left_out():
    verbalizer = RepVerbalizer(name_weight=W, mix_lambda=0.5, words_read_by="encoder")
    verbalizer.begin_task(["a", "b"])
    with pytest.raises(VerbalizerError, match="cannot be left out"):
        verbalizer.leave_out_names()


def test_gradients_of_names_stay_those_of_the_classes_that_have_one():
    support, labels, names, query = data((3, 2, 4))
    names.requires_grad_()
    verbalizer = RepVerbalizer(name_weight=W).double()
    verbalizer.begin_task(["a", "b", "c"])

    def run(names):
        verbalizer.fit_names(names[[0, 2]], torch.tensor([0, 2]))
        verbalizer.fit_support(support, None, labels)
        return verbalizer.log_probabilities(query, None)

    assert torch.autograd.gradcheck(run, names)


# -- refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"similarity": "euclidean"}, "similarity must be cosine, got 'euclidean'. Use RepVerbalizer"),
        ({"centring": "support"}, "centring must be none, got 'support'"),
        ({"assignment_rounds": 2}, "assignment_rounds must be 0, got 2"),
        ({"strengths": [1.0, 0.0]}, r"above 0 and no strength given twice, got \[1.0, 0.0\]"),
        ({"strengths": [1.0, 1.0]}, "given twice"),
        ({"default_strength": -1.0}, "got .* and -1.0"),
        ({"temperature": 0}, "temperature.*above 0"),
    ],
)
def test_options_that_cannot_work_are_refused(options, says):
    with pytest.raises(VerbalizerError, match=says):
        AdaptiveVerbalizer(num_classes=2, **options)


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("similarity", "euclidean", "got euclidean"),
        ("centring", "transductive", "got transductive"),
        ("assignment_rounds", 2, "got 2"),
        ("strengths", [1.0, 1.0], "none of them twice"),
        ("strengths", [0], "above 0"),
    ],
)
def test_keys_that_cannot_work_are_problems_of_a_configuration(key, value, says):
    with pytest.raises(ConfigError, match=rf"adaptive_verbalizer\.{key}.*{says}"):
        config_from_mapping({"verbalizer": "adaptive_verbalizer", "adaptive_verbalizer": {key: value}})
