"""Two or more ways to do the same thing, timed in turn."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Times:
    """Best time of each way, in seconds."""

    best: Mapping[str, float]

    def ratio(self, slow: str, fast: str) -> float:
        """How many times as fast ``fast`` is."""
        return self.best[slow] / self.best[fast]


_clock: list[Callable[[], float]] = [time.perf_counter]


def use_clock(clock: Callable[[], float]) -> None:
    """Time by another clock from here on.

    On a busy machine ``time.process_time`` is the better one: it leaves out the time that others had the processor.
    """
    _clock[0] = clock


def alternate(ways: Mapping[str, Callable[[], object]], rounds: int) -> Times:
    """Time each way once a round.

    In turn, so that whatever else the machine does meets all of them; the best, because noise only ever adds. What a
    way does the first time only is noise too, so there should be two rounds or more.
    """
    best: dict[str, float] = {}
    for _ in range(rounds):
        for name, way in ways.items():
            started = _clock[0]()
            way()
            taken = _clock[0]() - started
            best[name] = min(taken, best.get(name, taken))
    return Times(best)


def best_of(way: Callable[[], object], rounds: int) -> float:
    """Best time of one way, in seconds."""
    return alternate({"it": way}, rounds).best["it"]
