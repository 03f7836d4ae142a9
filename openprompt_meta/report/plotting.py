"""How figures look: one style, colours that colour-blind people tell apart, and what several figures draw alike."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from io import BytesIO
from typing import TYPE_CHECKING, Any

from openprompt_meta.compat.versions import command_for_extra
from openprompt_meta.errors import CompatibilityError

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D


# Okabe and Ito's palette in an order of alternating lightness, so that neighbours differ in grey too.
COLOURS = ("#0072B2", "#E69F00", "#000000", "#56B4E9", "#D55E00", "#009E73", "#CC79A7", "#F0E442")
HATCHES = ("", "//", "..", "xx", "\\\\", "oo", "++", "--")
PERCENT = "accuracy, %"
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
_LINES = ("-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1)), (0, (1, 1)), (0, (7, 3)))

_STYLE: dict[Any, Any] = {
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.6,
    "image.cmap": "cividis",  # its lightness grows all the way
    "legend.frameon": False,
    "legend.fontsize": 8,
    "patch.edgecolor": "black",  # of bars
    "patch.force_edgecolor": True,
    "patch.linewidth": 0.6,
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
            f"{command_for_extra('report')}"
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


# -- what several figures draw alike ----------------------------------------------------------------------------------


def percents(shares: Iterable[float]) -> list[float]:
    """Shares in per cent."""
    return [100 * share for share in shares]


def line_style(number: int) -> Any:
    """Of the curve of that number, told apart in grey."""
    return _LINES[number % len(_LINES)]


def curve(
    panel: Any, number: int, x: Sequence[float], means: Sequence[float], halves: Sequence[float], **options: Any
) -> Line2D:
    """Accuracies with half their intervals, all as shares; colour, marker and line are those of the curve's number."""
    options = {"color": COLOURS[number % len(COLOURS)], "marker": _MARKERS[number % len(_MARKERS)], **options}
    bars = panel.errorbar(x, percents(means), percents(halves), linestyle=line_style(number), capsize=3, **options)
    line: Line2D = bars.lines[0]
    return line


def log_axis(panel: Any, values: Iterable[int], title: str, **base: int) -> None:
    """A logarithmic axis across with a tick at each of the values."""
    ticks = sorted(set(values))
    panel.set_xscale("log", **base)
    panel.set_xticks(ticks, [str(value) for value in ticks])
    panel.minorticks_off()
    panel.set_xlabel(f"{title} (log scale)")


def note(panel: Any, text: str, at: tuple[float, float], offset: tuple[float, float], **options: Any) -> None:
    """Text at an offset in points from a place of the panel."""
    panel.annotate(text, at, xytext=offset, textcoords="offset points", **options)


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
    image = axes.imshow(values, aspect="auto", **limits)
    axes.grid(False)
    axes.set_xticks(range(len(columns)), columns)
    axes.set_yticks(range(len(rows)), rows)
    axes.spines[:].set_visible(False)
    axes.figure.colorbar(image, ax=axes, label=unit, pad=0.02)
    if digits is None:
        return
    for y, row in enumerate(values):
        for x, value in enumerate(row):
            colour = "black" if image.norm(value) > 0.6 else "white"
            axes.text(x, y, f"{value:.{digits}f}", ha="center", va="center", size=6.5, color=colour)
