"""Texts laid end to end: every token is there once, and can be found again."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from openprompt_meta.encoder.packed import Group, in_passes, pack

pytestmark = pytest.mark.meta


def batch_of(lengths: list[int], first: int) -> dict[str, torch.Tensor]:
    """Rows of consecutive numbers from ``first``, so that every token is known by its number."""
    longest = max(lengths)
    mask = torch.tensor([[1] * n + [0] * (longest - n) for n in lengths])
    ids = torch.zeros_like(mask)
    for row, length in enumerate(lengths):
        ids[row, :length] = torch.arange(first, first + length)
        first += length
    return {"attention_mask": mask, "input_ids": ids, "loss_ids": torch.zeros_like(mask).index_fill(1, _zero, 1)}


_zero = torch.tensor([0])
batches = st.lists(st.lists(st.integers(1, 12), min_size=1, max_size=6), min_size=1, max_size=3)


@given(batches, st.integers(0, 40))
@settings(deadline=None, derandomize=True, max_examples=80)
def test_every_row_stands_in_one_piece_where_the_packing_says(lengths: list[list[int]], cost: int) -> None:
    numbered, first = [], 1
    for of_batch in lengths:
        numbered.append(batch_of(of_batch, first))
        first += sum(of_batch)
    packing = pack(numbered, cost)
    flat, at, rows = packing.flat("input_ids"), 0, []
    for group in packing.groups:
        for row in range(group.rows):
            real = group.length if group.keys is None else int(group.keys[row].sum())
            rows.append(flat[at : at + real].tolist())
            assert packing.columns[at : at + group.length].tolist() == list(range(group.length))
            assert packing.valid[at : at + group.length].tolist() == [i < real for i in range(group.length)]
            at += group.length
    assert at == len(flat)
    expected = [
        row[mask.bool()].tolist()
        for one in numbered
        for row, mask in zip(one["input_ids"], one["attention_mask"], strict=True)
    ]
    assert [rows[place] for place in packing.place.tolist()] == expected
    assert [expected[row] for row in packing.order.tolist()] == rows
    firsts = flat[packing.slots_where("loss_ids")].tolist()
    assert firsts == [row[0] for row in rows]


def test_rows_of_one_length_are_not_padded_and_on_a_cpu_none_are() -> None:
    packing = pack([batch_of([3, 5, 3, 12, 5], 1)])
    assert [(group.rows, group.length) for group in packing.groups] == [(2, 3), (2, 5), (1, 12)]
    assert bool(packing.valid.all())
    together = pack([batch_of([3, 5, 3, 12, 5], 1)], group_cost=1000)
    assert [(group.rows, group.length) for group in together.groups] == [(5, 12)]
    assert int(together.valid.sum()) == 28


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(1, 12)), min_size=1, max_size=5), st.integers(1, 40))
@settings(deadline=None, derandomize=True, max_examples=200)
def test_passes_hold_every_row_once_in_order_and_are_full_but_never_fuller(
    shapes: list[tuple[int, int]], most: int
) -> None:
    numbers = [torch.arange(rows * length).view(rows, 1, 1, length) for rows, length in shapes]
    keys = [torch.nn.functional.pad(number, (0, 1)) for number in numbers]  # a zero each: no part is without padding
    groups = [Group(rows, length, key) for (rows, length), key in zip(shapes, keys, strict=True)]
    passes = list(in_passes(groups, most))
    found = [(part.length, row.flatten().tolist()) for one in passes for part in one for row in _keys(part)]
    assert found == [(group.length, row.flatten().tolist()) for group in groups for row in _keys(group)]
    sizes = [sum(group.slots for group in one) for one in passes]
    for one, size in zip(passes, sizes, strict=True):
        assert size <= most or sum(group.rows for group in one) == 1
    for size, following in zip(sizes, passes[1:], strict=False):
        assert size + following[0].length > most, "the next row would have gone in"


def test_a_part_of_a_group_masks_no_more_than_it_must() -> None:
    keys = torch.tensor([[1, 1, 0], [1, 1, 1], [1, 1, 1]]).bool().view(3, 1, 1, 3)
    padded, full = next(in_passes([Group(3, 3, keys)], 3)), list(in_passes([Group(3, 3, keys)], 6))[1]
    assert padded[0].keys is not None
    assert padded[0].keys.tolist() == [[[[True, True, False]]]]
    assert full == [Group(1, 3, None)]


def _keys(group: Group) -> torch.Tensor:
    assert group.keys is not None
    assert len(group.keys) == group.rows
    return group.keys
