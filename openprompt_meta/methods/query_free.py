"""Texts for a pool of one prompt, which is the same whatever the query."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from openprompt_meta.methods.task_source import Texts

__all__ = ["QueryFreeTexts"]


@dataclass(frozen=True)
class QueryFreeTexts:
    """Gives every text the query 0, which spares the pass over the text that a real one takes.

    Attributes:
        texts: the texts, without queries of their own.
        key_dim: size of a query, d_o.
    """

    texts: Texts
    key_dim: int

    def batch(self, indices: Sequence[int], labels: Sequence[int] | None = None) -> dict[str, Tensor]:
        """The texts at ``indices`` as one wrapped batch."""
        batch = self.texts.batch(indices, labels)
        queries = torch.zeros(len(indices), self.key_dim, device=batch["input_ids"].device)
        return {**batch, "query": queries}
