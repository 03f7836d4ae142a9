"""Mixing two predictions: P = (1 - λ) P̂ + λ P̃, computed in log space."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from openprompt_meta.errors import VerbalizerError

__all__ = ["check_mix_lambda", "mix_log_probabilities"]


def check_mix_lambda(mix_lambda: float) -> float:
    """λ as a float, or a VerbalizerError if it is not between 0 and 1."""
    if isinstance(mix_lambda, bool) or not isinstance(mix_lambda, (int, float)) or not 0.0 <= mix_lambda <= 1.0:
        raise VerbalizerError(
            f"mix_lambda must lie between 0 (hand-crafted only) and 1 (soft only), got {mix_lambda!r}."
        )
    return float(mix_lambda)


def mix_log_probabilities(hand_crafted: Tensor, soft: Tensor, mix_lambda: float) -> Tensor:
    """log((1 - λ) exp(hand_crafted) + λ exp(soft)), without ever leaving log space.

    Args:
        hand_crafted: log-probabilities ``[B, C]``.
        soft: log-probabilities ``[B, C]``.
        mix_lambda: λ; at 0 and 1 the one side is returned as it is.
    """
    if mix_lambda == 0.0:
        return hand_crafted
    if mix_lambda == 1.0:
        return soft
    return torch.logaddexp(hand_crafted + math.log1p(-mix_lambda), soft + math.log(mix_lambda))
