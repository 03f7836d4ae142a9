"""A prompt as a prefix, against attention written out position by position."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn.functional import gelu, layer_norm

from openprompt_meta.errors import TemplateError
from openprompt_meta.prompts import prefix
from openprompt_meta.prompts.pool_template import PromptPoolTemplate
from tests.helpers.prompts import TEXTS, batch_of, classifier, examples, pool_template

pytestmark = pytest.mark.prompts

TEXT = '{"placeholder": "text_a"} {"pool"} {"mask"}'


def double(mlm):
    mlm.model.double().requires_grad_(False).eval()
    return mlm


def features_of(mlm, template, data=None, **options):
    batch = batch_of(mlm, template, data or examples(), **options)
    model = classifier(mlm, template, torch.nn.Identity()).eval()
    return model.extract_at_mask(model.prompt_model(batch).hidden_states[-1], batch)


def norm(layer, rows):
    return layer_norm(rows, rows.shape[-1:], layer.weight, layer.bias, layer.eps)


def entered(bert, vectors):
    """What of each vector enters the first layer, counted from 0, or from where RoBERTa does."""
    table = bert.embeddings
    start = 2 if bert.config.model_type == "roberta" else 0
    found = norm(
        table.LayerNorm,
        torch.stack(
            [
                vector + table.position_embeddings.weight[start + place] + table.token_type_embeddings.weight[0]
                for place, vector in enumerate(vectors)
            ]
        ),
    )
    return bert.embeddings_project(found) if bert.config.model_type == "electra" else found


def attended(layer, asking, answering, heads, counts):
    """One layer for ``asking``, head by head and position by position, each of which counts so much."""
    own = layer.attention.self
    asked, keys, values = own.query(asking), own.key(answering), own.value(answering)
    size = asked.shape[1] // heads
    rows = []
    for i in range(len(asking)):
        parts = []
        for head in range(heads):
            cut = slice(head * size, (head + 1) * size)
            scores = [float(asked[i, cut] @ keys[j, cut]) / math.sqrt(size) for j in range(len(answering))]
            shares = [count * math.exp(score - max(scores)) for count, score in zip(counts, scores, strict=True)]
            parts.append(sum(share / sum(shares) * values[j, cut] for j, share in enumerate(shares)))
        rows.append(torch.cat(parts))
    output = layer.attention.output
    hidden = norm(output.LayerNorm, output.dense(torch.stack(rows)) + asking)
    return norm(layer.output.LayerNorm, layer.output.dense(gelu(layer.intermediate.dense(hidden))) + hidden)


@torch.no_grad()
def written_out(mlm, template, prompts, features, **options):
    """Features ``[n, d_o]`` of the texts, each with its prompt, by the definition."""
    bert, heads = mlm.model.base_model, mlm.model.config.num_attention_heads
    batch = batch_of(mlm, template, **options)
    found = []
    for i, prompt in enumerate(prompts):
        length = int(batch["attention_mask"][i].sum())
        ids, soft, loss = (batch[key][i, :length] for key in ("input_ids", "soft_token_ids", "loss_ids"))
        read = [j for j in range(length) if soft[j] == 0 and (features != "mean" or loss[j] <= 0)]
        text = entered(bert, [bert.embeddings.word_embeddings.weight[ids[j]] for j in read])
        prefix = entered(bert, list(prompt))
        for layer in bert.encoder.layer:
            both = torch.cat([prefix, text])
            counts = [template.prefix_strength] * len(prefix) + [1.0] * len(text)
            alone = [1.0] * len(prefix)
            prefix, text = attended(layer, prefix, prefix, heads, alone), attended(layer, text, both, heads, counts)
        at_mask = [text[place] for place, j in enumerate(read) if loss[j] > 0]
        parts = {"mask": at_mask, "mean": [text.mean(dim=0)], "both": [*at_mask, text.mean(dim=0)]}
        found.append(torch.cat(parts[features]))
    return torch.stack(found)


@pytest.mark.parametrize("strength", [1.0, 0.2])
@pytest.mark.parametrize("features", ["mask", "mean", "both"])
@pytest.mark.parametrize("num_prompts", [1, 3])
def test_a_stock_model_reads_a_prefix_as_the_definition_has_it(num_prompts, features, strength, tiny):
    mlm = double(tiny("bert"))
    options = {"num_prompts": num_prompts, "as_prefix": True, "prefix_strength": strength}
    template = pool_template(mlm, text=TEXT, features=features, **options).double()
    prompts = template.pool(template.pool_queries(batch_of(mlm, template)))
    expected = written_out(mlm, template, prompts, features)
    assert torch.allclose(features_of(mlm, template), expected, rtol=1e-7, atol=1e-9)


def test_nothing_depends_on_where_the_pool_stands_nor_on_padding_or_neighbours(tiny):
    mlm = double(tiny("bert"))
    template = pool_template(mlm, text=TEXT, features="mean", as_prefix=True).double()
    whole = features_of(mlm, template)
    assert torch.allclose(features_of(mlm, template, max_seq_length=90), whole, rtol=1e-9, atol=1e-11)
    assert torch.allclose(features_of(mlm, template, examples()[2:3])[0], whole[2], rtol=1e-9, atol=1e-11)
    for text in ('{"pool"} {"placeholder": "text_a"} {"mask"}', '{"mask"} {"placeholder": "text_a"} {"pool"}'):
        template.text = text
        assert torch.allclose(features_of(mlm, template), whole, rtol=1e-9, atol=1e-11)


def test_gradients_through_a_prefix_are_those_of_finite_differences(tiny):
    mlm = double(tiny("bert"))
    template = pool_template(mlm, text=TEXT, features="mean", num_prompts=1, as_prefix=True).double()
    weights = torch.randn(len(TEXTS), template.feature_size, generator=torch.Generator().manual_seed(0)).double()
    prompts = template.pool.prompts
    (gradient,) = torch.autograd.grad((features_of(mlm, template) * weights).sum(), prompts)
    for place in [(0, 0, 0), (0, 1, 5), (0, 2, 17)]:
        step, moved = 1e-6, []
        for sign in (1, -1):
            with torch.no_grad():
                prompts[place] += sign * step
                moved.append((features_of(mlm, template) * weights).sum().item())
                prompts[place] -= sign * step
        assert abs((moved[0] - moved[1]) / (2 * step) - gradient[place].item()) < 1e-6


@pytest.mark.parametrize("features", ["mask", "mean"])
@pytest.mark.parametrize("family", ["roberta", "electra"])
def test_other_models_with_absolute_positions_take_a_prefix(family, features, tiny):
    mlm = double(tiny(family))
    template = pool_template(mlm, text=TEXT, features=features, num_prompts=1, as_prefix=True).double()
    expected = written_out(mlm, template, template.pool.prompts.expand(len(TEXTS), -1, -1), features)
    assert torch.allclose(features_of(mlm, template), expected, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("text", [TEXT, '{"pool"} {"placeholder": "text_a"} : {"placeholder": "text_b"} {"mask"}'])
def test_texts_that_are_cut_and_pairs_of_texts_take_a_prefix(text, tiny):
    mlm = double(tiny("bert"))
    template = pool_template(mlm, text=text, features="both", num_prompts=1, as_prefix=True).double()
    cut = {"max_seq_length": 11}
    assert not torch.equal(
        batch_of(mlm, template, **cut)["attention_mask"].sum(dim=1),
        batch_of(mlm, template)["attention_mask"].sum(dim=1),
    )
    expected = written_out(mlm, template, template.pool.prompts.expand(len(TEXTS), -1, -1), "both", **cut)
    assert torch.allclose(features_of(mlm, template, **cut), expected, rtol=1e-7, atol=1e-9)


def test_a_model_without_absolute_positions_is_refused(tiny):
    mlm = tiny("deberta-v2")
    with pytest.raises(TemplateError, match=r"cannot read a prompt as a prefix.*as_prefix: false"):
        pool_template(mlm, as_prefix=True)


def test_why_a_model_takes_no_prefix_is_told_and_want_of_memory_is_not_taken_for_it(tiny, monkeypatch):
    mlm = tiny("bert")

    def fails(error):
        def forward(*arguments, **named):
            raise error

        return forward

    monkeypatch.setattr(mlm.model.bert, "forward", fails(torch.cuda.OutOfMemoryError("no room")))
    with pytest.raises(torch.cuda.OutOfMemoryError):
        pool_template(mlm, as_prefix=True)
    monkeypatch.setattr(mlm.model.bert, "forward", fails(ValueError("too many values to unpack")))
    with pytest.raises(TemplateError, match="cannot read a prompt as a prefix") as caught:
        pool_template(mlm, as_prefix=True)
    assert "too many values" in str(caught.value.__cause__)


def test_relative_positions_and_a_prompt_that_sees_the_text_are_refused(tiny, monkeypatch):
    mlm = tiny("bert")
    monkeypatch.setattr(mlm.model.config, "position_embedding_type", "relative_key", raising=False)
    with pytest.raises(TemplateError, match="absolute positions"):
        pool_template(mlm, as_prefix=True)
    monkeypatch.undo()
    stock = prefix.prefix_inputs

    def everything_sees_everything(model, is_pool, is_read, strength=1.0):
        inputs = stock(model, is_pool, is_read, strength)
        kept = (is_pool | is_read).unsqueeze(1).expand(-1, is_pool.shape[1], -1).unsqueeze(1)
        scores = torch.zeros_like(inputs["attention_mask"]).masked_fill(~kept, torch.finfo(model.dtype).min)
        return {**inputs, "attention_mask": scores}

    # What a text is read as is then the same wherever the prompt stands, but the prompt is another beside each.
    monkeypatch.setattr(prefix, "prefix_inputs", everything_sees_everything)
    with pytest.raises(TemplateError, match="cannot read a prompt as a prefix"):
        pool_template(mlm, as_prefix=True)


def test_a_model_is_tried_once(tiny, monkeypatch):
    mlm = tiny("bert")
    pool_template(mlm, as_prefix=True)
    monkeypatch.setattr(prefix, "_takes_prefix", lambda model: pytest.fail("tried again"))
    pool_template(mlm, as_prefix=True)


def test_a_weak_prefix_is_hardly_noticed(tiny):
    mlm = double(tiny("bert"))
    template = pool_template(mlm, text=TEXT, features="mean", as_prefix=True, prefix_strength=1e-12).double()
    inputs, is_mask = template.without_pool(batch_of(mlm, template))
    assert torch.allclose(features_of(mlm, template), template.query_function(inputs, is_mask), rtol=1e-7, atol=1e-9)


def test_strengths_that_make_no_sense_are_refused(tiny):
    mlm = tiny("bert")
    for strength in (0, 1.5, -1, math.nan, True, "weak"):
        with pytest.raises(TemplateError, match="above 0 and at most 1"):
            pool_template(mlm, as_prefix=True, prefix_strength=strength)
    with pytest.raises(TemplateError, match="as_prefix: true"):
        pool_template(mlm, prefix_strength=0.5)


def test_a_saved_template_knows_that_its_prompt_is_a_prefix(tiny, tmp_path):
    mlm = tiny("bert")
    template = pool_template(mlm, as_prefix=True, prefix_strength=0.25)
    template.save_pretrained(tmp_path)
    loaded = PromptPoolTemplate.from_pretrained(tmp_path, mlm.model, mlm.tokenizer)
    assert loaded.as_prefix
    assert loaded.prefix_strength == 0.25
