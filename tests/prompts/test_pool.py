"""The prompt pool against sums in plain loops, finite differences and brute force."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from openprompt_meta.errors import TemplateError
from openprompt_meta.prompts.pool import PromptPool
from tests.helpers.prompts import close, dot, softmax

pytestmark = pytest.mark.prompts


def pool_of(
    num_prompts: int = 5, prompt_length: int = 3, key_dim: int = 7, value_dim: int = 4, **options
) -> PromptPool:
    torch.manual_seed(0)
    return PromptPool(num_prompts, prompt_length, key_dim, value_dim, **options).double()


def queries(rows: int, pool: PromptPool, seed: int = 1) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return 3 * torch.randn(rows, pool.key_dim, dtype=torch.float64, generator=generator)


def attention_by_loops(pool: PromptPool, query: torch.Tensor) -> list[list[float]]:
    keys = pool.keys.tolist()
    return [softmax([dot(key, q) / math.sqrt(pool.key_dim) for key in keys]) for q in query.tolist()]


def prompts_by_loops(pool: PromptPool, weights: list[list[float]]) -> list[list[list[float]]]:
    values = pool.prompts.tolist()
    return [
        [
            [
                math.fsum(row[k] * values[k][position][d] for k in range(pool.num_prompts))
                for d in range(pool.value_dim)
            ]
            for position in range(pool.prompt_length)
        ]
        for row in weights
    ]


def test_the_papers_pool_has_55296_parameters():
    pool = PromptPool(8, 8, 768, 768)
    assert sum(p.numel() for p in pool.parameters()) == 55_296
    assert {name: tuple(p.shape) for name, p in pool.named_parameters()} == {"keys": (8, 768), "prompts": (8, 8, 768)}


@settings(max_examples=25, deadline=None, derandomize=True)
@given(*(st.integers(1, 6) for _ in range(5)))
def test_attention_and_prompt_equal_the_papers_equations(num_prompts, prompt_length, key_dim, value_dim, rows):
    pool = pool_of(num_prompts, prompt_length, key_dim, value_dim)
    query = queries(rows, pool)
    weights = attention_by_loops(pool, query)
    close(pool.attention(query), weights)
    close(pool(query), prompts_by_loops(pool, weights))
    assert sum(p.numel() for p in pool.parameters()) == num_prompts * (key_dim + prompt_length * value_dim)


def test_gradients_of_the_pool_equal_finite_differences_to_the_second_order():
    pool = pool_of(3, 2, 4, 3)
    query = queries(2, pool).requires_grad_()

    def run(q, keys, prompts):
        return torch.func.functional_call(pool, {"keys": keys, "prompts": prompts}, (q,))

    inputs = (query, pool.keys.detach().requires_grad_(), pool.prompts.detach().requires_grad_())
    assert torch.autograd.gradcheck(run, inputs)
    assert torch.autograd.gradgradcheck(run, inputs)


def test_gradients_of_a_pool_with_top_n_equal_finite_differences():
    pool = pool_of(4, 2, 4, 3, top_n=2)
    query = queries(3, pool).requires_grad_()

    def run(q, keys, prompts):
        return torch.func.functional_call(pool, {"keys": keys, "prompts": prompts}, (q,))

    inputs = (query, pool.keys.detach().requires_grad_(), pool.prompts.detach().requires_grad_())
    assert torch.autograd.gradcheck(run, inputs)


def test_the_order_of_the_prompts_does_not_matter():
    pool, other = pool_of(), pool_of()
    order = torch.tensor([3, 0, 4, 1, 2])
    with torch.no_grad():
        other.keys.copy_(pool.keys[order])
        other.prompts.copy_(pool.prompts[order])
    query = queries(6, pool)
    close(other(query), pool(query).tolist())
    close(other.attention(query), pool.attention(query)[:, order].tolist())


def test_the_order_of_the_queries_does_not_matter():
    pool = pool_of()
    query, order = queries(6, pool), torch.tensor([5, 2, 0, 1, 4, 3])
    close(pool(query[order]), pool(query)[order].tolist())


def test_a_pool_of_one_prompt_gives_that_prompt_whatever_the_query():
    pool = pool_of(num_prompts=1)
    assert torch.equal(pool(queries(4, pool)), pool.prompts.expand(4, -1, -1))


@pytest.mark.parametrize("top_n", [1, 2, 4, 5])
def test_top_n_equals_a_brute_force_selection(top_n):
    pool = pool_of(top_n=top_n)
    query = queries(6, pool)
    expected = []
    for q in query.tolist():
        scores = [dot(key, q) / math.sqrt(pool.key_dim) for key in pool.keys.tolist()]
        best = sorted(range(len(scores)), key=lambda k: -scores[k])[:top_n]
        chosen = dict(zip(best, softmax([scores[k] for k in best]), strict=True))
        expected.append([chosen.get(k, 0.0) for k in range(len(scores))])
    weights = pool.attention(query)
    close(weights, expected)
    assert (weights == 0).sum(dim=1).tolist() == [5 - top_n] * 6
    close(pool(query), prompts_by_loops(pool, expected))


@pytest.mark.parametrize("shape", [(7,), (2, 6), (1, 2, 7)])
def test_a_query_of_the_wrong_size_is_refused_with_both_sizes(shape):
    with pytest.raises(TemplateError, match=rf"{list(shape)}.*expected \[batch, 7\]".replace("[", r"\[", 1)):
        pool_of()(torch.zeros(shape, dtype=torch.float64))


@pytest.mark.parametrize("name", ["num_prompts", "prompt_length", "key_dim", "value_dim"])
@pytest.mark.parametrize("size", [0, -1, 2.0, True, "8"])
def test_a_size_that_is_no_whole_number_is_refused_by_name(name, size):
    sizes = {"num_prompts": 2, "prompt_length": 2, "key_dim": 2, "value_dim": 2, name: size}
    with pytest.raises(TemplateError, match=f"{name} must be a whole number of at least 1, got {size!r}"):
        PromptPool(**sizes)


@pytest.mark.parametrize("top_n", [0, 6, -2, 1.5, True])
def test_a_top_n_outside_the_pool_is_refused(top_n):
    with pytest.raises(TemplateError, match=rf"between 1 and num_prompts = 5, got {top_n!r}"):
        pool_of(top_n=top_n)


def test_prompts_start_from_distinct_tokens_while_there_are_enough():
    pool = pool_of(num_prompts=4, prompt_length=3, value_dim=2)
    embedding = torch.arange(40, dtype=torch.float64).view(20, 2)
    pool.set_prompts_from_tokens(embedding, torch.arange(5, 20), torch.Generator().manual_seed(0))
    rows = pool.prompts.detach().view(12, 2)
    ids = (rows[:, 0] / 2).long()
    assert torch.equal(embedding[ids], rows)
    assert len(set(ids.tolist())) == 12
    assert ids.min() >= 5
    assert ids.tolist() != sorted(ids.tolist())  # drawn, not taken in order


def test_prompts_start_from_few_tokens_used_equally_often():
    pool = pool_of(num_prompts=4, prompt_length=3, value_dim=2)
    embedding = torch.arange(40, dtype=torch.float64).view(20, 2)
    pool.set_prompts_from_tokens(embedding, torch.tensor([3, 9, 11]))
    ids = (pool.prompts.detach().view(12, 2)[:, 0] / 2).long().tolist()
    assert {i: ids.count(i) for i in set(ids)} == {3: 4, 9: 4, 11: 4}


def test_starting_points_that_do_not_fit_are_refused():
    pool = pool_of()
    with pytest.raises(TemplateError, match=r"\[5, 3, 3\] given, expected \[5, 3, 4\]"):
        pool.set_prompts(torch.zeros(5, 3, 3))
    with pytest.raises(TemplateError, match="embedding is 6 wide, the pool's prompts are 4 wide"):
        pool.set_prompts_from_tokens(torch.zeros(10, 6), torch.arange(4))
    with pytest.raises(TemplateError, match="no tokens"):
        pool.set_prompts_from_tokens(torch.zeros(10, 4), torch.tensor([], dtype=torch.long))


def test_random_prompts_stay_in_their_range():
    pool = PromptPool(8, 8, 4, 16, random_range=0.25)
    assert 0.2 < pool.prompts.abs().max() <= 0.25
    assert "num_prompts=8" in repr(pool)
