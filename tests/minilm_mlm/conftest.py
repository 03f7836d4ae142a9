"""A tiny encoder and a tiny text, with everything else as it is in earnest."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from openprompt_meta.encoder.loading import LoadedMLM
from tests.helpers.small_text import Small
from tools.minilm_mlm.corpus import Corpus


@pytest.fixture
def small(tiny: Callable[[str], LoadedMLM]) -> Small:
    """An encoder without a head, and text in which a word stands among its likes."""
    loaded = tiny("bert")
    special = set(loaded.tokenizer.all_special_ids)
    words = [i for i in range(len(loaded.tokenizer)) if i not in special][:12]
    row = torch.tensor(words, dtype=torch.int32).repeat_interleave(60)
    return Small(loaded.model.bert, loaded.tokenizer, Corpus(row.repeat(4), row))
