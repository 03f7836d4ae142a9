"""What a figure is: numbers from runs first, a picture of the numbers second."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from openprompt_meta.report.finished_run import FinishedRun
from openprompt_meta.report.numbers_cache import NumbersCache

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["FigureKind"]

Numbers = TypeVar("Numbers")


@dataclass(frozen=True)
class FigureKind(Generic[Numbers]):
    """One of the figures.

    Attributes:
        name: on the command line and of its files.
        title: in a report.
        question: what a reader learns from it, a sentence.
        numbers: the dataclass of what it shows.
        measure: computes it from runs; each such figure of ``several`` runs takes any number, the others one.
        draw: the picture.
        caption: what it says in words, from its numbers.
        several: whether it compares runs.
        fits: whether a report on these runs should have it.
        table: the numbers as rows of words, headings first, where a reader wants them as such.
    """

    name: str
    title: str
    question: str
    numbers: type[Numbers]
    measure: Callable[[Sequence[FinishedRun], NumbersCache], Numbers]
    draw: Callable[[Numbers], Figure]
    caption: Callable[[Numbers], str]
    several: bool = False
    fits: Callable[[Sequence[FinishedRun]], bool] = lambda runs: True
    table: Callable[[Numbers], list[list[str]]] = lambda numbers: []

    def from_runs(self, runs: Sequence[FinishedRun], cache: NumbersCache, stem: str | None = None) -> Numbers:
        """The numbers, from the cache's file of that stem if they are there."""
        return cache.get_or_compute(stem or self.name, self.numbers, runs, lambda: self.measure(runs, cache))
