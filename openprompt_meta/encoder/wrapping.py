"""Texts wrapped in a template and tokenised as OpenPrompt does it: one by one, or many at once."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch
from openprompt.data_utils import InputExample
from openprompt.plms.mlm import MLMTokenizerWrapper
from torch import Tensor

from openprompt_meta.compat.bridge import add_special_tokens
from openprompt_meta.prompts.pool_template import PromptPoolTemplate

# -- OpenPrompt's tokenizer wrapper for masked language models, for every tokenizer and for empty texts ---------------


class MaskedLMTokenizerWrapper(MLMTokenizerWrapper):
    """``MLMTokenizerWrapper`` that also works with fast tokenizers; the same features for slow ones."""

    add_special_tokens = add_special_tokens

    # The arguments by name: OpenPrompt's data loader hands over those that it finds in the signature.
    def __init__(
        self,
        max_seq_length: int,
        tokenizer: Any,
        truncate_method: str = "tail",
        create_token_type_ids: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            max_seq_length=max_seq_length,
            tokenizer=tokenizer,
            truncate_method=truncate_method,
            create_token_type_ids=create_token_type_ids,
            **kwargs,
        )
        _allow_long_texts(tokenizer)

    def truncate(self, encoder_inputs: dict[str, list[list[int]]]) -> dict[str, Any]:
        """OpenPrompt's, without the parts that have no token: two of its methods look at the first one of each."""
        full = [i for i, part in enumerate(encoder_inputs["input_ids"]) if part]
        kept = {key: [parts[i] for i in full] for key, parts in encoder_inputs.items()}
        cut: dict[str, Any] = super().truncate(kept)
        return cut


def _allow_long_texts(tokenizer: Any) -> None:
    """Keep transformers from warning of texts that are longer than the model takes: the wrapper cuts them."""
    warned = getattr(tokenizer, "deprecation_warnings", None)
    if isinstance(warned, dict):
        warned["sequence-length-is-longer-than-the-specified-maximum"] = True


# -- Wrapped and tokenised texts of any number, in a few flat tensors -------------------------------------------------


@dataclass(frozen=True)
class TokenRows:
    """Rows of tokens without padding, one for each text.

    Attributes:
        columns: for each key (``input_ids``, ``loss_ids``, ``soft_token_ids``, …) the values of all rows end to end,
            ``[N]``.
        ends: ``[n]``, where each row ends.
        padding: what ``input_ids`` are padded with.
        cut: how many of the texts were too long and lost their end.
    """

    columns: Mapping[str, Tensor]
    ends: Tensor
    padding: int
    cut: int = 0

    @classmethod
    def from_rows(cls, rows: Sequence[Mapping[str, Sequence[int]]], padding: int, cut: int = 0) -> TokenRows:
        """Rows given one by one, all with the same keys."""
        lengths = torch.tensor([len(row["input_ids"]) for row in rows])
        columns = {
            key: torch.tensor([value for row in rows for value in row[key]], dtype=torch.int32) for key in rows[0]
        }
        return cls(columns, lengths.cumsum(dim=0), padding, cut)

    def __len__(self) -> int:
        return len(self.ends)

    @property
    def lengths(self) -> Tensor:
        """``[n]``, tokens of each row."""
        return torch.diff(self.ends, prepend=self.ends.new_zeros(1))

    def batch(self, indices: Sequence[int]) -> dict[str, Tensor]:
        """Rows as a batch, ``[B, L]`` for each key with ``L`` the longest of them, and their ``attention_mask``."""
        chosen = torch.as_tensor(list(indices), dtype=torch.long)
        ends, lengths = self.ends[chosen], self.lengths[chosen]
        places = torch.arange(int(lengths.max()) if len(lengths) else 0).unsqueeze(0)  # [1, L]
        mask = places < lengths.unsqueeze(1)  # [B, L]
        at = ((ends - lengths).unsqueeze(1) + places).masked_fill(~mask, 0)
        batch = {"attention_mask": mask.long()}
        for key, values in self.columns.items():
            batch[key] = values[at].long().masked_fill(~mask, self.padding if key == "input_ids" else 0)
        return batch

    def without(self, key: str) -> TokenRows:
        """The same rows without the tokens at which ``key`` is above zero."""
        keep = self.columns[key] <= 0
        ends = keep.long().cumsum(dim=0)[self.ends - 1]
        return TokenRows({name: values[keep] for name, values in self.columns.items()}, ends, self.padding, self.cut)


# -- Many texts wrapped and tokenised at once, token by token as OpenPrompt does it one by one ------------------------

TokenRow = Mapping[str, Sequence[int]]

_TEXTS_AT_ONCE = 4096
_ORDINARY = 20_000  # characters; a text may be a megabyte, of which a few hundred tokens are kept
_CHARACTERS_A_WORD = 32  # a text with more is looked at word by word


def wrap_texts(texts: Sequence[str], template: PromptPoolTemplate, wrapper: Any) -> TokenRows:
    """The texts as ``template`` wraps and ``wrapper`` (an OpenPrompt tokenizer wrapper) tokenises and cuts them.

    The tokenizer is called for thousands of texts at a time instead of for each piece of each text. Templates that
    fill in more than the text once, and tokenizers that are not fast, go one by one. Of a very long text no more is
    tokenised than may be needed.
    """
    padding: int = wrapper.tokenizer.pad_token_id
    if _is_simple(template, wrapper):
        frame = _Frame(template, wrapper)
        rows = frame.fill(texts)
        if _agree(rows, texts, template, wrapper):
            return TokenRows.from_rows(rows, padding, frame.cut)
    before = wrapper.num_truncated_sentences
    rows = [wrap_one_by_one(text, template, wrapper) for text in texts]
    return TokenRows.from_rows(rows, padding, wrapper.num_truncated_sentences - before)


def wrap_one_by_one(text: str, template: PromptPoolTemplate, wrapper: Any) -> TokenRow:
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
        and "post_processing" not in template.text[fills[0]]
        and [bool(piece["shortenable_ids"]) for piece in wrapped] == [i == fills[0] for i in range(len(wrapped))]
    )


def _agree(rows: Sequence[TokenRow], texts: Sequence[str], template: PromptPoolTemplate, wrapper: Any) -> bool:
    """Whether the longest text of ordinary length and the shortest one came out as OpenPrompt has them."""
    by_length = sorted((i for i in range(len(texts)) if len(texts[i]) <= _ORDINARY), key=lambda i: len(texts[i]))
    if not by_length:
        by_length = [0]
    return all(rows[i] == wrap_one_by_one(texts[i], template, wrapper) for i in {by_length[0], by_length[-1]})


class _Frame:
    """The tokens of a template around its one placeholder.

    Attributes:
        cut: how many texts were too long so far.
    """

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
        self.cut = 0

    def fill(self, texts: Sequence[str]) -> list[TokenRow]:
        """A row for each text."""
        specials = self._wrapper.special_tokens_maps
        rows: list[TokenRow] = []
        for start in range(0, len(texts), _TEXTS_AT_ONCE):
            block = texts[start : start + _TEXTS_AT_ONCE]
            filled = [self._space + text for text in block]
            encoded = self._tokenise(filled)
            rows += [
                # A text that is nothing but "<mask>" or the like is replaced by OpenPrompt.
                wrap_one_by_one(text, self._template, self._wrapper) if words in specials else self._row(ids)
                for text, words, ids in zip(block, filled, encoded, strict=True)
            ]
        return rows

    def _tokenise(self, texts: list[str]) -> list[list[int]]:
        heads = [_first_words(text, self._room + 1) for text in texts]
        encoded = self._ids(heads)
        # Words that no token is made of: then the beginning was not enough.
        short = [i for i, ids in enumerate(encoded) if len(heads[i]) < len(texts[i]) and len(ids) <= self._room]
        for i, ids in zip(short, self._ids([texts[i] for i in short]), strict=True):
            encoded[i] = ids
        return encoded

    def _ids(self, texts: list[str]) -> list[list[int]]:
        if not texts:
            return []
        ids: list[list[int]] = self._wrapper.tokenizer(texts, add_special_tokens=False, verbose=False)["input_ids"]
        return ids

    def _row(self, text_ids: Sequence[int]) -> TokenRow:
        kept = list(text_ids[: self._room])
        self.cut += len(text_ids) > self._room
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


def _first_words(text: str, count: int) -> str:
    """The text, or if it is very long, what stands before the white space behind its first ``count`` words."""
    if len(text) <= _CHARACTERS_A_WORD * count:
        return text
    ends = (match.start() + 1 for match in re.finditer(r"[^ \t\r\n][ \t\r\n]", text))
    return text[: next(islice(ends, count - 1, None), len(text))]
