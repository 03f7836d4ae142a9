"""N-way K-shot episodes with Q queries a class, each drawn from ``(seed, split, index)`` alone."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from openprompt_meta.data.dataset import Split
from openprompt_meta.errors import DataError

# -- draws ------------------------------------------------------------------------------------------------------------
# Random draws that depend on a key and nothing else.
#
# Library generators promise the same bits from release to release, but not the same samples or shuffles. An episode
# has to be the same on every machine and in ten years' time, so the few lines that turn bits into a draw stand here.

T = TypeVar("T")


def seeded_sample(items: Sequence[T], count: int, *key: str | int) -> list[T]:
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


@dataclass(frozen=True)
class Episode:
    """One task. Positions point into the texts of ``split``; task labels are ``0 .. N-1``, positions in ``classes``.

    Support and query are ordered by task label: ``support [N*K]``, ``query [N*Q]``.
    """

    index: int
    split: str
    classes: tuple[str, ...]
    support: tuple[int, ...]
    support_labels: tuple[int, ...]
    query: tuple[int, ...]
    query_labels: tuple[int, ...]


@dataclass(frozen=True)
class EpisodeSampler:
    """Random access to the endless row of episodes of a split: ``sampler[index]``.

    It keeps no generator state: an episode is the same on any process, in any order, whatever was drawn before.
    Episodes of equal seed and index but different ``shots`` have the same classes and queries, and the support of
    the fewer shots is part of that of the more, so that 1-shot and 5-shot results are paired.

    Raises :class:`DataError` at once if the split has fewer than ``ways`` classes or any class has fewer than
    ``shots + queries`` texts: leaving a class out silently would change the task that is being measured.
    """

    split: Split
    ways: int = 5
    shots: int = 5
    queries: int = 15
    seed: int = 0

    def __post_init__(self) -> None:
        for name, least in (("ways", 2), ("shots", 1), ("queries", 0)):
            value = getattr(self, name)
            if value < least:
                raise DataError(f"{name} is {value}; it has to be at least {least}.")
        sizes = self.split.sizes
        if len(sizes) < self.ways:
            raise DataError(
                f"Split {self.split.name!r} has {len(sizes)} classes ({_few(list(sizes))}), but {self.ways}-way "
                f"episodes need {self.ways}. Lower the ways or give the split more classes."
            )
        need = self.shots + self.queries
        small = {name: size for name, size in sizes.items() if size < need}
        if small:
            raise DataError(
                f"{len(small)} of {len(sizes)} classes of split {self.split.name!r} have too few texts: "
                f"{_few([f'{name} has {size}' for name, size in small.items()])}; {self.shots} shots and "
                f"{self.queries} queries need {need} a class. Lower the shots or the queries, or leave these classes "
                f"out (min_samples={need} when loading)."
            )

    def __getitem__(self, index: int) -> Episode:
        """The episode of that number, any whole number from 0. :class:`DataError` if it is negative."""
        if index < 0:
            raise DataError(f"Episode {index} was asked for; episodes are numbered from 0 and have no last one.")
        key = (self.seed, self.split.name, index)
        # Sorted, so that the draw does not depend on the order in which a file happens to list the classes.
        classes = tuple(seeded_sample(sorted(self.split.classes), self.ways, "classes", *key))
        support: list[int] = []
        query: list[int] = []
        for name in classes:
            drawn = seeded_sample(self.split.indices[name], self.queries + self.shots, "texts", *key, name)
            query += drawn[: self.queries]
            support += drawn[self.queries :]
        return Episode(
            index=index,
            split=self.split.name,
            classes=classes,
            support=tuple(support),
            support_labels=_task_labels(self.ways, self.shots),
            query=tuple(query),
            query_labels=_task_labels(self.ways, self.queries),
        )

    def take(self, count: int, start: int = 0) -> Iterator[Episode]:
        """Episodes ``start .. start + count - 1``, drawn as they are asked for."""
        return (self[index] for index in range(start, start + count))

    # Without this, Python would iterate by indexing and never stop.
    __iter__ = None


def _task_labels(ways: int, each: int) -> tuple[int, ...]:
    return tuple(label for label in range(ways) for _ in range(each))


def _few(items: list[str], most: int = 8) -> str:
    """The first items, and how many more there are."""
    shown = ", ".join(items[:most])
    return shown if len(items) <= most else f"{shown} and {len(items) - most} more"
