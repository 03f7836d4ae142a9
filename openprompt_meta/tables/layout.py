"""A table as lines of text, before it is Markdown, LaTeX or a terminal's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from openprompt_meta.tables.results import Column, Entry, Line, TableResult

__all__ = ["Grid", "Style", "comparison_grids", "main_grid"]

EMPTY = "–"


@dataclass(frozen=True)
class Style:
    """How a format sets text apart; everything passes through ``plain`` first."""

    plain: Callable[[str], str]
    best: Callable[[str], str]
    within: Callable[[str], str]


@dataclass(frozen=True)
class Grid:
    """A title, a header and lines of as many texts, in blocks."""

    title: str
    header: Sequence[str]
    blocks: Sequence[Sequence[Sequence[str]]]


def main_grid(result: TableResult, style: Style) -> Grid:
    """Methods by data sets, with the paper's figure beside ours; never two kinds of figures in one column."""
    header = ["method", "#param (M)"]
    for at, column in enumerate(result.columns):
        header.append(column.title)
        if _paper_follows(result, at):
            header.append("paper")
    blocks: dict[str, list[list[str]]] = {}
    for line in result.lines:
        blocks.setdefault(line.row.block, []).append(_cells(line, result, style))
    return Grid(style.plain(result.table.title), [style.plain(text) for text in header], list(blocks.values()))


def comparison_grids(result: TableResult, style: Style) -> list[Grid]:
    """For each column, every row against the reference, task by task."""
    grids = []
    for column, reference in result.references.items():
        lines = [
            [style.plain(text) for text in _comparison(line, column)]
            for line in result.lines
            if line.entries[column].comparison is not None
        ]
        if lines:
            label = next(line.row.label for line in result.lines if line.row.name == reference)
            title = f"{column.title}: difference to {label} on the same tasks"
            header = ["method", "difference", "95 % interval", "p", "p, Holm", "significant"]
            grids.append(Grid(style.plain(title), [style.plain(text) for text in header], [lines]))
    return grids


def _cells(line: Line, result: TableResult, style: Style) -> list[str]:
    label = f"{line.row.label} (published)" if line.row.published else line.row.label
    cells = [style.plain(label), style.plain(_parameters(line))]
    for at, column in enumerate(result.columns):
        cells.append(_figure(line.entries[column], style))
        if _paper_follows(result, at):
            paper = line.paper.get((column.dataset, column.shot))
            cells.append(style.plain(EMPTY if paper is None else str(paper)))
    return cells


def _figure(entry: Entry, style: Style) -> str:
    if entry.summary is None:
        return style.plain(entry.missing or EMPTY)
    summary = entry.summary
    text = f"{100 * summary.mean:.2f}"
    if summary.interval is not None:
        text += f" ± {100 * summary.interval:.2f}"
    if summary.deviation is not None:
        text += f" ({100 * summary.deviation:.2f})"
    if entry.mark == "best":
        return style.best(style.plain(text))
    return style.within(style.plain(text)) if entry.mark == "within" else style.plain(text)


def _parameters(line: Line) -> str:
    if line.row.published and line.paper_millions is not None:
        return f"{line.paper_millions:.2f}"
    return EMPTY if line.parameters is None else f"{line.parameters / 1e6:.2f}"


def _comparison(line: Line, column: Column) -> list[str]:
    comparison = line.entries[column].comparison
    if comparison is None:
        raise ValueError(f"{line.row.name} was not compared in {column.title}")
    difference = comparison.difference
    interval = EMPTY
    if difference.interval is not None:
        low, high = difference.mean - difference.interval, difference.mean + difference.interval
        interval = f"{100 * low:+.2f} to {100 * high:+.2f}"
    return [
        line.row.label,
        f"{100 * difference.mean:+.2f}",
        interval,
        f"{difference.p:.4f}",
        f"{comparison.holm_p:.4f}",
        "yes" if comparison.is_significant else "no",
    ]


def _paper_follows(result: TableResult, at: int) -> bool:
    """Whether the paper's column stands right of this one: after the last kind, if the paper has anything there."""
    places = [(column.dataset, column.shot) for column in result.columns]
    return places[at] not in places[at + 1 :] and any(places[at] in line.paper for line in result.lines)
