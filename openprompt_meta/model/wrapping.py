"""Many texts wrapped and tokenised at once, token by token as OpenPrompt does it one by one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from openprompt.data_utils import InputExample

from openprompt_meta.compat.tokenization import add_special_tokens
from openprompt_meta.model.token_rows import TokenRows
from openprompt_meta.prompts import PromptPoolTemplate

__all__ = ["wrap_one_by_one", "wrap_texts"]

Row = Mapping[str, Sequence[int]]

_TEXTS_AT_ONCE = 4096


def wrap_texts(texts: Sequence[str], template: PromptPoolTemplate, wrapper: Any) -> TokenRows:
    """The texts as ``template`` wraps and ``wrapper`` (an OpenPrompt tokenizer wrapper) tokenises and cuts them.

    The tokenizer is called for thousands of texts at a time instead of for each piece of each text. Templates that
    fill in more than the text once, and tokenizers that are not fast, go one by one.
    """
    rows = _Frame(template, wrapper).fill(texts) if _is_simple(template, wrapper) else None
    if rows is None or not _agree(rows, texts, template, wrapper):
        rows = [wrap_one_by_one(text, template, wrapper) for text in texts]
    return TokenRows.from_rows(rows, padding=wrapper.tokenizer.pad_token_id)


def wrap_one_by_one(text: str, template: PromptPoolTemplate, wrapper: Any) -> Row:
    """A text wrapped and tokenised by OpenPrompt's own code, without its padding."""
    features = wrapper.tokenize_one_example(
        template.wrap_one_example(InputExample(guid="", text_a=text)), teacher_forcing=False
    )
    length = sum(features["attention_mask"])
    keys = ("input_ids", "token_type_ids", "loss_ids", "soft_token_ids")
    return {key: features[key][:length] for key in keys if key in features}


def _is_simple(template: PromptPoolTemplate, wrapper: Any) -> bool:
    wrapped, _ = template.wrap_one_example(InputExample(guid="", text_a=""))
    fills = [i for i, piece in enumerate(template.text) if "placeholder" in piece or "meta" in piece]
    # One text to fill in, and nothing but that text to cut if it is too long.
    return (
        bool(getattr(wrapper.tokenizer, "is_fast", False))
        and len(fills) == 1
        and template.text[fills[0]].get("placeholder") == "text_a"
        and [bool(piece["shortenable_ids"]) for piece in wrapped] == [i == fills[0] for i in range(len(wrapped))]
    )


def _agree(rows: Sequence[Row], texts: Sequence[str], template: PromptPoolTemplate, wrapper: Any) -> bool:
    """Whether the longest and the shortest text came out as OpenPrompt has them."""
    by_length = sorted(range(len(texts)), key=lambda i: len(texts[i]))
    return all(rows[i] == wrap_one_by_one(texts[i], template, wrapper) for i in {by_length[0], by_length[-1]})


class _Frame:
    """The tokens of a template around its one placeholder."""

    def __init__(self, template: PromptPoolTemplate, wrapper: Any) -> None:
        self._template = template
        self._wrapper = wrapper
        wrapped, _ = template.wrap_one_example(InputExample(guid="", text_a=""))
        (at,) = (i for i, piece in enumerate(template.text) if "placeholder" in piece)
        self._space: str = template.text[at]["add_prefix_space"]
        self._flags = {key: value for key, value in wrapped[at].items() if key in ("loss_ids", "soft_token_ids")}
        self._before = [self._encode(piece) for piece in wrapped[:at]]
        self._after = [self._encode(piece) for piece in wrapped[at + 1 :]]
        fixed = sum(len(part["input_ids"]) for part in (*self._before, *self._after))
        self._room = max(0, wrapper.max_seq_length - wrapper.num_special_tokens_to_add - fixed)

    def fill(self, texts: Sequence[str]) -> list[Row]:
        """A row for each text."""
        specials = self._wrapper.special_tokens_maps
        rows: list[Row] = []
        for start in range(0, len(texts), _TEXTS_AT_ONCE):
            block = texts[start : start + _TEXTS_AT_ONCE]
            filled = [self._space + text for text in block]
            encoded = self._wrapper.tokenizer(filled, add_special_tokens=False, verbose=False)["input_ids"]
            rows += [
                # A text that is nothing but "<mask>" or the like is replaced by OpenPrompt.
                wrap_one_by_one(text, self._template, self._wrapper) if words in specials else self._row(ids)
                for text, words, ids in zip(block, filled, encoded, strict=True)
            ]
        return rows

    def _row(self, text_ids: Sequence[int]) -> Row:
        kept = list(text_ids[: self._room])
        text = {"input_ids": kept, **{key: [value] * len(kept) for key, value in self._flags.items()}}
        parts = [*self._before, text, *self._after]
        joined = {key: [value for part in parts for value in part[key]] for key in text}
        row = add_special_tokens(self._wrapper, joined)
        if self._wrapper.create_token_type_ids:
            row["token_type_ids"] = [0] * len(row["input_ids"])
        return row

    def _encode(self, piece: Mapping[str, Any]) -> dict[str, list[int]]:
        text = self._wrapper.special_tokens_maps.get(piece["text"], piece["text"])
        ids = [0] if piece["soft_token_ids"] else self._wrapper.tokenizer.encode(text, add_special_tokens=False)
        return {"input_ids": ids, **{key: [piece[key]] * len(ids) for key in self._flags}}
