"""Texts of different lengths laid end to end, so that no work is spent on padding."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from openprompt_meta.model.length_groups import length_groups

__all__ = ["Group", "Packing", "in_passes", "pack"]

# What attending to one more group costs, in tokens that are padded instead. On a CPU next to nothing, so that rows of
# one length make a group; on an accelerator a launch costs more than a few padded rows.
_GROUP_COST = {"cpu": 3}
_GROUP_COST_ELSEWHERE = 512


@dataclass(frozen=True)
class Group:
    """Rows that are attended to together: neighbours in the packing, each ``length`` slots long."""

    rows: int
    length: int
    keys: Tensor | None
    """``[rows, 1, 1, length]``, true at tokens and false at padding; ``None`` if there is no padding."""

    @property
    def slots(self) -> int:
        """How many slots of the packing the group takes."""
        return self.rows * self.length

    def part(self, start: int, end: int) -> Group:
        """The rows from ``start`` to before ``end``."""
        rows = len(range(self.rows)[start:end])
        if rows == self.rows:
            return self
        keys = None if self.keys is None else self.keys[start:end]
        return Group(rows, self.length, None if keys is None or bool(keys.all()) else keys)


@dataclass(frozen=True)
class Packing:
    """Where the tokens of several wrapped batches stand when laid end to end, shorter rows first.

    Attributes:
        groups: the rows in the order of the packing.
        order: ``[R]``, which row (counted over all batches) stands where.
        place: ``[R]``, where each row stands: the inverse of ``order``.
        tokens: ``[N]``, which of the batches' tokens (counted row by row, without padding) is in each slot.
        columns: ``[N]``, the position of each slot in its row.
        valid: ``[N]``, false in the few slots that are padding.
    """

    groups: tuple[Group, ...]
    order: Tensor
    place: Tensor
    tokens: Tensor
    columns: Tensor
    valid: Tensor
    _batches: Sequence[Mapping[str, Any]]

    def flat(self, key: str) -> Tensor:
        """What the batches hold under ``key`` (``[B, L]`` each), as the packing has it: ``[N]``."""
        parts = [batch[key][batch["attention_mask"].bool()] for batch in self._batches]
        return torch.cat(parts)[self.tokens]

    def slots_where(self, key: str) -> Tensor:
        """The slots in which ``key`` is above zero, row by row in the order of the packing."""
        return ((self.flat(key) > 0) & self.valid).nonzero().flatten()


def pack(batches: Sequence[Mapping[str, Any]], group_cost: int | None = None) -> Packing:
    """Lay the rows of wrapped batches end to end.

    Args:
        batches: each padded on the right, with ``attention_mask`` ``[B, L]``.
        group_cost: padded tokens that one group less is worth; by default what suits the device.
    """
    device: torch.device = batches[0]["attention_mask"].device
    if group_cost is None:
        group_cost = _GROUP_COST.get(device.type, _GROUP_COST_ELSEWHERE)
    lengths = torch.cat([batch["attention_mask"].sum(dim=1) for batch in batches])  # [R]
    listed = lengths.tolist()
    members = length_groups(listed, group_cost)
    order = torch.tensor([row for group in members for row in group], device=device)
    place = torch.empty_like(order)
    place[order] = torch.arange(len(order), device=device)

    padded = [(len(group), max(listed[row] for row in group)) for group in members]
    room = torch.tensor([longest for rows, longest in padded for _ in range(rows)], device=device)  # slots a row
    starts = lengths.cumsum(dim=0) - lengths  # where a row's tokens start in the batches
    own = torch.repeat_interleave(torch.arange(len(order), device=device), room)  # the place of each slot's row
    columns = torch.arange(len(own), device=device) - (room.cumsum(dim=0) - room)[own]
    real = lengths[order][own]
    valid = columns < real
    tokens = starts[order][own] + torch.minimum(columns, real - 1)

    groups, at = [], 0
    for rows, longest in padded:
        keys = valid[at : at + rows * longest].view(rows, 1, 1, longest)
        groups.append(Group(rows, longest, None if bool(keys.all()) else keys))
        at += rows * longest
    return Packing(tuple(groups), order, place, tokens, columns, valid, batches)


def in_passes(groups: Sequence[Group], most_slots: int) -> Iterator[list[Group]]:
    """The rows of the groups in their order, divided into passes of at most ``most_slots`` slots or one row each."""
    taken: list[Group] = []
    room = most_slots
    for group in groups:
        start = 0
        while start < group.rows:
            rows = room // group.length
            if rows < 1 and taken:
                yield taken
                taken, room = [], most_slots
                continue
            part = group.part(start, start + max(1, rows))
            taken.append(part)
            room -= part.slots
            start += part.rows
    if taken:
        yield taken
