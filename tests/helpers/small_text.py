"""What the tests of the fit work on."""

from __future__ import annotations

from typing import Any, NamedTuple

from tools.minilm_mlm.corpus import Corpus


class Small(NamedTuple):
    """A tiny encoder without a head, its tokenizer, and a tiny text."""

    encoder: Any
    tokenizer: Any
    corpus: Corpus
