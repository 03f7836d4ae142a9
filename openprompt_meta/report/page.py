"""The page: one HTML file that needs nothing else, on a screen and on paper."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass, field

from openprompt_meta.html_templates import render_html
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

    @property
    def svg_base64(self) -> str:
        """The picture as an address on the page has it."""
        return base64.b64encode(self.svg).decode("ascii")


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
    names = [run.label for run in runs] if len(runs) > 1 else ["this run"]
    rows = [[key, paper, *values] for key, paper, values in departures([run.config for run in runs])]
    return render_html(
        "openprompt_meta.report",
        "page.html.jinja",
        title=f"{runs[0].setting}: {', '.join(run.label for run in runs)}",
        runs=runs,
        openings=openings,
        departures=[["key", "paper", *names], *rows] if rows else [],
        sections=sections,
        command=command,
        version=__version__,
    )
