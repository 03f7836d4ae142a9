"""Hiding words: which positions of which texts a step asks for, drawn anew for every step from its number."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

# BERT's: most hidden words become [MASK], some another word, some stay, so that no word can be trusted blindly.
_MASKED, _REPLACED = 0.8, 0.1


class Puzzle(NamedTuple):
    """Texts with words hidden, all of one length, and what was there."""

    input_ids: Tensor
    """``[B, L]``."""
    positions: Tensor
    """``[B, M]``: the places in each row that are asked for, ascending."""
    answers: Tensor
    """``[B, M]``: the tokens that stood there."""


@dataclass(frozen=True)
class Masking:
    """Draws texts from a row of tokens and hides words in them.

    Attributes:
        tokens: the row.
        rate: the share of words that is hidden.
        begin: token id of [CLS].
        end: of [SEP].
        mask: of [MASK].
        special: ids that never stand in for another word.
        vocabulary: how many tokens there are.
    """

    tokens: Tensor
    rate: float
    begin: int
    end: int
    mask: int
    special: tuple[int, ...]
    vocabulary: int

    @classmethod
    def of(cls, tokens: Tensor, rate: float, tokenizer: Any) -> Masking:
        """With a tokenizer's special tokens."""
        unused = {i for word, i in tokenizer.get_vocab().items() if word.startswith("[unused")}
        return cls(
            tokens=tokens,
            rate=rate,
            begin=tokenizer.cls_token_id,
            end=tokenizer.sep_token_id,
            mask=tokenizer.mask_token_id,
            special=tuple(sorted({*tokenizer.all_special_ids, *unused})),
            vocabulary=len(tokenizer),
        )

    def draw(self, seed: int, number: int, rows: int, length: int) -> Puzzle:
        """The texts of one step: the same for the same seed, number, rows and length."""
        random = torch.Generator().manual_seed(seed * 1_000_003 + number)
        inner = length - 2
        starts = torch.randint(len(self.tokens) - inner, (rows, 1), generator=random)
        texts = self.tokens[starts + torch.arange(inner)].long()
        count = max(1, round(self.rate * inner))
        positions = torch.rand(rows, inner, generator=random).argsort(dim=1)[:, :count].sort(dim=1).values
        answers = texts.gather(1, positions)
        texts = texts.scatter(1, positions, self._disguised(answers, random))
        edge = torch.ones(rows, 1, dtype=torch.long)
        return Puzzle(torch.cat([self.begin * edge, texts, self.end * edge], dim=1), positions + 1, answers)

    def _disguised(self, answers: Tensor, random: torch.Generator) -> Tensor:
        fate = torch.rand(answers.shape, generator=random)
        ordinary = torch.ones(self.vocabulary, dtype=torch.bool)
        ordinary[list(self.special)] = False
        words = ordinary.nonzero().squeeze(1)
        others = words[torch.randint(len(words), answers.shape, generator=random)]
        hidden = torch.where(fate < _MASKED, torch.full_like(answers, self.mask), answers)
        return torch.where((fate >= _MASKED) & (fate < _MASKED + _REPLACED), others, hidden)
