"""What a figure is: numbers from runs first, a picture of the numbers second."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from openprompt_meta.report.finished_run import FinishedRun
from openprompt_meta.report.numbers_cache import NumbersCache

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class FigureNumbers(ABC):
    """What a figure shows: a dataclass of plain values, lists, dictionaries and such dataclasses."""

    @abstractmethod
    def draw(self) -> Figure:
        """The picture."""

    @abstractmethod
    def caption(self) -> str:
        """What it says in words."""

    def table(self) -> list[list[str]]:
        """The numbers as rows of words, headings first, where a reader wants them as such."""
        return []


Numbers = TypeVar("Numbers", bound=FigureNumbers)


@dataclass(frozen=True)
class FigureKind(Generic[Numbers]):
    """One of the figures.

    Attributes:
        name: on the command line and of its files.
        title: in a report.
        question: what a reader learns from it, a sentence.
        numbers: the dataclass of what it shows.
        measure: computes it from runs; each such figure of ``several`` runs takes any number, the others one.
        several: whether it compares runs.
        fits: whether a report on these runs should have it.
        slow: whether it takes so long that a report has it only by name or with all figures.
    """

    name: str
    title: str
    question: str
    numbers: type[Numbers]
    measure: Callable[[Sequence[FinishedRun], NumbersCache], Numbers]
    several: bool = False
    fits: Callable[[Sequence[FinishedRun]], bool] = lambda runs: True
    slow: bool = False

    def from_runs(self, runs: Sequence[FinishedRun], cache: NumbersCache, stem: str | None = None) -> Numbers:
        """The numbers, from the cache's file of that stem if they are there."""
        return cache.get_or_compute(stem or self.name, self.numbers, runs, lambda: self.measure(runs, cache))
