"""A table for people: on a terminal, in Markdown, in LaTeX."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from openprompt_meta.tables.layout import Grid, Style, comparison_grids, main_grid
from openprompt_meta.tables.results import TableResult

__all__ = ["to_latex", "to_markdown", "to_terminal"]

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
