"""Many texts at once become the tokens that OpenPrompt makes of each."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from openprompt_meta.encoder import wrapping as module
from openprompt_meta.encoder.loading import LoadedMLM
from openprompt_meta.encoder.wrapping import TokenRows, wrap_one_by_one, wrap_texts
from openprompt_meta.prompts.pool_template import PromptPoolTemplate
from tests.helpers.tiny_models import FAMILIES, WORDS

pytestmark = pytest.mark.meta

TEMPLATES = [
    '{"placeholder": "text_a"} {"pool"} topic is {"mask"}.',
    '{"pool"} {"mask"} : {"placeholder": "text_a"}',
    'topic {"mask"} {"special": "<sep>"}{"placeholder": "text_a"}{"pool"} about',
]
# Not simple: two texts to fill in, or template text that may be cut.
OTHERS = [
    '{"placeholder": "text_a"} {"pool"} {"placeholder": "text_a"} is {"mask"}.',
    '{"text": "about the weather", "shortenable": True} {"placeholder": "text_a"} {"pool"} {"mask"}',
]
TEXTS = [
    "rain",
    "",
    " ",
    "a storm at night " * 30,
    "<mask>",
    "[MASK] me",
    "<sep>",
    "Ünïcödé 雨 🌧",
    "a\n\tb",
    "</s> x [SEP]",
]


def rows_of(rows: TokenRows) -> list[dict[str, list[int]]]:
    ends = [0, *rows.ends.tolist()]
    return [{key: values[start:end].tolist() for key, values in rows.columns.items()} for start, end in pairwise(ends)]


@pytest.mark.parametrize("create_types", [False, True])
@pytest.mark.parametrize("text", [*TEMPLATES, *OTHERS])
@pytest.mark.parametrize("family", FAMILIES)
def test_tokens_are_openprompts_for_every_tokenizer_and_template(
    family: str, text: str, create_types: bool, tiny: Callable[[str], LoadedMLM]
) -> None:
    mlm = tiny(family)
    template = PromptPoolTemplate(mlm.model, mlm.tokenizer, text, num_prompts=2, prompt_length=3, seed=0)
    wrapper = mlm.wrapper(tokenizer=mlm.tokenizer, max_seq_length=40, create_token_type_ids=create_types)
    expected = [wrap_one_by_one(one, template, wrapper) for one in TEXTS]
    assert rows_of(wrap_texts(TEXTS, template, wrapper)) == expected
    assert ("token_type_ids" in expected[0]) == create_types


@given(texts=st.lists(st.text(max_size=60) | st.lists(st.sampled_from(WORDS), max_size=30).map(" ".join), min_size=3))
@settings(
    deadline=None, derandomize=True, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_tokens_are_openprompts_for_any_text(texts: list[str], tiny: Callable[[str], LoadedMLM]) -> None:
    mlm = _kept(tiny)
    template = PromptPoolTemplate(mlm.model, mlm.tokenizer, TEMPLATES[0], num_prompts=2, prompt_length=3, seed=0)
    wrapper = mlm.wrapper(tokenizer=mlm.tokenizer, max_seq_length=24)
    filled = module._Frame(template, wrapper).fill(texts)  # without the check that may fall back to OpenPrompt
    assert filled == [wrap_one_by_one(one, template, wrapper) for one in texts]


_MODELS: dict[str, LoadedMLM] = {}


def _kept(tiny: Callable[[str], LoadedMLM]) -> LoadedMLM:
    if not _MODELS:
        _MODELS["roberta"] = tiny("roberta")
    return _MODELS["roberta"]


def test_simple_templates_call_the_tokenizer_once_for_all_texts(
    tiny: Callable[[str], LoadedMLM], monkeypatch: pytest.MonkeyPatch
) -> None:
    mlm = tiny("bert")
    template = PromptPoolTemplate(mlm.model, mlm.tokenizer, TEMPLATES[0], num_prompts=2, prompt_length=3, seed=0)
    wrapper = mlm.wrapper(tokenizer=mlm.tokenizer, max_seq_length=40)
    one_by_one: list[str] = []
    real = module.wrap_one_by_one
    monkeypatch.setattr(
        module,
        "wrap_one_by_one",
        lambda text, *rest: one_by_one.append(text) or real(text, *rest),  # type: ignore[func-returns-value]
    )
    wrap_texts([f"rain {word}" for word in WORDS], template, wrapper)
    assert len(one_by_one) == 2  # the two that are compared with OpenPrompt's


def test_what_does_not_agree_with_openprompt_is_left_to_openprompt(
    tiny: Callable[[str], LoadedMLM], monkeypatch: pytest.MonkeyPatch
) -> None:
    mlm = tiny("bert")
    template = PromptPoolTemplate(mlm.model, mlm.tokenizer, TEMPLATES[0], num_prompts=2, prompt_length=3, seed=0)
    wrapper = mlm.wrapper(tokenizer=mlm.tokenizer, max_seq_length=40)
    expected = [wrap_one_by_one(one, template, wrapper) for one in TEXTS]
    monkeypatch.setattr(module._Frame, "_row", lambda self, ids: {"input_ids": list(ids)})
    assert rows_of(wrap_texts(TEXTS, template, wrapper)) == expected


def test_rows_without_the_pool_and_batches_of_rows_are_as_written_out() -> None:
    rows = TokenRows.from_rows(
        [
            {"input_ids": [5, 6, 7], "soft_token_ids": [0, 1, 0], "loss_ids": [-100, 0, 1]},
            {"input_ids": [8, 9], "soft_token_ids": [1, 0], "loss_ids": [0, 1]},
        ],
        padding=4,
    )
    batch = rows.batch([1, 0])
    expected: dict[str, Any] = {
        "attention_mask": [[1, 1, 0], [1, 1, 1]],
        "input_ids": [[8, 9, 4], [5, 6, 7]],
        "soft_token_ids": [[1, 0, 0], [0, 1, 0]],
        "loss_ids": [[0, 1, 0], [-100, 0, 1]],
    }
    assert {key: value.tolist() for key, value in batch.items()} == expected
    assert all(value.dtype == torch.int64 for value in batch.values())
    left = rows.without("soft_token_ids")
    assert left.ends.tolist() == [2, 3]
    assert left.columns["input_ids"].tolist() == [5, 7, 9]


@pytest.mark.parametrize("family", ["bert", "roberta", "deberta-v2"])
def test_of_a_very_long_text_only_the_beginning_is_tokenised_and_it_is_enough(
    family: str, tiny: Callable[[str], LoadedMLM], monkeypatch: pytest.MonkeyPatch
) -> None:
    mlm = tiny(family)
    template = PromptPoolTemplate(mlm.model, mlm.tokenizer, TEMPLATES[0], num_prompts=2, prompt_length=3, seed=0)
    wrapper = mlm.wrapper(tokenizer=mlm.tokenizer, max_seq_length=40)
    texts = ["rain and storm " * 400, "rain", " \n" * 5000 + "rain", "x" * 4000, "\u200b " * 3000 + "the rain"]
    expected = [wrap_one_by_one(one, template, wrapper) for one in texts]
    seen: list[int] = []
    real = module._Frame._ids

    def counting(self: Any, given: list[str]) -> list[list[int]]:
        seen.append(sum(map(len, given)))
        return real(self, given)

    monkeypatch.setattr(module._Frame, "_ids", counting)
    rows = wrap_texts(texts[:2], template, wrapper)
    assert rows_of(rows) == expected[:2]
    assert rows.cut == 1
    assert sum(seen) < 2000
    assert rows_of(wrap_texts(texts, template, wrapper)) == expected


@pytest.mark.parametrize("text", [TEMPLATES[0], OTHERS[0]])
def test_texts_that_were_cut_are_counted(text: str, tiny: Callable[[str], LoadedMLM]) -> None:
    mlm = tiny("bert")
    template = PromptPoolTemplate(mlm.model, mlm.tokenizer, text, num_prompts=2, prompt_length=3, seed=0)
    wrapper = mlm.wrapper(tokenizer=mlm.tokenizer, max_seq_length=40)
    assert wrap_texts(["rain", "rain " * 60, "storm", "the sun " * 50], template, wrapper).cut == 2
