from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import openprompt_meta  # noqa: F401 - makes openprompt importable
from openprompt_meta.compat.bridge import add_special_tokens, special_token_ids

pytestmark = pytest.mark.prompts

WORDS = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "[MASK]",
    "topic",
    "is",
    ".",
    "the",
    "sun",
    "shines",
    "rain",
    "falls",
    "a",
]
INPUTS = {
    "input_ids": [8, 9, 10, 5, 6, 4, 7],
    "soft_token_ids": [0, 0, 0, 1, 2, 0, 0],
    "loss_ids": [0, 0, 0, 0, 0, 1, 0],
    "shortenable_ids": [1, 1, 1, 0, 0, 0, 0],
}


class Wrapper:
    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer


class StubTokenizer:
    """Puts the given ids around a text; a mask token is 4, any other text is 20 21."""

    def __init__(self, prefix: list[int], suffix: list[int], mask_token: str | None = "[MASK]") -> None:
        self.prefix, self.suffix, self.mask_token, self.calls = prefix, suffix, mask_token, 0

    def encode(self, text: str, add_special_tokens: bool) -> list[int]:
        self.calls += 1
        ids = [4] if text == self.mask_token else [20, 21]
        return [*self.prefix, *ids, *self.suffix] if add_special_tokens else ids


def bert_tokenizer(folder: Path) -> Any:
    from transformers import BertTokenizer

    file = folder / "vocab.txt"
    file.write_text("\n".join(WORDS), encoding="utf-8")
    return BertTokenizer(str(file))


def test_it_gives_what_openprompts_own_method_gives_where_that_works(tmp_path: Path) -> None:
    from openprompt.plms.utils import TokenizerWrapper

    tokenizer = bert_tokenizer(tmp_path)
    if not hasattr(tokenizer, "build_inputs_with_special_tokens"):
        pytest.skip("this transformers lacks what OpenPrompt's own method needs")
    stock = TokenizerWrapper.add_special_tokens
    assert stock is not add_special_tokens, "the stock method must stay where it works"
    expected = stock(Wrapper(tokenizer), {key: list(values) for key, values in INPUTS.items()})
    assert add_special_tokens(Wrapper(tokenizer), INPUTS) == expected


def test_a_wrapped_text_has_the_ids_of_the_plain_text(tmp_path: Path) -> None:
    from openprompt.data_utils import InputExample
    from openprompt.plms.mlm import MLMTokenizerWrapper
    from openprompt.prompts import ManualTemplate

    tokenizer = bert_tokenizer(tmp_path)
    template = ManualTemplate(tokenizer=tokenizer, text='{"placeholder": "text_a"} topic is {"mask"} .')
    wrapper = MLMTokenizerWrapper(max_seq_length=12, tokenizer=tokenizer)
    wrapped = template.wrap_one_example(InputExample(guid="0", text_a="the sun shines", label=0))
    tokenized = wrapper.tokenize_one_example(wrapped, teacher_forcing=False)
    ids = [2, 8, 9, 10, 5, 6, 4, 7, 3]  # [CLS] the sun shines topic is [MASK] . [SEP]
    assert tokenized["input_ids"] == [*ids, 0, 0, 0]
    assert tokenized["attention_mask"] == [1] * len(ids) + [0] * 3
    assert tokenized["loss_ids"] == [-100, 0, 0, 0, 0, 0, 1, 0, -100, 0, 0, 0]


@pytest.mark.parametrize(("prefix", "suffix"), [([2], [3]), ([7, 8], []), ([], [1]), ([], [])])
@pytest.mark.parametrize("mask_token", ["[MASK]", None])
def test_special_tokens_are_found_wherever_a_tokenizer_puts_them(
    prefix: list[int], suffix: list[int], mask_token: str | None
) -> None:
    tokenizer = StubTokenizer(prefix, suffix, mask_token)
    assert special_token_ids(tokenizer) == (prefix, suffix)
    outputs = add_special_tokens(Wrapper(tokenizer), INPUTS)
    assert outputs["input_ids"] == [*prefix, *INPUTS["input_ids"], *suffix]
    assert outputs["soft_token_ids"] == [0] * len(prefix) + INPUTS["soft_token_ids"] + [0] * len(suffix)
    assert outputs["loss_ids"] == [-100] * len(prefix) + INPUTS["loss_ids"] + [-100] * len(suffix)


def test_the_callers_lists_are_left_as_they_were() -> None:
    inputs = {key: list(values) for key, values in INPUTS.items()}
    add_special_tokens(Wrapper(StubTokenizer([2], [3])), inputs)
    assert inputs == INPUTS


def test_a_tokenizer_is_asked_once() -> None:
    tokenizer = StubTokenizer([2], [3])
    for _ in range(5):
        add_special_tokens(Wrapper(tokenizer), INPUTS)
    assert tokenizer.calls == 2  # with and without special tokens


def test_a_tokenizer_that_contradicts_itself_is_named() -> None:
    tokenizer = StubTokenizer([2], [3])
    tokenizer.encode = lambda text, add_special_tokens: [9] if add_special_tokens else [4]  # type: ignore[method-assign]
    with pytest.raises(ValueError, match=r"\[4\].*\[9\]"):
        special_token_ids(tokenizer)
