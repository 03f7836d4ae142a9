"""Which words are hidden, and how."""

from __future__ import annotations

import pytest
import torch

from tools.minilm_mlm.masking import Masking

BEGIN, END, MASK = 1, 2, 3
VOCABULARY = 500
TOKENS = torch.arange(10, 500, dtype=torch.int32).repeat(20)


def masking(rate: float = 0.25) -> Masking:
    return Masking(TOKENS, rate, BEGIN, END, MASK, special=tuple(range(10)), vocabulary=VOCABULARY)


def test_what_was_hidden_is_what_stood_there() -> None:
    """Put back, the answers give a stretch of the row of tokens, untouched elsewhere."""
    puzzle = masking().draw(seed=0, number=3, rows=8, length=42)
    restored = puzzle.input_ids.scatter(1, puzzle.positions, puzzle.answers)
    assert (restored[:, 0] == BEGIN).all()
    assert (restored[:, -1] == END).all()
    inner = restored[:, 1:-1]
    following = torch.where(inner[:, :-1] == VOCABULARY - 1, 10, inner[:, :-1] + 1)
    assert torch.equal(inner[:, 1:], following)


@pytest.mark.parametrize(("rate", "count"), [(0.25, 10), (0.1, 4), (0.0, 1)])
def test_as_many_words_of_each_text_are_asked_for_as_the_rate_says(rate: float, count: int) -> None:
    puzzle = masking(rate).draw(0, 0, rows=5, length=42)
    assert puzzle.positions.shape == puzzle.answers.shape == (5, count)
    assert all(len(set(row.tolist())) == count for row in puzzle.positions)
    assert puzzle.positions.min() >= 1
    assert puzzle.positions.max() <= 40


def test_eight_in_ten_become_the_mask_one_another_word_one_stays() -> None:
    puzzle = masking().draw(0, 0, rows=500, length=42)
    shown = puzzle.input_ids.gather(1, puzzle.positions)
    masked = (shown == MASK).float().mean().item()
    kept = (shown == puzzle.answers).float().mean().item()
    assert masked == pytest.approx(0.8, abs=0.02)
    assert kept == pytest.approx(0.1, abs=0.02)
    assert shown[shown != MASK].min() >= 10, "a special token never stands in for a word"


def test_a_step_is_the_same_every_time_and_no_two_are_alike() -> None:
    first, again, next_step, other_seed = (
        masking().draw(seed, number, 4, 42) for seed, number in ((0, 5), (0, 5), (0, 6), (1, 5))
    )
    assert torch.equal(first.input_ids, again.input_ids)
    assert torch.equal(first.positions, again.positions)
    assert not torch.equal(first.input_ids, next_step.input_ids)
    assert not torch.equal(first.input_ids, other_seed.input_ids)
