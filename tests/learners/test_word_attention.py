"""DS and MLADA against counts by hand, scikit-learn, loops over single texts, and finite differences."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from sklearn.linear_model import Ridge
from torch import Tensor

from openprompt_meta.learners.task import Batch, Task
from openprompt_meta.learners.word_attention import (
    DistributionalSignatures,
    Mlada,
    MladaLearner,
    RidgeHead,
    WordFrequencies,
    ridge_weights,
)

pytestmark = pytest.mark.meta

SUPPORT = ([1, 2, 3, 4], [2, 5], [6, 1, 1], [7])
QUERY = ([3, 6], [5, 4, 2, 2, 7], [1])
SOURCE = ([4, 4, 6], [2], [3, 5])
LABELS = [0, 0, 1, 1]
QUERY_LABELS = [1, 0, 1]
LONGEST = 6


def batch_of(rows: tuple[list[int], ...], labels: list[int] | None = None, width: int = 0) -> Batch:
    """Padded to the longest, or wider."""
    width = max(width, *map(len, rows))
    words = torch.tensor([[*row, *[0] * (width - len(row))] for row in rows])
    is_word = torch.tensor([[i < len(row) for i in range(width)] for row in rows])
    batch = {"words": words, "is_word": is_word}
    return batch if labels is None else {**batch, "label": torch.tensor(labels)}


def task_of(width: int = 0, index: int = 3) -> Task:
    support, query = batch_of(SUPPORT, LABELS, width), batch_of(QUERY, QUERY_LABELS, width)
    return Task(index, ["a", "b"], {}, support, query)


def some_vectors() -> Tensor:
    vectors = torch.randn(8, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    vectors[0] = 0
    return vectors


def signatures(dropout: float = 0.0) -> DistributionalSignatures:
    rows = [torch.tensor(row) for row in ([1, 1, 2], [3, 2, 2, 2], [4, 1], [6])]
    torch.manual_seed(0)
    frequencies = WordFrequencies(rows, ["a", "c", "d", "c"], 8)
    return DistributionalSignatures(some_vectors(), frequencies, 1e-2, 4, dropout).double()


def mlada(masks_padding: bool = True) -> Mlada:
    torch.manual_seed(0)
    return Mlada(some_vectors(), LONGEST, masks_padding, hidden=3, dropout=0.0).double()


# -- the ridge regression ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("examples", "size"), [(6, 4), (5, 12)])
@pytest.mark.parametrize("penalty", [0.1, 3.0])
def test_the_ridge_regression_is_scikit_learns_and_that_of_the_primal_form(
    examples: int, size: int, penalty: float
) -> None:
    torch.manual_seed(2)
    features, targets = torch.randn(examples, size).double(), torch.randn(examples, 3).double()
    found = ridge_weights(features, targets, penalty)
    theirs = Ridge(alpha=penalty, fit_intercept=False).fit(features.numpy(), targets.numpy()).coef_.T
    primal = torch.linalg.inv(features.T @ features + penalty * torch.eye(size).double()) @ features.T @ targets
    assert torch.allclose(found, torch.from_numpy(theirs), atol=1e-10)
    assert torch.allclose(found, primal, atol=1e-10)


def test_the_heads_scalars_are_powers_of_ten() -> None:
    torch.manual_seed(3)
    support, query = torch.randn(4, 7).double(), torch.randn(3, 7).double()
    labels = torch.tensor(LABELS)
    head = RidgeHead().double()
    theirs = Ridge(alpha=0.1, fit_intercept=False).fit(support.numpy(), F.one_hot(labels).double().numpy())
    assert torch.allclose(head(support, labels, query, 2), torch.from_numpy(theirs.predict(query.numpy())), atol=1e-6)
    with torch.no_grad():
        head.log_penalty.fill_(0.5)
        head.log_scale.fill_(2.0)
    theirs = Ridge(alpha=10**0.5, fit_intercept=False).fit(support.numpy(), F.one_hot(labels).double().numpy())
    expected = 100 * torch.from_numpy(theirs.predict(query.numpy()))
    assert torch.allclose(head(support, labels, query, 2), expected, atol=1e-6)


# -- DS ---------------------------------------------------------------------------------------------------------------


def test_rarity_is_by_counts_of_the_words_of_all_other_classes() -> None:
    network = signatures()
    # Of "a": 1 1 2. Of others: 3 2 2 2, 4 1, 6, seven words.
    expected = [0.01 / (0.01 + count / 7) for count in (0, 1, 3, 1, 1, 0, 1, 0)]
    assert network.rarity(["a", "b"]).tolist() == pytest.approx(expected)
    # Classes of another split take nothing away: ten words.
    expected = [0.01 / (0.01 + count / 10) for count in (0, 3, 4, 1, 1, 0, 1, 0)]
    assert network.rarity(["x", "y"]).tolist() == pytest.approx(expected)
    assert network.rarity(["a", "c", "d"]).tolist() == [1.0] * 8, "where no class is left nothing is frequent"


def by_hand(network: DistributionalSignatures) -> Tensor:
    """Text by text, without padding."""
    vectors, rarity = network.vectors, network.rarity(["a", "b"])
    means = torch.stack([vectors[torch.tensor(row)].mean(dim=0) for row in SUPPORT])
    targets = F.one_hot(torch.tensor(LABELS)).double()
    directions = torch.from_numpy(Ridge(alpha=1.0, fit_intercept=False).fit(means.numpy(), targets.numpy()).coef_)
    read = []
    for row in (*SUPPORT, *QUERY):
        own = vectors[torch.tensor(row)]
        telling = [max(abs(float(vector @ direction)) for direction in directions) for vector in own]
        inputs = torch.tensor([[float(rarity[word]), t] for word, t in zip(row, telling, strict=True)]).double()
        scores = network.score(network.lstm(inputs.unsqueeze(0))[0][0]).squeeze(-1)
        weights = scores.exp() / scores.exp().sum()
        read.append(sum(weight * vector for weight, vector in zip(weights, own, strict=True)))
    features = torch.stack(read)
    logits: Tensor = network.head(features[:4], torch.tensor(LABELS), features[4:], 2)
    return logits


@pytest.mark.parametrize("width", [0, 9])
def test_ds_is_what_it_is_text_by_text_and_padding_has_no_say(width: int) -> None:
    network = signatures()
    assert torch.allclose(network(task_of(width)), by_hand(network), atol=1e-6)


def test_ds_learns_the_papers_number_of_parameters_but_for_an_idle_one() -> None:
    network = DistributionalSignatures(some_vectors(), WordFrequencies([torch.tensor([1])], ["a"], 8), 1e-5, 25, 0.1)
    assert sum(parameter.numel() for parameter in network.parameters()) == 5854 - 1
    assert not any("vectors" in name for name in network.state_dict())


# -- MLADA ------------------------------------------------------------------------------------------------------------


def test_mlada_learns_the_papers_number_of_parameters_but_for_an_idle_one() -> None:
    network = Mlada(torch.zeros(4, 300), 500)
    assert sum(parameter.numel() for parameter in network.parameters()) == 585_414 - 1


def test_padding_has_a_say_only_as_in_the_authors_code() -> None:
    for masks_padding in (True, False):
        network = mlada(masks_padding)
        weights = [network.word_weights(batch_of(SUPPORT, width=width)) for width in (0, LONGEST)]
        same = torch.allclose(weights[0], weights[1][:, :4], atol=1e-12)
        assert same is masks_padding
        assert torch.allclose(weights[1].sum(dim=1), torch.ones(4).double())
        is_word = batch_of(SUPPORT, width=LONGEST)["is_word"]
        assert bool((weights[1][~is_word] > 0).all()) is not masks_padding


def learner_of(network: Mlada, step: float) -> MladaLearner:
    optimizer = torch.optim.SGD(network.parameters(), lr=step)
    return MladaLearner(network, optimizer, sources=lambda task: batch_of(SOURCE))


def losses(network: Mlada) -> tuple[Tensor, Tensor]:
    """CE and L_D, text by text."""
    task = task_of()
    ce = F.cross_entropy(network(task), torch.tensor(QUERY_LABELS))
    domain = torch.zeros((), dtype=torch.float64)
    for rows, label in ((QUERY, 1), (SOURCE, 0)):
        for row in rows:
            weights = network.word_weights(batch_of((row,)))[0]
            padded = torch.cat([weights, torch.zeros(LONGEST - len(row)).double()])
            domain = domain - network.discriminator(padded).log_softmax(dim=-1)[label] / len(rows)
    return ce, domain


def test_mladas_two_steps_have_the_gradients_of_finite_differences() -> None:
    before, after = mlada(), mlada()
    step = 0.5
    learner_of(after, step).meta_step([task_of()])
    # The generator's step is against the discriminator as it is after its own.
    halfway = copy.deepcopy(before)
    halfway.discriminator.load_state_dict(after.discriminator.state_dict())
    moved = dict(after.named_parameters())
    width = 1e-6
    for name, start in before.named_parameters():
        adversary = name.startswith("discriminator")
        network = before if adversary else halfway
        place = dict(network.named_parameters())[name]
        for index in range(0, place.numel(), max(1, place.numel() // 5)):
            found = []
            for sign in (1, -1):
                with torch.no_grad():
                    place.view(-1)[index] += sign * width
                    ce, domain = losses(network)
                    found.append(domain if adversary else ce - domain)
                    place.view(-1)[index] -= sign * width
            slope = float(found[0] - found[1]) / (2 * width)
            taken = float((start - moved[name]).detach().view(-1)[index]) / step
            assert taken == pytest.approx(slope, rel=1e-4, abs=1e-7), (name, index)


def test_one_optimiser_stepped_twice_is_two() -> None:
    one, two = mlada(), mlada()
    learner = MladaLearner(one, torch.optim.Adam(one.parameters(), 0.01), sources=lambda task: batch_of(SOURCE))
    rest = [value for name, value in two.named_parameters() if not name.startswith("discriminator")]
    optimizers = [torch.optim.Adam(two.discriminator.parameters(), 0.01), torch.optim.Adam(rest, 0.01)]
    for index in range(3):
        step = learner.meta_step([task_of(index=index)])
        for optimizer, loss in zip(optimizers, ("adversary", "generator"), strict=True):
            two.zero_grad()
            ce, domain = losses(two)
            (domain if loss == "adversary" else ce - domain).backward()
            optimizer.step()
        assert step.loss == pytest.approx(float(ce.detach()), rel=1e-9)
    for mine, theirs in zip(one.parameters(), two.parameters(), strict=True):
        assert torch.allclose(mine, theirs, rtol=1e-8, atol=1e-10)


def test_a_meta_batch_averages_its_tasks() -> None:
    single, double = mlada(), mlada()
    learner_of(single, 0.3).meta_step([task_of()])
    learner_of(double, 0.3).meta_step([task_of(), task_of(index=4)])
    for mine, theirs in zip(single.parameters(), double.parameters(), strict=True):
        assert torch.allclose(mine, theirs, atol=1e-12)
