"""What a figure is, and how figures look: numbers from runs first, a picture of the numbers second."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from openprompt_meta.errors import CompatibilityError
from openprompt_meta.report.finished_run import FinishedRun
from openprompt_meta.report.workbench import Workbench

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = [
    "COLOURS",
    "HATCHES",
    "LINES",
    "MARKERS",
    "PERCENT",
    "SHADES",
    "FigureKind",
    "canvas",
    "heat_map",
    "rendered",
    "styled",
]

# -- style ------------------------------------------------------------------------------------------------------------
# How figures look: one style, colours that colour-blind people tell apart, shapes and shades that survive in grey.

# Okabe and Ito's palette in an order of alternating lightness, so that neighbours differ in grey too.
COLOURS = ("#0072B2", "#E69F00", "#000000", "#56B4E9", "#D55E00", "#009E73", "#CC79A7", "#F0E442")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
LINES = ("-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1)), (0, (1, 1)), (0, (7, 3)))
HATCHES = ("", "//", "..", "xx", "\\\\", "oo", "++", "--")
SHADES = "cividis"
"""Of heat maps: its lightness grows all the way."""
PERCENT = "accuracy, %"

_STYLE: dict[Any, Any] = {
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "legend.fontsize": 8,
    "svg.hashsalt": "openprompt_meta",  # the same figure is the same file
    "svg.fonttype": "path",  # no font has to be there to read it
    "hatch.linewidth": 0.6,
    "font.family": ["DejaVu Sans"],  # matplotlib's own
}


@contextmanager
def styled() -> Iterator[None]:
    """The style of this package's figures inside, matplotlib's own afterwards.

    Raises:
        CompatibilityError: matplotlib is not installed.
    """
    try:
        import matplotlib
    except ImportError:
        raise CompatibilityError(
            "Figures and reports are drawn by matplotlib, which is not installed here. Install it with: "
            'pip install "openprompt_meta[report]" (or pip install matplotlib).'
        ) from None
    with matplotlib.rc_context(_STYLE):
        yield


def canvas(width: float, height: float, rows: int = 1, columns: int = 1, **options: Any) -> tuple[Figure, Any]:
    """A figure of that size in inches with its panels, apart from pyplot's list of windows."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.subplots(rows, columns, **options)


def rendered(figure: Figure, command: str = "") -> dict[str, bytes]:
    """The figure as PNG and SVG by suffix, with the command that makes it at its foot."""
    if command:
        width = max(40, int(figure.get_figwidth() * 17))
        # A path stays whole, so that the command can be copied.
        lines = textwrap.wrap(command, width, break_on_hyphens=False, break_long_words=False)
        figure.supxlabel("\n".join(lines), fontsize=5.5, color="#666666", family="DejaVu Sans")
    files = {}
    for suffix, options in (("png", {"dpi": 150}), ("svg", {"metadata": {"Date": None}})):
        buffer = BytesIO()
        figure.savefig(buffer, format=suffix, **options)
        files[suffix] = buffer.getvalue()
    return files


def heat_map(
    axes: Any,
    values: Sequence[Sequence[float]],
    rows: Sequence[str],
    columns: Sequence[str],
    unit: str,
    digits: int | None = 2,
    **limits: float,
) -> None:
    """A matrix as shades, with its scale, its names and, unless ``digits`` is ``None``, its numbers."""
    image = axes.imshow(values, cmap=SHADES, aspect="auto", **limits)
    axes.grid(False)
    axes.set_xticks(range(len(columns)), columns)
    axes.set_yticks(range(len(rows)), rows)
    axes.spines[:].set_visible(False)
    axes.figure.colorbar(image, ax=axes, label=unit, pad=0.02)
    if digits is None:
        return
    for y, row in enumerate(values):
        for x, value in enumerate(row):
            light = image.norm(value) > 0.6
            axes.text(
                x, y, f"{value:.{digits}f}", ha="center", va="center", size=6.5, color="black" if light else "white"
            )


# -- What a figure is: numbers from runs first, a picture of the numbers second ---------------------------------------

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
    measure: Callable[[Sequence[FinishedRun], Workbench], Numbers]
    draw: Callable[[Numbers], Figure]
    caption: Callable[[Numbers], str]
    several: bool = False
    fits: Callable[[Sequence[FinishedRun]], bool] = lambda runs: True
    table: Callable[[Numbers], list[list[str]]] | None = None

    def from_runs(self, runs: Sequence[FinishedRun], bench: Workbench, stem: str | None = None) -> Any:
        """The numbers, from the workbench's folder if they are there."""
        return bench.numbers(stem or self.name, self.numbers, runs, lambda: self.measure(runs, bench))
