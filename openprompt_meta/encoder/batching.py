"""Batches of very different lengths, divided so that little of the work is spent on padding."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

# What a further forward pass costs besides its tokens, in tokens: small, but forty tiny passes are slower than one.
_PASS_COST = 256


def length_groups(lengths: Sequence[int], pass_cost: int = _PASS_COST) -> list[list[int]]:
    """Rows divided into groups such that padded tokens plus ``pass_cost`` a group are fewest.

    Returns:
        Lists of row numbers, each row once, shorter texts first.
    """
    rows: dict[int, list[int]] = {}
    for row, length in enumerate(lengths):
        rows.setdefault(length, []).append(row)
    steps = sorted(rows)  # rows of one length are never worth a pass more
    # best[j]: cheapest way to group the rows of the j shortest lengths, and where its last group starts.
    best = [(0, 0)]
    for end in range(1, len(steps) + 1):
        count, ways = 0, []
        for start in range(end - 1, -1, -1):
            count += len(rows[steps[start]])
            ways.append((best[start][0] + count * steps[end - 1] + pass_cost, start))
        best.append(min(ways))
    groups: list[list[int]] = []
    end = len(steps)
    while end > 0:
        start = best[end][1]
        groups.append([row for length in steps[start:end] for row in rows[length]])
        end = start
    return groups[::-1]


def groups_by_length(lengths: Sequence[int], most_tokens: int) -> Iterator[list[int]]:
    """Rows in groups, shortest first, of at most ``most_tokens`` padded tokens or one row each."""
    group: list[int] = []
    for row in sorted(range(len(lengths)), key=lengths.__getitem__):
        if group and (len(group) + 1) * lengths[row] > most_tokens:
            yield group
            group = []
        group.append(row)
    if group:
        yield group


def divide_batch(batch: Mapping[str, Any]) -> tuple[list[dict[str, Any]], Tensor]:
    """A wrapped batch divided by length.

    Args:
        batch: padded on the right, with ``attention_mask`` ``[B, L]``.

    Returns:
        The parts, each padded to its own longest text, and ``[B]``: where each row of the batch is in their
        concatenation.
    """
    mask: Tensor = batch["attention_mask"]
    groups = length_groups(mask.sum(dim=1).tolist())
    order = torch.tensor([row for group in groups for row in group], device=mask.device)
    where = torch.empty_like(order)
    where[order] = torch.arange(len(order), device=mask.device)
    parts = []
    for group in groups:
        rows = torch.tensor(group, device=mask.device)
        longest = int(mask[rows].sum(dim=1).max())
        parts.append({key: _rows(batch[key], rows, mask.shape, longest) for key in batch})
    return parts, where


def _rows(value: Any, rows: Tensor, shape: torch.Size, longest: int) -> Any:
    if not isinstance(value, Tensor):
        return value
    return value[rows, :longest] if value.shape == shape else value[rows]
