"""Texts that nobody expects: empty, huge, right-to-left, with control characters, with braces and special tokens."""

from __future__ import annotations

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from openprompt.data_utils import InputExample
from openprompt.prompts import ManualTemplate

from openprompt_meta.verbalizers.rep import RepVerbalizer
from tests.helpers.prompts import PAPER_LAYOUT, batch_of, classifier, close, hidden_at_mask, pool_template

pytestmark = pytest.mark.prompts

ODD = {
    "empty": "",
    "blank": "   ",
    "one character": "x",
    "emoji": "😀👩‍👩‍👧",
    "10,000 characters": "storm at night " * 667,
    "one word of 10,000 characters": "x" * 10_000,
    "right to left": "שלום עולם مرحبا بالعالم",
    "control characters": "a\x00b\x07\u200b\u202e\r\n\tc\x7f",
    "mask token": "[MASK] <mask> [mask]",
    "special tokens": "[CLS] [SEP] [PAD] </s> <s> <pad> [UNK]",
    "pieces": '{"mask"} {"pool"} {"placeholder": "text_a"}',
    "braces": "}{ {{{ }}}",
    "combining": "e\u0301" * 50,
    "lone newline": "\n",
}
FAMILIES = ["bert", "roberta", "mpnet"]


@pytest.fixture(scope="module")
def models(tiny_mlm_folder):
    from openprompt_meta.encoder.loading import load_mlm

    return {family: load_mlm(tiny_mlm_folder(family)) for family in FAMILIES}


def check(mlm, text: str) -> None:
    template = pool_template(mlm)
    data = [InputExample(guid=0, text_a=text, label=0), InputExample(guid=1, text_a="we want soup", label=1)]
    batch = batch_of(mlm, template, data, max_seq_length=40)
    assert (batch["loss_ids"] > 0).sum(dim=1).tolist() == [1, 1]
    assert (batch["soft_token_ids"] > 0).sum(dim=1).tolist() == [3, 3]
    assert batch["input_ids"][batch["loss_ids"] > 0].tolist() == [mlm.tokenizer.mask_token_id] * 2
    model = classifier(mlm, template, RepVerbalizer(num_classes=2)).train()
    model.plm.eval()
    log_probabilities = model(batch)
    assert log_probabilities.isfinite().all()
    close(log_probabilities.exp().sum(dim=-1), [1.0, 1.0], 1e-5)
    # The neighbour does not notice.
    alone = hidden_at_mask(mlm, template, batch_of(mlm, template, data[1:], max_seq_length=40))
    close(hidden_at_mask(mlm, template, batch)[1], alone[0].detach(), 1e-5)
    # The query is that of the same text in a template without a pool, as long as nothing had to be cut.
    plain = batch_of(mlm, ManualTemplate(mlm.tokenizer, PAPER_LAYOUT.replace('{"pool"}', "")), data, max_seq_length=37)
    with torch.no_grad():
        hidden = mlm.model(
            input_ids=plain["input_ids"], attention_mask=plain["attention_mask"], output_hidden_states=True
        ).hidden_states[-1]
    close(template.queries(batch), hidden[plain["loss_ids"] > 0], 1e-5)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("text", ODD.values(), ids=ODD.keys())
def test_an_odd_text_is_wrapped_and_classified_like_any_other(models, family, text):
    check(models[family], text)


@settings(max_examples=25, deadline=None, derandomize=True)
@given(st.text(max_size=60))
@example("\ud7ff")
def test_any_text_is_wrapped_and_classified(models, text):
    check(models["roberta"], text)
    check(models["bert"], text)


@settings(max_examples=20, deadline=None, derandomize=True)
@given(
    num_prompts=st.integers(1, 5),
    prompt_length=st.integers(1, 6),
    first=st.text(max_size=30),
    second=st.text(max_size=30),
    max_seq_length=st.integers(16, 48),
    order=st.permutations(['{"placeholder": "text_a"}', '{"pool"}', "topic", '{"mask"}', '{"placeholder": "text_b"}']),
)
def test_any_layout_and_length_keeps_pool_and_mask_whole(
    models, num_prompts, prompt_length, first, second, max_seq_length, order
):
    mlm = models["bert"]
    template = pool_template(mlm, " ".join(order), num_prompts=num_prompts, prompt_length=prompt_length)
    batch = batch_of(mlm, template, [InputExample(guid=0, text_a=first, text_b=second, label=0)], max_seq_length)
    assert batch["input_ids"].shape == (1, max_seq_length)
    assert (batch["soft_token_ids"] > 0).sum() == prompt_length
    assert batch["input_ids"][batch["loss_ids"] > 0].tolist() == [mlm.tokenizer.mask_token_id]
    assert hidden_at_mask(mlm, template, batch).isfinite().all()
