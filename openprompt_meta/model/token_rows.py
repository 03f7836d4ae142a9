"""Wrapped and tokenised texts of any number, in a few flat tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["TokenRows"]


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
        chosen = torch.as_tensor(list(indices))
        ends, lengths = self.ends[chosen], self.lengths[chosen]
        places = torch.arange(int(lengths.max())).unsqueeze(0)  # [1, L]
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
