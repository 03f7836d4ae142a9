"""A table for people and for programs: terminal, Markdown, LaTeX, CSV and JSON, and its files."""

from __future__ import annotations

import hashlib
import io
import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from openprompt_meta.errors import RunError
from openprompt_meta.files import write_atomic, write_cells
from openprompt_meta.tables.results import Column, Comparison, Entry, ResultRow, TableResult

# -- A table as lines of text, before it is Markdown, LaTeX or a terminal's -------------------------------------------

EMPTY = "–"


@dataclass(frozen=True)
class _TextTable:
    """A title, a header and lines of as many texts, in blocks."""

    title: str
    header: Sequence[str]
    blocks: Sequence[Sequence[Sequence[str]]]


@dataclass(frozen=True)
class _TextFormat:
    """How a format writes things; everything passes through ``plain`` first."""

    plain: Callable[[str], str]
    best: Callable[[str], str]
    within: Callable[[str], str]
    legend: str
    heading: Callable[[str], str]
    items: Callable[[Sequence[str]], list[str]]
    table: Callable[[_TextTable], list[str]]


def _main_table(result: TableResult, form: _TextFormat) -> _TextTable:
    """Methods by data sets, with the paper's accuracy beside ours; never two kinds of accuracies in one column."""
    header = ["method", "#param (M)"]
    for at, column in enumerate(result.columns):
        header += [column.title, "paper"] if _paper_follows(result, at) else [column.title]
    blocks: dict[str, list[list[str]]] = {}
    for line in result.rows:
        blocks.setdefault(line.row.block, []).append(_cells(line, result, form))
    return _TextTable(form.plain(result.table.title), list(map(form.plain, header)), list(blocks.values()))


def _comparison_tables(result: TableResult, form: _TextFormat) -> Iterator[_TextTable]:
    """For each column, every row against the reference, task by task."""
    header = ["method", "difference", "95 % interval", "p", "p, Holm", "significant"]
    for column, reference in result.references.items():
        compared = [(line.row.label, line.entries[column].comparison) for line in result.rows]
        lines = [
            list(map(form.plain, _comparison(label, comparison)))
            for label, comparison in compared
            if comparison is not None
        ]
        if lines:
            label = next(line.row.label for line in result.rows if line.row.name == reference)
            title = f"{column.title}: difference to {label} on the same tasks"
            yield _TextTable(form.plain(title), list(map(form.plain, header)), [lines])


def _cells(line: ResultRow, result: TableResult, form: _TextFormat) -> list[str]:
    cells = [form.plain(line.row.label), form.plain(_parameters(line))]
    for at, column in enumerate(result.columns):
        cells.append(_accuracy(line.entries[column], form))
        if _paper_follows(result, at):
            cells.append(form.plain(str(line.paper.get((column.dataset, column.shot), EMPTY))))
    return cells


def _accuracy(entry: Entry, form: _TextFormat) -> str:
    summary = entry.summary
    if summary is None:
        return form.plain(entry.missing or EMPTY)
    text = f"{100 * summary.mean:.2f}"
    if summary.interval is not None:
        text += f" ± {100 * summary.interval:.2f}"
    if summary.deviation is not None:
        text += f" ({100 * summary.deviation:.2f})"
    text = form.plain(text)
    if entry.mark == "best":
        return form.best(text)
    return form.within(text) if entry.mark == "within" else text


def _parameters(line: ResultRow) -> str:
    return EMPTY if line.parameters is None else f"{line.parameters / 1e6:.2f}"


def _comparison(label: str, comparison: Comparison) -> list[str]:
    difference = comparison.difference
    interval = EMPTY
    if difference.interval is not None:
        low, high = difference.mean - difference.interval, difference.mean + difference.interval
        interval = f"{100 * low:+.2f} to {100 * high:+.2f}"
    return [
        label,
        f"{100 * difference.mean:+.2f}",
        interval,
        f"{difference.p:.4f}",
        f"{comparison.holm_p:.4f}",
        "yes" if comparison.is_significant else "no",
    ]


def _paper_follows(result: TableResult, at: int) -> bool:
    """Whether the paper's column stands right of this one: after the last kind, if the paper has anything there."""
    places = [(column.dataset, column.shot) for column in result.columns]
    return places[at] not in places[at + 1 :] and any(places[at] in line.paper for line in result.rows)


# -- A table for people: on a terminal, in Markdown, in LaTeX ---------------------------------------------------------


def _bullets(texts: Sequence[str]) -> list[str]:
    return [f"- {text}" for text in texts]


def _aligned(table: _TextTable) -> list[str]:
    rows = [table.header, *(line for block in table.blocks for line in block)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]

    def drawn(row: Sequence[str]) -> str:
        return "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()

    rule = "-" * (sum(widths) + 2 * (len(widths) - 1))
    lines = [drawn(table.header)]
    for block in table.blocks:
        lines += [rule, *map(drawn, block)]
    return lines


def _markdown_table(table: _TextTable) -> list[str]:
    rows = [table.header, ["---"] * len(table.header), *(line for block in table.blocks for line in block)]
    return [f"| {' | '.join(row)} |" for row in rows]


def _latex_table(table: _TextTable) -> list[str]:
    def drawn(row: Sequence[str]) -> str:
        return " & ".join(row) + r" \\"

    lines = [rf"\begin{{tabular}}{{l{'c' * (len(table.header) - 1)}}}", r"\toprule", drawn(table.header)]
    for block in table.blocks:
        lines += [r"\midrule", *map(drawn, block)]
    return [*lines, r"\bottomrule", r"\end{tabular}"]


_TERMINAL = _TextFormat(
    plain=str,
    best=lambda text: f"{text} *",
    within=lambda text: f"{text} ~",
    legend="* best of its column; ~ within the best one's interval.",
    heading=str,
    items=_bullets,
    table=_aligned,
)
_MARKDOWN = _TextFormat(
    plain=lambda text: re.sub(r"([|\\*_<`])", r"\\\1", text),
    best=lambda text: f"**{text}**",
    within=lambda text: f"_{text}_",
    legend="Bold: best of its column; italics: within the best one's interval.",
    heading=lambda text: f"## {text}",
    items=_bullets,
    table=_markdown_table,
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
_LATEX = _TextFormat(
    plain=lambda text: "".join(_LATEX_SIGNS.get(sign, sign) for sign in text),
    best=lambda text: rf"\textbf{{{text}}}",
    within=lambda text: rf"\underline{{{text}}}",
    legend="Bold: best of its column; underlined: within the best one's interval.",
    heading=lambda text: rf"\paragraph{{{text}}}",
    items=lambda texts: [r"\begin{itemize}", *(rf"\item {text}" for text in texts), r"\end{itemize}"],
    table=_latex_table,
)


def to_terminal(result: TableResult) -> str:
    """With ``*`` after the best of a column and ``~`` after those within its interval."""
    return _document(result, _TERMINAL)


def to_markdown(result: TableResult) -> str:
    """With the best of a column in bold and those within its interval in italics."""
    return _document(result, _MARKDOWN)


def to_latex(result: TableResult) -> str:
    """For ``booktabs``, with the best of a column in bold and those within its interval underlined."""
    return "% Needs \\usepackage{booktabs}\n" + _document(result, _LATEX)


def _document(result: TableResult, form: _TextFormat) -> str:
    main, *comparisons = [_main_table(result, form), *_comparison_tables(result, form)]
    notes = form.items([form.plain(note) for note in (form.legend, *result.notes)])
    parts = [[form.heading(main.title)], form.table(main), notes]
    for table in comparisons:
        parts += [[form.heading(table.title)], form.table(table)]
    if result.failures:
        parts += [[form.heading("Without a figure")], form.items(list(map(form.plain, result.failures)))]
    return "\n\n".join("\n".join(part) for part in parts) + "\n"


# -- A table for programs: one record for each row and column, as CSV or JSON -----------------------------------------

FIELDS = (
    "table",
    "row",
    "label",
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
    return [_record(line, column, result) for line in result.rows for column in result.columns]


def to_csv(result: TableResult, raw: bool = False) -> str:
    """A line for each record, with a header; cells are no formulas unless ``raw`` asks for them as they are."""
    text = io.StringIO()
    write_cells(text, FIELDS)
    for record in records(result):
        write_cells(text, ("" if value is None else str(value) for value in record.values()), raw=raw)
    return text.getvalue()


def to_json(result: TableResult) -> str:
    """Records, settings, notes and failures."""
    content = {
        "table": result.table.name,
        "setting": asdict(result.settings),
        "records": records(result),
        "notes": list(result.notes),
        "failures": list(result.failures),
    }
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"


def _record(line: ResultRow, column: Column, result: TableResult) -> dict[str, Any]:
    entry = line.entries[column]
    summary, comparison = entry.summary, entry.comparison
    paper = line.paper.get((column.dataset, column.shot))
    record: dict[str, Any] = dict.fromkeys(FIELDS)
    record |= {
        "table": result.table.name,
        "row": line.row.name,
        "label": line.row.label,
        "dataset": column.dataset,
        "shot": column.shot,
        "kind": column.kind,
        "model": result.settings.plm,
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


def write_files(result: TableResult, folder: Path, raw_cells: bool = False) -> list[Path]:
    """Write the table in every format.

    The files' name says table, data sets and model, and tells apart what was made with other rows, tasks or keys.

    Args:
        result: the table.
        folder: where to; made if need be.
        raw_cells: whether CSV may hold formulas.

    Raises:
        RunError: the folder cannot be written to.
    """
    parts = [result.table.name, *result.settings.datasets, Path(result.settings.plm).name, _digest(result)]
    stem = "-".join(re.sub(r"[^A-Za-z0-9.-]+", "_", part) for part in parts)
    formats = {
        ".md": to_markdown(result),
        ".tex": to_latex(result),
        ".csv": to_csv(result, raw_cells),
        ".json": to_json(result),
    }
    files = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for suffix, text in formats.items():
            files.append(folder / f"{stem}{suffix}")
            write_atomic(files[-1], text)
    except OSError as error:
        raise RunError(f"The table cannot be written to {folder}: {error}. Choose another --folder.") from None
    return files


def _digest(result: TableResult) -> str:
    """A few letters that stand for everything else the table was made with."""
    settings = result.settings
    rows = [line.row.name for line in result.rows]
    rest = [rows, settings.shots, settings.tasks, settings.seeds, sorted(settings.overrides)]
    return hashlib.sha256(json.dumps(rest).encode()).hexdigest()[:6]
