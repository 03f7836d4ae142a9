"""λ: mixing two predictions in probability space."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from openprompt_meta.errors import VerbalizerError
from openprompt_meta.verbalizers.mixed import check_mix_lambda, mix_log_probabilities
from tests.helpers.prompts import close

pytestmark = pytest.mark.prompts


def log_probabilities(rows: int, classes: int, seed: int, spread: float = 3.0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return (spread * torch.randn(rows, classes, dtype=torch.float64, generator=generator)).log_softmax(dim=-1)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.integers(1, 4), st.integers(2, 6), st.floats(0.0, 1.0))
def test_the_mixture_is_the_weighted_mean_of_probabilities(rows, classes, mix_lambda):
    words, soft = log_probabilities(rows, classes, 1), log_probabilities(rows, classes, 2)
    expected = [
        [(1 - mix_lambda) * math.exp(p) + mix_lambda * math.exp(q) for p, q in zip(one, other, strict=True)]
        for one, other in zip(words.tolist(), soft.tolist(), strict=True)
    ]
    mixed = mix_log_probabilities(words, soft, mix_lambda)
    close(mixed.exp(), expected)
    close(mixed.exp().sum(dim=-1), [1.0] * rows)


def test_lambda_0_and_1_give_one_side_bit_by_bit():
    words, soft = log_probabilities(5, 3, 1).float(), log_probabilities(5, 3, 2).float()
    words[0, 0] = soft[1, 1] = -math.inf
    assert torch.equal(mix_log_probabilities(words, soft, 0.0), words)
    assert torch.equal(mix_log_probabilities(words, soft, 1.0), soft)


@pytest.mark.parametrize("extreme", [-1e2, -1e4, -1e30, -math.inf])
def test_a_probability_too_small_for_a_float_leaves_the_other_side_standing(extreme):
    words = torch.tensor([[extreme, 0.0], [extreme, 0.0]])
    soft = torch.tensor([[0.0, extreme], [extreme, 0.0]])
    mixed = mix_log_probabilities(words, soft, 0.25)
    close(mixed[0], [math.log(0.25), math.log(0.75)], 1e-6)
    close(mixed[1, 0], extreme, 1e-6)  # and not minus infinity, as it would be after exp
    close(mixed[1, 1], 0.0, 1e-6)


def test_gradients_of_the_mixture_equal_finite_differences():
    words, soft = (log_probabilities(3, 4, seed).requires_grad_() for seed in (1, 2))
    assert torch.autograd.gradcheck(lambda p, q: mix_log_probabilities(p, q, 0.3), (words, soft))
    assert torch.autograd.gradgradcheck(lambda p, q: mix_log_probabilities(p, q, 0.3), (words, soft))


def test_an_impossible_class_on_one_side_leaves_gradients_finite():
    words = log_probabilities(1, 3, 1).requires_grad_()
    soft = torch.tensor([[-math.inf, -0.1, -2.0]], dtype=torch.float64, requires_grad=True)
    mix_log_probabilities(words, soft, 0.5).sum().backward()
    assert words.grad.isfinite().all()
    assert soft.grad.isfinite().all()


@pytest.mark.parametrize("wrong", [-0.1, 1.1, math.nan, "0.5", True, None])
def test_a_lambda_outside_0_and_1_is_refused(wrong):
    with pytest.raises(VerbalizerError, match=r"between 0 \(hand-crafted only\) and 1 \(soft only\), got"):
        check_mix_lambda(wrong)


def test_lambda_may_be_a_whole_number():
    assert check_mix_lambda(1) == 1.0
    assert isinstance(check_mix_lambda(0), float)
