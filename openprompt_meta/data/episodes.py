"""N-way K-shot episodes, of one size or of many, each drawn from ``(seed, split, index)`` alone."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
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
_IN_ALL = 1 << 20  # what shares between 0 and 1 are counted in


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


def seeded_choice(items: Sequence[T], weights: Sequence[int], *key: str | int) -> T:
    """One of the ``items``, each as likely as its whole-numbered weight says, determined by ``key``."""
    place = _below(sum(weights), _words(key))
    for item, weight in zip(items, weights, strict=True):
        if place < weight:
            return item
        place -= weight
    raise AssertionError("the place lies below the sum of the weights")


def seeded_chance(share: float, *key: str | int) -> bool:
    """True for this share of all keys."""
    often = round(share * _IN_ALL)
    return often == _IN_ALL or seeded_choice((True, False), (often, _IN_ALL - often), *key)


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


class Episodes(ABC):
    """Random access to the endless row of episodes of a split: ``episodes[index]``.

    No generator state is kept: an episode is the same on any process, in any order, whatever was drawn before.
    """

    split: Split

    def __getitem__(self, index: int) -> Episode:
        """The episode of that number, any whole number from 0. :class:`DataError` if it is negative."""
        if index < 0:
            raise DataError(f"Episode {index} was asked for; episodes are numbered from 0 and have no last one.")
        return self._drawn(index)

    @abstractmethod
    def _drawn(self, index: int) -> Episode:
        """The episode of that number, which is none below 0."""

    def take(self, count: int, start: int = 0) -> Iterator[Episode]:
        """Episodes ``start .. start + count - 1``, drawn as they are asked for."""
        return (self[index] for index in range(start, start + count))

    # Without this, Python would iterate by indexing and never stop.
    __iter__ = None


@dataclass(frozen=True)
class EpisodeSampler(Episodes):
    """Episodes of one size.

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
        for classes in self.split.domains or (self.split.classes,):
            if len(classes) < self.ways:
                raise DataError(
                    f"Split {self.split.name!r} has {len(classes)} classes ({_few(list(classes))}), but "
                    f"{self.ways}-way episodes need {self.ways}. Lower the ways or give the split more classes."
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

    def _drawn(self, index: int) -> Episode:
        key = (self.seed, self.split.name, index)
        # Sorted, so that the draw does not depend on the order in which a file happens to list the classes.
        classes = tuple(seeded_sample(sorted(domain_of(self.split, key)), self.ways, "classes", *key))
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


def domain_of(split: Split, key: tuple[str | int, ...]) -> tuple[str, ...]:
    """The classes that an episode is drawn from: all, or in a mixture those of one data set."""
    return seeded_choice(split.domains, split.shares, "domain", *key) if split.domains else split.classes


@dataclass(frozen=True)
class VariedEpisodeSampler(Episodes):
    """Episodes of many sizes, for meta-training: few classes and many, no example and several.

    Ways and shots are drawn between two bounds, each number as likely as its size is small (a class more is much where
    there are two, and little where there are nineteen). Support and query have at most ``texts`` texts together, but
    at least one query a class; a class with fewer gives what it has.

    Raises :class:`DataError` at once if a class has no text to be asked for, or the bounds are none.
    """

    split: Split
    ways: tuple[int, int] = (2, 20)
    shots: tuple[int, int] = (0, 10)
    texts: int = 64
    seed: int = 0

    def __post_init__(self) -> None:
        for name, least in (("ways", 2), ("shots", 0)):
            low, high = getattr(self, name)
            if not least <= low <= high:
                raise DataError(f"{name} lie between {low} and {high}; expected two rising numbers from {least} on.")
        for classes in self.split.domains or (self.split.classes,):
            if len(classes) < self.ways[0]:
                raise DataError(
                    f"Split {self.split.name!r} has {len(classes)} classes ({_few(list(classes))}), but episodes need "
                    f"{self.ways[0]}. Lower the ways or give the split more classes."
                )
        small = [f"{name} has {size}" for name, size in self.split.sizes.items() if size < self.shots[0] + 1]
        if small:
            raise DataError(
                f"{len(small)} classes of split {self.split.name!r} have too few texts: {_few(small)}; "
                f"{self.shots[0]} shots and a query need {self.shots[0] + 1} a class."
            )

    def _drawn(self, index: int) -> Episode:
        key = (self.seed, self.split.name, index)
        domain = sorted(domain_of(self.split, key))
        ways = _size(self.ways[0], min(self.ways[1], len(domain)), "ways", *key)
        most = max(self.shots[0], min(self.shots[1], max(1, self.texts // (2 * ways))))
        shots = _size(self.shots[0], most, "shots", *key)
        queries = max(1, self.texts // ways - shots)
        chosen = seeded_sample(domain, ways, "classes", *key)
        support: dict[int, list[int]] = {}
        query: dict[int, list[int]] = {}
        for label, name in enumerate(chosen):
            own = self.split.indices[name]
            drawn = seeded_sample(own, min(len(own), shots + queries), "texts", *key, name)
            few = min(shots, len(drawn) - 1)
            support[label], query[label] = drawn[:few], drawn[few:]
        return Episode(
            index=index,
            split=self.split.name,
            classes=tuple(chosen),
            support=_all_of(support),
            support_labels=_labels_of(support),
            query=_all_of(query),
            query_labels=_labels_of(query),
        )


_WHOLE = 1 << 40  # what is divided by sizes


def _size(low: int, high: int, *key: str | int) -> int:
    """A number between two bounds, both included, each as likely as one over itself (one over itself plus one)."""
    sizes = range(low, high + 1)
    return seeded_choice(sizes, [_WHOLE // (size + 1) for size in sizes], *key)


def _all_of(by_label: Mapping[int, Sequence[int]]) -> tuple[int, ...]:
    return tuple(text for texts in by_label.values() for text in texts)


def _labels_of(by_label: Mapping[int, Sequence[int]]) -> tuple[int, ...]:
    return tuple(label for label, texts in by_label.items() for _ in texts)


def _task_labels(ways: int, each: int) -> tuple[int, ...]:
    return tuple(label for label in range(ways) for _ in range(each))


def _few(items: list[str], most: int = 8) -> str:
    """The first items, and how many more there are."""
    shown = ", ".join(items[:most])
    return shown if len(items) <= most else f"{shown} and {len(items) - most} more"
