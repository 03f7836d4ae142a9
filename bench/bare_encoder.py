"""What prediction is measured against: the encoder by itself, as transformers runs it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import torch

from openprompt_meta.encoder.batching import groups_by_length
from openprompt_meta.encoder.loading import LoadedMLM

Division = Callable[[Sequence[int]], Iterable[Sequence[int]]]
"""From the lengths of texts to batches of them by number."""

_TEXTS_AT_ONCE = 32
_TOKENS_AT_ONCE = 4096


class BareEncoder:
    """Reads texts as they are, without a template or prompts, in batches that are padded to their longest."""

    def __init__(self, loaded: LoadedMLM, budget: int) -> None:
        self._loaded = loaded
        self._budget = budget

    @torch.no_grad()
    def read(self, texts: Sequence[str], divide: Division) -> int:
        """Read all texts; how many tokens that was, padding and all."""
        tokenizer = self._loaded.tokenizer
        rows = tokenizer(list(texts), truncation=True, max_length=self._budget)["input_ids"]
        read = 0
        for batch in divide([len(row) for row in rows]):
            padded = tokenizer.pad({"input_ids": [rows[i] for i in batch]}, return_tensors="pt")
            self._loaded.model.base_model(**padded)
            read += padded["input_ids"].numel()
        return read


def as_they_come(lengths: Sequence[int]) -> list[Sequence[int]]:
    """32 texts at once, in their order: what most people do."""
    return [range(len(lengths))[start : start + _TEXTS_AT_ONCE] for start in range(0, len(lengths), _TEXTS_AT_ONCE)]


def by_length(lengths: Sequence[int], most_tokens: int = _TOKENS_AT_ONCE) -> Iterable[Sequence[int]]:
    """Texts of about one length together, as many tokens at once as our own engine takes: the best one can do."""
    return groups_by_length(lengths, most_tokens)
