"""Random draws that depend on a key and nothing else.

Library generators promise the same bits from release to release, but not the same samples or shuffles. An episode has
to be the same on every machine and in ten years' time, so the few lines that turn bits into a draw stand here.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import TypeVar

__all__ = ["draw"]

T = TypeVar("T")


def draw(items: Sequence[T], count: int, *key: str | int) -> list[T]:
    """``count`` different ``items`` in random order, every ordered choice equally likely, determined by ``key``.

    A shorter draw with the same items and key is the beginning of a longer one. ``ValueError`` if there are fewer
    than ``count`` items.
    """
    if not 0 <= count <= len(items):
        raise ValueError(f"cannot draw {count} of {len(items)} items")
    words = _words(key)
    # Fisher-Yates from the front; only the places that were swapped are kept, so a draw costs O(count).
    moved: dict[int, int] = {}
    drawn = []
    for place in range(count):
        other = place + _below(len(items) - place, words)
        drawn.append(items[moved.get(other, other)])
        moved[other] = moved.get(place, place)
    return drawn


def _words(key: tuple[str | int, ...]) -> Iterator[int]:
    """An endless stream of 64-bit words: hashes of the key and a counter."""
    # repr tells 1 from "1" and keeps ("ab", "c") apart from ("a", "bc"); it does not depend on PYTHONHASHSEED.
    stem = repr(key).encode("utf-8")
    counter = 0
    while True:
        block = hashlib.blake2b(stem + counter.to_bytes(8, "little")).digest()
        for start in range(0, len(block), 8):
            yield int.from_bytes(block[start : start + 8], "little")
        counter += 1


def _below(bound: int, words: Iterator[int]) -> int:
    """A uniform number in ``[0, bound)``. Words past the last whole multiple of ``bound`` are thrown away."""
    limit = (1 << 64) - (1 << 64) % bound
    return next(word for word in words if word < limit) % bound
