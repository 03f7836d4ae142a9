"""A table for people and for programs: terminal, Markdown, LaTeX, CSV and JSON, and its files."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from openprompt_meta.errors import RunError
from openprompt_meta.files import write_atomic
from openprompt_meta.tables.results import (
    Column,
    Entry,
    Line,
    TableResult,
)

__all__ = [
    "FIELDS",
    "Grid",
    "Style",
    "as_mapping",
    "cells_folder",
    "comparison_grids",
    "main_grid",
    "records",
    "to_csv",
    "to_json",
    "to_latex",
    "to_markdown",
    "to_terminal",
    "write_files",
]

# -- A table as lines of text, before it is Markdown, LaTeX or a terminal's -------------------------------------------

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


# -- A table for people: on a terminal, in Markdown, in LaTeX ---------------------------------------------------------

_TERMINAL = Style(plain=str, best=lambda text: f"{text} *", within=lambda text: f"{text} ~")
_MARKDOWN = Style(
    plain=lambda text: re.sub(r"([|\\*_<`])", r"\\\1", text),
    best=lambda text: f"**{text}**",
    within=lambda text: f"_{text}_",
)
_LATEX_SIGNS = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "λ": r"$\lambda$",
    "–": "--",
    "[": "{[}",
    "]": "{]}",
}
_LATEX = Style(
    plain=lambda text: "".join(_LATEX_SIGNS.get(sign, sign) for sign in text),
    best=lambda text: rf"\textbf{{{text}}}",
    within=lambda text: rf"\underline{{{text}}}",
)


def to_terminal(result: TableResult) -> str:
    """With ``*`` after the best of a column and ``~`` after those within its interval."""
    legend = ["* best of its column; ~ within the best one's interval."]
    return _document(result, _TERMINAL, _aligned, [*legend, *result.notes], heading=str, item="- {}".format)


def to_markdown(result: TableResult) -> str:
    """With the best of a column in bold and those within its interval in italics."""
    legend = ["Bold: best of its column; italics: within the best one's interval."]
    notes = [_MARKDOWN.plain(note) for note in (*legend, *result.notes)]
    return _document(result, _MARKDOWN, _markdown_table, notes, heading="## {}".format, item="- {}".format)


def to_latex(result: TableResult) -> str:
    """For ``booktabs``, with the best of a column in bold and those within its interval underlined."""
    legend = ["Bold: best of its column; underlined: within the best one's interval."]
    notes = [_LATEX.plain(note) for note in (*legend, *result.notes)]
    text = _document(result, _LATEX, _latex_table, notes, heading=r"\paragraph{{{}}}".format, item=r"\item {}".format)
    return "% Needs \\usepackage{booktabs}\n" + text


def _document(
    result: TableResult,
    style: Style,
    draw: Callable[[Grid], list[str]],
    notes: Sequence[str],
    heading: Callable[[str], str],
    item: Callable[[str], str],
) -> str:
    main = main_grid(result, style)
    parts = [[heading(main.title)], draw(main), _items(notes, item, style)]
    for grid in comparison_grids(result, style):
        parts += [[heading(grid.title)], draw(grid)]
    if result.failures:
        failures = [style.plain(failure) for failure in result.failures]
        parts += [[heading(style.plain("Without a figure"))], _items(failures, item, style)]
    return "\n\n".join("\n".join(part) for part in parts) + "\n"


def _items(texts: Sequence[str], item: Callable[[str], str], style: Style) -> list[str]:
    lines = [item(text) for text in texts]
    return [r"\begin{itemize}", *lines, r"\end{itemize}"] if style is _LATEX else lines


def _aligned(grid: Grid) -> list[str]:
    rows = [list(grid.header), *(list(line) for block in grid.blocks for line in block)]
    widths = [max(len(row[at]) for row in rows) for at in range(len(grid.header))]

    def drawn(row: Sequence[str]) -> str:
        first, *rest = (text.ljust(width) for text, width in zip(row, widths, strict=True))
        return "  ".join([first, *rest]).rstrip()

    rule = "-" * (sum(widths) + 2 * (len(widths) - 1))
    lines = [drawn(grid.header)]
    for block in grid.blocks:
        lines += [rule, *(drawn(row) for row in block)]
    return lines


def _markdown_table(grid: Grid) -> list[str]:
    rows = [grid.header, ["---"] * len(grid.header), *(line for block in grid.blocks for line in block)]
    return [f"| {' | '.join(row)} |" for row in rows]


def _latex_table(grid: Grid) -> list[str]:
    lines = [rf"\begin{{tabular}}{{l{'c' * (len(grid.header) - 1)}}}", r"\toprule", _latex_row(grid.header)]
    for block in grid.blocks:
        lines += [r"\midrule", *(_latex_row(row) for row in block)]
    return [*lines, r"\bottomrule", r"\end{tabular}"]


def _latex_row(row: Sequence[str]) -> str:
    return " & ".join(row) + r" \\"


# -- A table for programs: one record for each row and column, as CSV or JSON -----------------------------------------

FIELDS = (
    "table",
    "row",
    "label",
    "published",
    "dataset",
    "shot",
    "kind",
    "model",
    "parameters",
    "mean",
    "interval",
    "deviation",
    "seeds",
    "tasks",
    "mark",
    "paper_mean",
    "paper_spread",
    "paper_millions",
    "against",
    "difference",
    "difference_interval",
    "p",
    "holm_p",
    "significant",
    "missing",
)
"""Accuracies run here are proportions, the paper's are per cent as printed."""


def records(result: TableResult) -> list[dict[str, Any]]:
    """Every row in every column, empty fields as ``None``."""
    return [_record(line, column, result) for line in result.lines for column in result.columns]


def to_csv(result: TableResult) -> str:
    """A line for each record, with a header."""
    text = io.StringIO()
    writer = csv.DictWriter(text, FIELDS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(records(result))
    return text.getvalue()


def to_json(result: TableResult) -> str:
    """Records, setting, notes and failures."""
    return json.dumps(as_mapping(result), indent=2, ensure_ascii=False) + "\n"


def as_mapping(result: TableResult) -> dict[str, Any]:
    """What :func:`to_json` writes."""
    return {
        "table": result.table.name,
        "setting": asdict(result.setting),
        "records": records(result),
        "notes": list(result.notes),
        "failures": list(result.failures),
    }


def _record(line: Line, column: Column, result: TableResult) -> dict[str, Any]:
    entry = line.entries[column]
    summary, comparison = entry.summary, entry.comparison
    paper = line.paper.get((column.dataset, column.shot))
    record: dict[str, Any] = dict.fromkeys(FIELDS)
    record |= {
        "table": result.table.name,
        "row": line.row.name,
        "label": line.row.label,
        "published": line.row.published,
        "dataset": column.dataset,
        "shot": column.shot,
        "kind": column.kind,
        "model": None if line.row.published else result.setting.plm,
        "parameters": line.parameters,
        "mark": entry.mark or None,
        "paper_millions": line.paper_millions,
        "missing": entry.missing or None,
    }
    if summary is not None:
        record |= {name: getattr(summary, name) for name in ("mean", "interval", "deviation", "seeds", "tasks")}
    if paper is not None:
        record |= {"paper_mean": paper.mean, "paper_spread": paper.spread}
    if comparison is not None:
        record |= {
            "against": comparison.against,
            "difference": comparison.difference.mean,
            "difference_interval": comparison.difference.interval,
            "p": comparison.difference.p,
            "holm_p": comparison.holm_p,
            "significant": comparison.is_significant,
        }
    return record


# -- A table's files: the same content as Markdown, LaTeX, CSV and JSON, each whole or not at all ---------------------

_FORMATS = {".md": to_markdown, ".tex": to_latex, ".csv": to_csv, ".json": to_json}


def cells_folder(folder: Path) -> Path:
    """Where the cells of all tables of a folder are: tables share what they have in common."""
    return folder / "cells"


def write_files(result: TableResult, folder: Path) -> list[Path]:
    """Write the table in every format.

    The files' name says table, data sets and model, and tells apart what was made with other rows, tasks or keys.

    Raises:
        RunError: the folder cannot be written to.
    """
    parts = [result.table.name, *result.setting.datasets, Path(result.setting.plm).name, _digest(result)]
    stem = "-".join(re.sub(r"[^A-Za-z0-9.-]+", "_", part) for part in parts)
    files = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for suffix, draw in _FORMATS.items():
            files.append(folder / f"{stem}{suffix}")
            write_atomic(files[-1], draw(result))
    except OSError as error:
        raise RunError(f"The table cannot be written to {folder}: {error}. Choose another --folder.") from None
    return files


def _digest(result: TableResult) -> str:
    """A few letters that stand for everything else the table was made with."""
    setting = result.setting
    rows = [line.row.name for line in result.lines]
    rest = [rows, setting.shots, setting.tasks, setting.seeds, sorted(setting.overrides)]
    return hashlib.sha256(json.dumps(rest).encode()).hexdigest()[:6]
