"""The page: one HTML file that needs nothing else, on a screen and on paper."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape

from openprompt_meta.report.finished_run import FinishedRun
from openprompt_meta.report.opening import Opening, departures
from openprompt_meta.version import __version__

__all__ = ["Panel", "Section", "render_page"]


@dataclass(frozen=True)
class Panel:
    """One picture with what it says; ``label`` is the run's, if it is of one."""

    label: str
    svg: bytes
    caption: str
    command: str
    table: list[list[str]] = field(default_factory=list)


@dataclass(frozen=True)
class Section:
    """One kind of figure, for all runs or for each; ``trouble`` is why a part of it is missing."""

    name: str
    title: str
    question: str
    panels: list[Panel]
    trouble: str = ""


def render_page(
    runs: Sequence[FinishedRun], openings: Sequence[Opening], sections: Sequence[Section], command: str
) -> str:
    """The whole page. Nothing in it is fetched from anywhere, which its own policy enforces."""
    title = f"{runs[0].setting}: {', '.join(run.label for run in runs)}"
    body = "\n".join(
        [
            f"<header><h1>{escape(title)}</h1></header>",
            "<main>",
            _opening(openings),
            _contents(sections),
            _configuration(runs),
            *(_section(section, many=len(runs) > 1) for section in sections),
            _reproduce(runs, command),
            "</main>",
            f"<footer>openprompt_meta {escape(__version__)}</footer>",
        ]
    )
    return _FRAME.replace("{title}", escape(title)).replace("{style}", _STYLE).replace("{body}", body)


def _opening(openings: Sequence[Opening]) -> str:
    cards = []
    for one in openings:
        name = f"<h3>{escape(one.label)}</h3>" if len(openings) > 1 else ""
        cards.append(
            f'<div class="card">{name}<p class="figure-of-merit">{escape(one.how_good)}</p>'
            "<p>accuracy on classes that it was never trained on</p><dl>"
            f"<dt>Against what</dt><dd>{escape(one.against_what)}.</dd>"
            f"<dt>On what</dt><dd>{escape(one.on_what)}.</dd>"
            f"<dt>How sure</dt><dd>{escape(one.how_sure)}.</dd></dl></div>"
        )
    return f'<section id="how-good"><h2>How good is it?</h2><div class="cards">{"".join(cards)}</div></section>'


def _contents(sections: Sequence[Section]) -> str:
    links = "".join(f'<li><a href="#{escape(one.name)}">{escape(one.title)}</a></li>' for one in sections)
    return (
        '<nav aria-label="Contents"><ul><li><a href="#configuration">Configuration</a></li>'
        f'{links}<li><a href="#reproduce">Reproduce it</a></li></ul></nav>'
    )


def _configuration(runs: Sequence[FinishedRun]) -> str:
    rows = departures([run.config for run in runs])
    names = [run.label for run in runs] if len(runs) > 1 else ["this run"]
    if rows:
        content = _table(
            [["key", "paper", *names], *([key, paper, *values] for key, paper, values in rows)], code_first=True
        )
    else:
        content = "<p>Nothing.</p>"
    return (
        '<section id="configuration"><h2>What is set otherwise than in the paper</h2><p>The second column has the '
        "paper’s value, or this package’s default where the paper does not give one. Everything else is as "
        f"there.</p>{content}</section>"
    )


def _section(section: Section, many: bool) -> str:
    figures = "".join(_figure(section, panel, many) for panel in section.panels)
    trouble = f'<p class="trouble">Not made: {escape(section.trouble)}</p>' if section.trouble else ""
    return (
        f'<section id="{escape(section.name)}"><h2>{escape(section.title)}</h2>'
        f'<p class="question">{escape(section.question)}</p><div class="figures">{figures}</div>{trouble}</section>'
    )


def _figure(section: Section, panel: Panel, many: bool) -> str:
    source = base64.b64encode(panel.svg).decode("ascii")
    name = f"<h3>{escape(panel.label)}</h3>" if many and panel.label else ""
    table = ""
    if panel.table:
        table = f"<details open><summary>The numbers as a table</summary>{_table(panel.table)}</details>"
    return (
        f'<figure>{name}<img alt="{escape(section.title)}: {escape(panel.caption)}" '
        f'src="data:image/svg+xml;base64,{source}"><figcaption>{escape(panel.caption)} '
        f"<code>{escape(panel.command)}</code></figcaption>{table}</figure>"
    )


def _reproduce(runs: Sequence[FinishedRun], command: str) -> str:
    parts = []
    for run in runs:
        made = run.results.get("command")
        lines = [
            *([f"{made}  # made it"] if made else []),
            f"openprompt-meta train {run.folder.config_file} run.folder=AGAIN  # the same run again",
            f"openprompt-meta test {run.folder.path}  # its test again",
        ]
        versions = _table([["", "version"], *([name, str(value)] for name, value in run.versions.items())])
        parts.append(
            f"<h3>{escape(run.label)}</h3><pre>{escape(chr(10).join(lines))}</pre>"
            f"<details><summary>Versions that it was run with</summary>{versions}</details>"
        )
    return (
        f'<section id="reproduce"><h2>Reproduce it</h2>{"".join(parts)}<h3>This page</h3><pre>{escape(command)}</pre>'
        "<p>Every figure stands as PNG and SVG in the folder <code>figures</code> beside this page, with its numbers "
        "as JSON.</p></section>"
    )


def _table(rows: Sequence[Sequence[str]], code_first: bool = False) -> str:
    head = "".join(f'<th scope="col">{escape(cell)}</th>' for cell in rows[0])
    body = ""
    for first, *others in rows[1:]:
        shown = f"<code>{escape(first)}</code>" if code_first else escape(first)
        cells = "".join(f"<td>{escape(cell)}</td>" for cell in others)
        body += f'<tr><th scope="row">{shown}</th>{cells}</tr>'
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


_FRAME = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; img-src data:; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<link rel="icon" href="data:,">
<style>{style}</style>
</head>
<body>
{body}
</body>
</html>
"""

_STYLE = """
:root { color: #1a1a1a; background: #fff; font: 16px/1.5 system-ui, sans-serif; }
body { max-width: 72rem; margin: 0 auto; padding: 1rem 1.5rem 3rem; }
h1 { font-size: 1.5rem; overflow-wrap: anywhere; }
h2 { font-size: 1.2rem; margin: 2.5rem 0 .3rem; border-top: 1px solid #ccc; padding-top: 1rem; }
h3 { font-size: 1rem; margin: .5rem 0; overflow-wrap: anywhere; }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(20rem, 100%), 1fr)); gap: 1rem; }
.card { border: 1px solid #bbb; border-radius: .4rem; padding: .8rem 1.2rem; }
.card p { margin: 0; }
.figure-of-merit { font-size: 2.6rem; font-weight: 650; line-height: 1.2; font-variant-numeric: tabular-nums; }
dt { font-weight: 650; margin-top: .6rem; }
dd { margin: 0; }
nav ul { display: flex; flex-wrap: wrap; gap: .2rem 1.2rem; padding: 0; list-style: none; margin: 1rem 0 0; }
a { color: #00507d; }
.question { color: #555; margin: 0 0 .5rem; }
.figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(30rem, 100%), 1fr)); gap: 1.5rem; }
figure { margin: 0; min-width: 0; break-inside: avoid; }
figure img { max-width: 100%; height: auto; display: block; }
figcaption { font-size: .87rem; max-width: 60rem; margin-top: .4rem; }
figcaption code { display: block; color: #555; margin-top: .2rem; }
code, pre { font-size: .82rem; overflow-wrap: anywhere; white-space: pre-wrap; }
pre { background: #f4f4f4; padding: .6rem .8rem; border-radius: .3rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: .87rem; margin: .5rem 0; }
th, td { text-align: left; padding: .2rem .9rem .2rem 0; border-bottom: 1px solid #ddd; vertical-align: top; }
th[scope=row] { font-weight: 400; }
.trouble { border-left: 4px solid #d55e00; padding-left: .8rem; }
footer { margin-top: 3rem; color: #555; font-size: .85rem; }
@media print {
  body { max-width: none; padding: 0; font-size: 10pt; }
  nav { display: none; }
  section, figure, .card, tr { break-inside: avoid; }
  h2, h3 { break-after: avoid; }
}
"""
