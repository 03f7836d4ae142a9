"""PromptPoolTemplate: where the prompt stands, what stays aligned with it, and what is left untouched."""

from __future__ import annotations

import copy
import itertools
import logging

import pytest
import torch
from openprompt import PromptForClassification
from openprompt.data_utils import InputExample
from openprompt.prompts import ManualTemplate, MixedTemplate, SoftTemplate

from openprompt_meta.errors import TemplateError
from openprompt_meta.prompts.pool_template import PromptPoolTemplate
from openprompt_meta.verbalizers.rep import RepVerbalizer
from tests.helpers.prompts import (
    PAPER_LAYOUT,
    TEXTS,
    batch_of,
    classifier,
    close,
    examples,
    hidden_at_mask,
    pool_template,
    same_content,
    snapshot,
)
from tests.helpers.tiny_models import FAMILIES
from tests.helpers.tiny_models import LABEL_WORDS as MANY_WORDS

pytestmark = pytest.mark.prompts

LAYOUTS = {
    "front": '{"pool"} {"placeholder": "text_a"} topic is {"mask"}.',
    "middle": PAPER_LAYOUT,
    "end": '{"placeholder": "text_a"} topic is {"mask"} {"pool"}',
    "absent": '{"placeholder": "text_a"} topic is {"mask"}.',
    "two texts": '{"placeholder": "text_a"} {"pool"} {"placeholder": "text_b"} in {"meta": "place"} : {"mask"}',
}


@pytest.fixture(params=FAMILIES)
def mlm(request, tiny):
    return tiny(request.param)


@pytest.fixture
def bert(tiny):
    return tiny("bert")


def mlm_hidden(mlm, **inputs):
    with torch.no_grad():
        return mlm.model.eval()(**inputs, output_hidden_states=True).hidden_states[-1]


# -- the same as a soft prompt ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", ["front", "middle", "end", "two texts"])
def test_a_pool_of_one_prompt_equals_openprompts_soft_tokens_at_the_same_place(mlm, layout):
    text = LAYOUTS[layout]
    template = pool_template(mlm, text, num_prompts=1)
    mixed = MixedTemplate(mlm.model, mlm.tokenizer, text.replace('{"pool"}', '{"soft": None, "duplicate": 3}'))
    with torch.no_grad():
        mixed.soft_embedding.weight[1:] = template.pool.prompts[0]
    ours, theirs = batch_of(mlm, template), batch_of(mlm, mixed)
    for key in ("input_ids", "attention_mask", "loss_ids", "soft_token_ids"):
        assert torch.equal(ours[key], theirs[key]), key
    close(hidden_at_mask(mlm, template, ours), hidden_at_mask(mlm, mixed, theirs).detach(), 1e-6)


def test_a_pool_of_one_prompt_equals_embeddings_put_together_by_hand(mlm):
    template = pool_template(mlm, num_prompts=1)
    tokenizer, embedding = mlm.tokenizer, mlm.model.get_input_embeddings()
    batch = batch_of(mlm, template)
    found = hidden_at_mask(mlm, template, batch)
    first, last = tokenizer.cls_token_id, tokenizer.sep_token_id
    for row, text in enumerate(TEXTS):
        before = [first, *tokenizer.encode(text, add_special_tokens=False)]
        middle = tokenizer.encode(" topic is", add_special_tokens=False)
        after = [tokenizer.mask_token_id, *tokenizer.encode(".", add_special_tokens=False), last]
        embeds = torch.cat(
            [embedding(torch.tensor(before)), template.pool.prompts[0], embedding(torch.tensor([*middle, *after]))]
        ).unsqueeze(0)
        mask = len(before) + 3 + len(middle)
        close(found[row], mlm_hidden(mlm, inputs_embeds=embeds)[0, mask], 1e-5)


def test_each_text_gets_its_own_weighted_prompt(mlm):
    template = pool_template(mlm)
    batch = batch_of(mlm, template)
    weights = template.attention_weights(batch)
    assert weights.shape == (len(TEXTS), 4)
    assert (weights - weights[0]).abs().max() > 1e-3
    expected = torch.einsum("bk,kld->bld", weights, template.pool.prompts)
    embeds = template.process_batch(batch)["inputs_embeds"]
    close(embeds[batch["soft_token_ids"] > 0], expected.detach().flatten(0, 1), 1e-6)
    text = mlm.model.get_input_embeddings()(batch["input_ids"])
    elsewhere = batch["soft_token_ids"] == 0
    assert torch.equal(embeds[elsewhere], text[elsewhere])


# -- alignment -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_pool_stands_where_the_text_says_and_the_mask_is_where_loss_ids_point(mlm, layout):
    template = pool_template(mlm, LAYOUTS[layout])
    plain = ManualTemplate(mlm.tokenizer, LAYOUTS[layout].replace('{"pool"}', ""))
    batch, without = batch_of(mlm, template), batch_of(mlm, plain)
    ids = mlm.tokenizer
    for row in range(len(TEXTS)):
        pool = (batch["soft_token_ids"][row] > 0).nonzero().flatten().tolist()
        length = int(batch["attention_mask"][row].sum())
        assert batch["soft_token_ids"][row, pool].tolist() == [1, 2, 3]
        assert pool == list(range(pool[0], pool[0] + 3))
        mask = (batch["loss_ids"][row] == 1).nonzero().flatten().tolist()
        assert [batch["input_ids"][row, m].item() for m in mask] == [ids.mask_token_id]
        own = (batch["input_ids"][row] == ids.mask_token_id).nonzero().flatten().tolist()
        assert [m for m in own if m not in pool] == mask
        if layout in ("front", "absent"):
            assert pool[0] == 1
        elif layout == "end":
            assert pool[-1] == length - 2
        else:
            assert pool[0] == 1 + len(ids.encode(TEXTS[row], add_special_tokens=False))
        kept = [t for i, t in enumerate(batch["input_ids"][row, :length].tolist()) if i not in pool]
        assert kept == without["input_ids"][row, : length - 3].tolist()


def test_two_texts_and_meta_are_filled_in(bert):
    template = pool_template(bert, LAYOUTS["two texts"])
    batch = batch_of(bert, template, examples(TEXTS[:1], [0]))
    tokens = bert.tokenizer.convert_ids_to_tokens(batch["input_ids"][0].tolist())
    soft = batch["soft_token_ids"][0].tolist()
    length = int(batch["attention_mask"].sum())
    shown = " ".join("P" if soft[i] else token for i, token in enumerate(tokens[:length]))
    assert shown == "[CLS] the rain and the wind on my trip P P P day 0 in sky : [MASK] [SEP]"


@pytest.mark.parametrize("truncate_method", ["tail", "head", "balanced"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_truncation_keeps_pool_and_mask_whole(mlm, layout, truncate_method):
    template = pool_template(mlm, LAYOUTS[layout])
    long = examples(["storm at night " * 30, "rain " * 7, "win"], [0, 1, 2])
    batch = batch_of(mlm, template, long, max_seq_length=24, truncate_method=truncate_method)
    assert batch["input_ids"].shape == (3, 24)
    assert (batch["soft_token_ids"] > 0).sum(dim=1).tolist() == [3, 3, 3]
    assert (batch["loss_ids"] > 0).sum(dim=1).tolist() == [1, 1, 1]
    assert batch["input_ids"][batch["loss_ids"] > 0].tolist() == [mlm.tokenizer.mask_token_id] * 3
    assert batch["attention_mask"][0].sum() == 24
    assert batch["input_ids"][0, -1] == mlm.tokenizer.sep_token_id
    assert hidden_at_mask(mlm, template, batch).isfinite().all()


def test_the_stock_soft_template_reads_another_token_where_ours_reads_the_mask(bert):
    ours = pool_template(bert, LAYOUTS["front"], num_prompts=1)
    stock = SoftTemplate(bert.model, bert.tokenizer, text=LAYOUTS["absent"], num_tokens=3)
    with torch.no_grad():
        stock.soft_embeds.copy_(ours.pool.prompts[0])
    batch = batch_of(bert, stock)
    whole = stock.process_batch(snapshot(batch))
    full = mlm_hidden(bert, inputs_embeds=whole["inputs_embeds"], attention_mask=whole["attention_mask"])
    rows = torch.arange(len(TEXTS))
    mask = (batch["loss_ids"] > 0).long().argmax(dim=1)
    # The stock template puts its tokens before [CLS], so the mask is three further on; its logits are cut, its
    # hidden states are not, and a verbalizer that reads them gets the token three places before the mask.
    read = hidden_at_mask(bert, stock, snapshot(batch))
    assert torch.equal(read, full[rows, mask])
    assert (read - full[rows, mask + 3]).abs().max() > 0.1
    # Ours: the hidden state at the mask is the one that the vocabulary head turned into the mask's logits.
    batch = batch_of(bert, ours)
    model = classifier(bert, ours, torch.nn.Identity()).eval()
    outputs = model.prompt_model(batch)
    hidden = model.extract_at_mask(outputs.hidden_states[-1], batch)
    logits = model.extract_at_mask(outputs.logits, batch)
    close(bert.model.cls(hidden), logits.detach(), 1e-5)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_padding_changes_nothing(mlm, layout):
    template = pool_template(mlm, LAYOUTS[layout])
    short, long = (batch_of(mlm, template, max_seq_length=length) for length in (32, 64))
    close(template.queries(long), template.queries(short), 1e-5)
    close(hidden_at_mask(mlm, template, long), hidden_at_mask(mlm, template, short).detach(), 1e-5)


def test_the_order_of_a_batch_changes_nothing(mlm):
    template, data = pool_template(mlm), examples()
    order = [4, 0, 5, 2, 1, 3]
    straight = hidden_at_mask(mlm, template, batch_of(mlm, template, data))
    shuffled = hidden_at_mask(mlm, template, batch_of(mlm, template, [data[i] for i in order]))
    close(shuffled, straight[order].detach(), 1e-5)
    alone = hidden_at_mask(mlm, template, batch_of(mlm, template, data[2:3]))
    close(alone[0], straight[2].detach(), 1e-5)


def test_the_order_of_the_pool_changes_nothing(bert):
    template = pool_template(bert)
    batch = batch_of(bert, template)
    before = hidden_at_mask(bert, template, batch)
    with torch.no_grad():
        template.pool.keys.copy_(template.pool.keys[[2, 0, 3, 1]].clone())
        template.pool.prompts.copy_(template.pool.prompts[[2, 0, 3, 1]].clone())
    close(hidden_at_mask(bert, template, batch), before.detach(), 1e-5)


# -- batches ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("as_dict", [False, True])
def test_a_batch_is_left_untouched_and_serves_ten_times(bert, as_dict):
    template = pool_template(bert)
    model = classifier(bert, template, RepVerbalizer(num_classes=3)).eval()
    batch = batch_of(bert, template)
    batch = batch.to_dict() if as_dict else batch
    before = snapshot(batch)
    again = [hidden_at_mask(bert, template, batch) for _ in range(10)]
    model.prompt_model(batch)
    assert same_content(batch, before)
    fresh = [hidden_at_mask(bert, template, batch_of(bert, template)) for _ in range(10)]
    for one, other in itertools.product(again, fresh):
        assert torch.equal(one, other)


def test_gradients_reach_the_pool_and_only_the_pool(mlm):
    template = pool_template(mlm)
    model = classifier(mlm, template, torch.nn.Identity(), freeze_plm=True, plm_eval_mode=True)
    hidden_at_mask(mlm, template, batch_of(mlm, template)).square().sum().backward()
    assert template.pool.keys.grad.abs().max() > 0
    assert template.pool.prompts.grad.abs().max() > 0
    assert all(p.grad is None for p in model.plm.parameters())


def test_gradients_of_the_pool_through_the_model_equal_finite_differences(bert):
    bert.model.double()
    template = pool_template(bert, num_prompts=2, prompt_length=2)
    template.pool.double()
    batch = batch_of(bert, template, examples(TEXTS[:2], [0, 1]), max_seq_length=20)
    batch = {**batch, "query": template.queries(batch)}
    model = bert.model.eval().requires_grad_(False)

    def score() -> torch.Tensor:
        inputs = template.process_batch(batch)
        hidden = model(
            inputs_embeds=inputs["inputs_embeds"], attention_mask=batch["attention_mask"], output_hidden_states=True
        ).hidden_states[-1]
        return hidden[batch["loss_ids"] > 0].sin().sum()

    keys, prompts = torch.autograd.grad(score(), [template.pool.keys, template.pool.prompts])
    for parameter, gradient in ((template.pool.keys, keys), (template.pool.prompts, prompts)):
        for place in ((0,) * parameter.dim(), tuple(size - 1 for size in parameter.shape)):
            with torch.no_grad():
                parameter[place] += 1e-6
                above = score().item()
                parameter[place] -= 2e-6
                below = score().item()
                parameter[place] += 1e-6
            assert gradient[place].item() == pytest.approx((above - below) / 2e-6, rel=1e-5, abs=1e-8)


# -- queries ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_query_is_the_masks_hidden_state_of_the_text_without_the_pool(mlm, layout):
    template = pool_template(mlm, LAYOUTS[layout])
    plain = ManualTemplate(mlm.tokenizer, LAYOUTS[layout].replace('{"pool"}', ""))
    without = batch_of(mlm, plain)
    hidden = mlm_hidden(mlm, input_ids=without["input_ids"], attention_mask=without["attention_mask"])
    queries = template.queries(batch_of(mlm, template))
    close(queries, hidden[without["loss_ids"] > 0], 1e-5)
    assert not queries.requires_grad


def test_queries_ignore_dropout_and_leave_every_mode_as_found(bert):
    template = pool_template(bert)
    batch = batch_of(bert, template)
    calm = template.queries(batch)
    bert.model.train()
    bert.model.bert.encoder.layer[0].eval()
    modes = [part.training for part in bert.model.modules()]
    assert len(set(modes)) == 2
    assert torch.equal(template.queries(batch), calm)
    assert [part.training for part in bert.model.modules()] == modes


def test_modes_are_restored_even_when_the_encoder_fails(bert, monkeypatch):
    template = pool_template(bert)
    batch = batch_of(bert, template)
    bert.model.train()

    def fail(*args, **kwargs):
        raise RuntimeError("out of memory")

    monkeypatch.setattr(bert.model.bert.embeddings, "forward", fail)
    with pytest.raises(RuntimeError, match="out of memory"):
        template.queries(batch)
    assert all(part.training for part in bert.model.modules())


def test_queries_in_the_batch_are_used_instead_of_the_encoder(bert, monkeypatch):
    template = pool_template(bert)
    batch = {**batch_of(bert, template)}
    given = torch.randn(len(TEXTS), 32, dtype=torch.float64)
    monkeypatch.setattr(template, "query_function", None)
    close(template.attention_weights({**batch, "query": given}), template.pool.attention(given.float()).detach(), 1e-7)
    close(template.attention_weights({**batch, "query": given.tolist()}), template.pool.attention(given.float()), 1e-7)


def test_a_pool_of_one_prompt_asks_the_encoder_nothing(bert, monkeypatch):
    template = pool_template(bert, num_prompts=1)
    batch = batch_of(bert, template)
    expected = template.pool(template.queries(batch))
    assert template.queries(batch).any(), "whoever wants to know the query is still told"

    def refuse(*args):
        raise AssertionError("a pass over the text for nothing")

    monkeypatch.setattr(type(template.query_function), "__call__", refuse)
    assert torch.equal(template.pool(template.pool_queries(batch)), expected)
    template.process_batch(batch)


@pytest.mark.parametrize("shape", [(6, 31), (5, 32), (7, 32), (32,)])
def test_queries_in_the_batch_that_do_not_fit_are_refused(bert, shape):
    template = pool_template(bert)
    batch = {**batch_of(bert, template), "query": torch.zeros(shape)}
    with pytest.raises(TemplateError, match=str(list(shape)).replace("[", r"\[").replace("]", r"\]")):
        template.process_batch(batch)


def test_queries_follow_a_tuned_model_unless_a_frozen_copy_is_kept(bert, caplog):
    with caplog.at_level(logging.INFO):
        following, kept = pool_template(bert), pool_template(bert, query_copy=True)
    assert "frozen copy of the encoder" in caplog.text
    assert "MB" in caplog.text
    batch = batch_of(bert, kept)
    before = kept.queries(batch)
    close(before, following.queries(batch), 1e-6)
    with torch.no_grad():
        for parameter in bert.model.parameters():
            parameter.mul_(1.5)
    assert torch.equal(kept.queries(batch), before)
    assert (following.queries(batch) - before).abs().max() > 1e-3
    assert {name.split(".")[0] for name in kept.state_dict()} == {"pool"}


def test_a_tuned_model_without_a_frozen_copy_is_warned_about_once(bert, caplog):
    template = pool_template(bert)
    batch = batch_of(bert, template)
    bert.model.requires_grad_(False)
    template.queries(batch)
    assert "query_copy" not in caplog.text
    bert.model.requires_grad_(True)
    template.queries(batch)
    template.queries(batch)
    assert caplog.text.count("query_copy: true") == 1


# -- ownership -------------------------------------------------------------------------------------------------------


def test_the_template_owns_the_pool_and_nothing_of_the_model(mlm):
    template = pool_template(mlm)
    width, size = mlm.config.hidden_size, mlm.model.get_input_embeddings().weight.shape[1]
    assert {name: tuple(p.shape) for name, p in template.named_parameters()} == {
        "pool.keys": (4, width),
        "pool.prompts": (4, 3, size),
    }
    assert set(template.state_dict()) == {"pool.keys", "pool.prompts"}
    assert template.raw_embedding is mlm.model.get_input_embeddings()


@pytest.mark.parametrize("trains", [True, False])
def test_whether_the_input_embedding_trains_is_left_as_found(bert, trains):
    bert.model.get_input_embeddings().weight.requires_grad_(trains)
    pool_template(bert)
    assert bert.model.get_input_embeddings().weight.requires_grad is trains


@pytest.mark.parametrize("query_copy", [False, True])
def test_a_deep_copy_of_the_template_shares_the_model_and_owns_its_pool(bert, query_copy):
    template = pool_template(bert, query_copy=query_copy)
    twin = copy.deepcopy(template)
    assert twin.raw_embedding is template.raw_embedding
    assert twin.query_function.encoder is template.query_function.encoder
    with torch.no_grad():
        twin.pool.prompts.zero_()
    assert template.pool.prompts.abs().max() > 0
    batch = batch_of(bert, twin)
    assert torch.equal(twin.queries(batch), template.queries(batch))


def test_a_deep_copy_of_the_whole_model_refers_to_the_copied_language_model(bert):
    template = pool_template(bert)
    model = classifier(bert, template, RepVerbalizer(num_classes=3))
    twin = copy.deepcopy(model)
    assert twin.template.raw_embedding is twin.plm.get_input_embeddings()
    assert twin.template.raw_embedding is not model.plm.get_input_embeddings()
    assert twin.template.query_function.encoder is twin.plm.base_model


# -- initialisation --------------------------------------------------------------------------------------------------


def token_of(row: torch.Tensor, embedding: torch.Tensor) -> int:
    (matches,) = (embedding == row).all(dim=1).nonzero(as_tuple=True)
    return int(matches[0])


def test_prompts_start_from_the_embeddings_of_label_words(mlm):
    template = pool_template(mlm, label_words=MANY_WORDS)
    embedding = mlm.model.get_input_embeddings().weight
    started = {token_of(row, embedding) for row in template.pool.prompts.view(-1, embedding.shape[1])}
    words = [word for own in MANY_WORDS.values() for word in own]
    assert started == {i for word in words for i in mlm.tokenizer.encode(f" {word}", add_special_tokens=False)}


def test_prompts_start_from_ordinary_tokens_of_the_vocabulary(bert):
    template = pool_template(bert, init="vocab", num_prompts=16, prompt_length=10)
    embedding = bert.model.get_input_embeddings().weight
    started = {token_of(row, embedding) for row in template.pool.prompts.view(-1, 32)}
    assert len(started) == 160
    assert not started & set(bert.tokenizer.all_special_ids)


def test_random_prompts_are_drawn_in_their_range(bert):
    template = pool_template(bert, init="random", random_range=0.125)
    assert 0.1 < template.pool.prompts.abs().max() <= 0.125


def test_a_seed_makes_the_start_reproducible_and_leaves_torchs_generator_alone(bert):
    torch.manual_seed(11)
    state = torch.get_rng_state()
    one, other, third = (pool_template(bert, seed=seed) for seed in (3, 3, 4))
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(one.pool.prompts, other.pool.prompts)
    assert torch.equal(one.pool.keys, other.pool.keys)
    assert not torch.equal(one.pool.keys, third.pool.keys)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"init": "labels"}, ["label_words, vocab, random", "'labels'"]),
        ({"init": "label_words"}, ["needs label_words", "meta-training classes"]),
        ({"num_prompts": 0}, ["num_prompts", "at least 1"]),
        ({"top_n": 9}, ["top_n", "between 1 and num_prompts = 4"]),
        ({"prompt_length": 600}, ["600 of them for the pool", "the model's positions = 512", "prompt_length"]),
        (
            {"prompt_length": 14, "max_seq_length": 20},
            ["takes 20 positions", "max_seq_length = 20", "raise the limit"],
        ),
    ],
)
def test_options_that_cannot_work_are_refused(bert, options, says):
    with pytest.raises(TemplateError) as caught:
        pool_template(bert, **options)
    for part in says:
        assert part in str(caught.value)


def test_the_longest_pool_that_leaves_room_for_a_token_is_accepted(bert):
    # [CLS] topic is [MASK] . [SEP] and one token of text
    template = pool_template(bert, prompt_length=13, max_seq_length=20)
    batch = batch_of(bert, template, max_seq_length=20)
    assert (batch["attention_mask"].sum(dim=1) == 20).all()


@pytest.mark.parametrize("family", ["roberta", "mpnet"])
def test_the_length_budget_counts_positions_from_behind_the_padding_id(tiny, family):
    mlm = tiny(family)  # 514 position embeddings, of which 512 can be used
    pool_template(mlm, prompt_length=505)
    with pytest.raises(TemplateError, match="takes 512 positions"):
        pool_template(mlm, prompt_length=506)


def test_a_model_that_cannot_take_a_soft_prompt_is_refused(bert):
    with pytest.raises(TemplateError, match="Expected a language model of transformers, got Linear"):
        PromptPoolTemplate(torch.nn.Linear(2, 2), bert.tokenizer)
    bert.model.config.is_encoder_decoder = True
    with pytest.raises(TemplateError, match="encoder-decoder"):
        pool_template(bert)


def test_a_model_that_takes_no_embeddings_is_refused(bert):
    class Deaf(torch.nn.Module):
        config = bert.config

        def get_input_embeddings(self):
            return bert.model.get_input_embeddings()

        def forward(self, input_ids):
            return input_ids

    with pytest.raises(TemplateError, match="Deaf does not take inputs_embeds"):
        PromptPoolTemplate(Deaf(), bert.tokenizer)


# -- text ------------------------------------------------------------------------------------------------------------


def test_a_new_text_refreshes_what_openprompt_caches_of_the_old_one(bert):
    template = pool_template(bert)
    batch_of(bert, template)
    template.text = LAYOUTS["two texts"]
    fresh = pool_template(bert, LAYOUTS["two texts"])
    assert same_content(batch_of(bert, template), snapshot(batch_of(bert, fresh)))


def test_a_refused_text_leaves_the_template_as_it_was(bert):
    template = pool_template(bert)
    before = snapshot(batch_of(bert, template))
    for wrong in ("no mask", '{"placeholder": "text_a"} {"mask"} ' + "is " * 600, "{1 + 1}"):
        with pytest.raises(TemplateError):
            template.text = wrong
        assert same_content(batch_of(bert, template), before)
    template.text = LAYOUTS["end"]
    fresh = pool_template(bert, LAYOUTS["end"])
    assert same_content(batch_of(bert, template), snapshot(batch_of(bert, fresh)))


def test_a_template_without_text_says_how_to_set_one(bert):
    with pytest.raises(TemplateError, match=r"no text yet. Set template.text"):
        batch_of(bert, pool_template(bert, None))


@pytest.mark.parametrize(
    ("piece", "says"),
    [
        ('{"placeholder": "text_c"}', ["'text_c'", "example '0'", "attributes", "text_a, text_b"]),
        ('{"meta": "colour"}', ["'colour'", "meta entries: place"]),
        ('{"placeholder": "label"}', ["'label'", "expected a string"]),
    ],
)
def test_an_example_without_the_asked_for_text_is_refused_by_name(bert, piece, says):
    template = pool_template(bert, piece + ' {"mask"}')
    with pytest.raises(TemplateError) as caught:
        batch_of(bert, template)
    for part in says:
        assert part in str(caught.value)


def test_a_batch_of_another_template_is_refused(bert):
    template = pool_template(bert)
    with pytest.raises(TemplateError, match=r"no 'soft_token_ids'.*template=<this PromptPoolTemplate>"):
        template.process_batch(batch_of(bert, ManualTemplate(bert.tokenizer, LAYOUTS["absent"])))
    with pytest.raises(TemplateError, match=r"prompts of \[5\] positions, the pool's are 3 long"):
        template.process_batch(batch_of(bert, pool_template(bert, prompt_length=5)))


def test_a_text_that_holds_the_mask_token_is_not_taken_for_the_mask(mlm):
    template = pool_template(mlm)
    data = [InputExample(guid=0, text_a=f"the {mlm.tokenizer.mask_token} game", label=0)]
    batch = batch_of(mlm, template, data)
    assert (batch["input_ids"] == mlm.tokenizer.mask_token_id).sum() == 2
    assert (batch["loss_ids"] > 0).sum() == 1
    assert template.queries(batch).shape == (1, 32)
    assert hidden_at_mask(mlm, template, batch).shape == (1, 32)


def test_openprompts_model_runs_on_a_batch_of_input_features(mlm):
    template = pool_template(mlm)
    model = PromptForClassification(mlm.model, template, RepVerbalizer(num_classes=3))
    log_probabilities = model(batch_of(mlm, template))
    close(log_probabilities.exp().sum(dim=-1), [1.0] * 6, 1e-5)
