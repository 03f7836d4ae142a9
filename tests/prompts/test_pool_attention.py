"""The pool asked by cosine with standardised queries, keys from k-means, and what a saved pool carries of them."""

from __future__ import annotations

import math

import pytest
import torch

from openprompt_meta.errors import TemplateError
from openprompt_meta.prompts.pool import PromptPool
from openprompt_meta.prompts.pool_template import PromptPoolTemplate
from tests.helpers.prompts import batch_of, cosine, minus, pool_template, softmax

pytestmark = pytest.mark.prompts


def queries_in_groups(groups=3, each=6, size=8):
    """Queries that have most of their length in common and fall into groups besides."""
    generator = torch.Generator().manual_seed(0)
    common = 60 * torch.ones(size, dtype=torch.float64)
    centres = 2 * torch.randn(groups, size, dtype=torch.float64, generator=generator)
    noise = 0.05 * torch.randn(groups, each, size, dtype=torch.float64, generator=generator)
    return (common + centres.unsqueeze(1) + noise).flatten(0, 1)


def cosine_pool(num_prompts=3, size=8, **options):
    return PromptPool(num_prompts, 2, size, 4, attention="cosine", **options).double()


@pytest.mark.parametrize("temperature", [None, 3.0])
def test_attention_is_the_softmax_of_cosines_with_queries_without_their_mean(temperature):
    pool = cosine_pool(attention_temperature=temperature)
    queries = queries_in_groups()
    pool.start_from_queries(queries, keys=False)
    mean = [math.fsum(row) / len(queries) for row in queries.T.tolist()]
    expected = [
        softmax([(temperature or 10.0) * cosine(key, minus(query, mean)) for key in pool.keys.tolist()])
        for query in queries.tolist()
    ]
    assert torch.allclose(pool.attention(queries), torch.tensor(expected, dtype=torch.float64), rtol=1e-9)


def test_keys_from_kmeans_tell_groups_of_texts_apart_where_the_papers_attention_does_not():
    queries = queries_in_groups()
    pool = cosine_pool()
    pool.start_from_queries(queries)
    chosen = pool.attention(queries).argmax(dim=-1).view(3, 6)
    assert (chosen == chosen[:, :1]).all()
    assert sorted(chosen[:, 0].tolist()) == [0, 1, 2]
    assert torch.allclose(pool.keys.norm(dim=-1), torch.ones(3, dtype=torch.float64))
    torch.manual_seed(0)
    dot = PromptPool(3, 2, 8, 4).double()
    assert len(set(dot.attention(queries).argmax(dim=-1).tolist())) == 1


def test_the_same_queries_and_seed_give_the_same_keys_bit_by_bit():
    pools = [cosine_pool() for _ in range(2)]
    for pool in pools:
        pool.start_from_queries(queries_in_groups(), seed=3)
    assert torch.equal(pools[0].keys, pools[1].keys)


def test_top_n_and_gradients_work_with_cosines():
    pool = cosine_pool(top_n=2)
    pool.start_from_queries(queries_in_groups())
    queries = queries_in_groups()
    assert ((pool.attention(queries) > 0).sum(dim=-1) == 2).all()
    wide = cosine_pool()
    wide.start_from_queries(queries)
    weights = torch.randn(18, 3, dtype=torch.float64)
    (gradient,) = torch.autograd.grad((wide.attention(queries) * weights).sum(), wide.keys)
    for place in [(0, 0), (2, 5)]:
        moved = []
        for step in (1e-6, -1e-6):
            with torch.no_grad():
                wide.keys[place] += step
                moved.append((wide.attention(queries) * weights).sum().item())
                wide.keys[place] -= step
        assert gradient[place].item() == pytest.approx((moved[0] - moved[1]) / 2e-6, rel=1e-5, abs=1e-8)


def test_statistics_are_no_parameters_and_stay_as_they_are_in_the_papers_pool():
    assert [name for name, _ in cosine_pool().named_parameters()] == ["keys", "prompts"]
    assert sorted(cosine_pool().state_dict()) == ["keys", "prompts", "query_mean"]
    assert sorted(PromptPool(3, 2, 8, 4).state_dict()) == ["keys", "prompts"]


def test_a_saved_template_carries_its_statistics(tiny, tmp_path):
    mlm = tiny("bert")
    template = pool_template(mlm, attention="cosine", attention_temperature=7.0, keys="kmeans")
    batch = batch_of(mlm, template)
    assert template.starts_from_queries
    template.start_from_queries(template.queries(batch))
    template.save_pretrained(tmp_path)
    loaded = PromptPoolTemplate.from_pretrained(tmp_path, mlm.model, mlm.tokenizer)
    assert torch.equal(loaded.attention_weights(batch), template.attention_weights(batch))
    assert template.pool.query_mean.abs().sum() > 0
    assert torch.equal(loaded.pool.query_mean, template.pool.query_mean)


def test_the_papers_pool_and_a_single_prompt_do_not_start_from_queries(tiny):
    mlm = tiny("bert")
    assert not pool_template(mlm).starts_from_queries
    alone = pool_template(mlm, num_prompts=1, attention="cosine", keys="kmeans")
    before = alone.pool.keys.detach().clone()
    alone.start_from_queries(torch.randn(5, 32))
    assert torch.equal(alone.pool.keys, before)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"attention": "euclid"}, "attention must be one of dot, cosine; got 'euclid'"),
        ({"attention": "cosine", "attention_temperature": 0.0}, "attention_temperature must be above 0"),
        ({"keys": "some"}, "keys must be one of normal, kmeans; got 'some'"),
    ],
)
def test_other_settings_are_refused(options, message, tiny):
    with pytest.raises(TemplateError, match=message):
        pool_template(tiny("bert"), **options)


def test_too_few_queries_are_refused():
    with pytest.raises(TemplateError, match="2 queries are too few for 3 keys"):
        cosine_pool().start_from_queries(torch.randn(2, 8))
