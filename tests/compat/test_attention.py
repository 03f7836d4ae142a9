"""Scores of attention in place of a mask: every transformers takes them, and stock masks stay what they were."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from openprompt_meta.compat import attention

pytestmark = pytest.mark.prompts


def test_what_makes_scores_of_a_mask_leaves_scores_as_they_are_and_is_taught_once() -> None:
    module = SimpleNamespace(of_mask=lambda mask, dtype, tgt_len=None: mask.to(dtype) * tgt_len)
    attention._let_scores_through(module, "of_mask")
    taught = module.of_mask
    scores = torch.randn(2, 1, 3, 3)
    assert module.of_mask(scores, torch.float64, tgt_len=2) is scores
    assert module.of_mask(mask=scores, dtype=torch.float64) is scores
    assert module.of_mask(torch.ones(1, 2), torch.float64, tgt_len=2).tolist() == [[2.0, 2.0]]
    attention._let_scores_through(module, "of_mask")
    assert module.of_mask is taught
    attention._let_scores_through(module, "what_other_versions_have")
    assert not hasattr(module, "what_other_versions_have")
