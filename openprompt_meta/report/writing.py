"""Making figures and the page: compute, draw, write."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from openprompt_meta.components import figures
from openprompt_meta.errors import (
    CompatibilityError,
    OpenPromptMetaError,
    RunError,
    did_you_mean,
)
from openprompt_meta.files import write_atomic
from openprompt_meta.report.figure import FigureKind, rendered, styled
from openprompt_meta.report.figures.baselines import BASELINES
from openprompt_meta.report.finished_run import FinishedRun, open_runs
from openprompt_meta.report.opening import opening_of
from openprompt_meta.report.page import Panel, Section, render_page
from openprompt_meta.report.workbench import Effort, Workbench

__all__ = ["PAGE", "default_folder", "plot", "write_report"]

PAGE = "report.html"
FIGURES_FOLDER = "figures"


@dataclass(frozen=True)
class Made:
    """A figure that was made: its numbers, and its files by suffix."""

    numbers: Any
    files: dict[str, Path]
    svg: bytes
    command: str


def default_folder(paths: Sequence[str | Path]) -> Path:
    """``RUN/report`` of one run; of several, a folder beside the first that names them all."""
    first = Path(paths[0])
    if len(paths) == 1:
        return first / "report"
    names = "-".join(Path(path).resolve().name for path in paths)
    return first.resolve().parent / f"report-{names}"[:120]


def plot(
    name: str,
    paths: Sequence[str | Path],
    out: str | Path | None = None,
    effort: Effort | None = None,
    show_progress: bool = True,
) -> list[Path]:
    """Make one figure as PNG and SVG, with its numbers as JSON beside them.

    Args:
        name: one of :func:`~openprompt_meta.components.figures`.
        paths: run folders; a figure of one run is made for each.
        out: folder; by default where the report of these runs has its figures.
        effort: how much to compute again.
        show_progress: draw progress bars on stderr.

    Returns:
        The pictures' files.
    """
    kind, runs = _kind(name), open_runs(paths)
    folder = Path(out) if out is not None else default_folder(paths) / FIGURES_FOLDER
    bench = Workbench(folder, effort, show_progress)
    return [file for _, own, stem in _groups(kind, runs) for file in _make(kind, own, bench, stem).files.values()]


def write_report(
    paths: Sequence[str | Path],
    out: str | Path | None = None,
    effort: Effort | None = None,
    show_progress: bool = True,
    only: Sequence[str] | None = None,
) -> Path:
    """Write a page on one or several runs, and its figures.

    A figure that these runs cannot have is named on the page with the reason; the others are made.

    Args:
        paths: run folders.
        out: folder of the page; by default :func:`default_folder`.
        effort: how much to compute again.
        show_progress: draw progress bars on stderr.
        only: names of the figures that the page should have; by default all that fit the runs.

    Returns:
        The page's file.
    """
    with styled():  # matplotlib is asked for before minutes of computing
        runs = open_runs(paths)
    folder = Path(out) if out is not None else default_folder(paths)
    bench = Workbench(folder / FIGURES_FOLDER, effort, show_progress)
    sections = []
    baselines: dict[str, Any] = {}
    kinds = (
        [kind for kind in figures().values() if kind.fits(runs)] if only is None else [_kind(name) for name in only]
    )
    with bench.bar(len(kinds), "report", "figure") as bar:
        for kind in kinds:
            panels, troubles = [], []
            for label, own, stem in _groups(kind, runs):
                try:
                    made = _make(kind, own, bench, stem)
                except CompatibilityError:
                    raise
                except OpenPromptMetaError as error:
                    troubles.append(str(error))
                    continue
                panels.append(_panel(kind, label, made))
                if kind is BASELINES:
                    baselines[label] = made.numbers
            sections.append(Section(kind.name, kind.title, kind.question, panels, " ".join(troubles)))
            bar.update()
    openings = [opening_of(run, baselines.get(run.label)) for run in runs]
    command = _command("report", paths, bench.effort, only)
    file = folder / PAGE
    folder.mkdir(parents=True, exist_ok=True)
    write_atomic(file, render_page(runs, openings, sections, command))
    return file


def _groups(kind: FigureKind[Any], runs: Sequence[FinishedRun]) -> Iterator[tuple[str, Sequence[FinishedRun], str]]:
    """All runs together, or each: the run's label if it is one, the runs, and the name of the figure's files."""
    if kind.several:
        yield "", runs, kind.name
        return
    for run in runs:
        yield run.label, [run], kind.name if len(runs) == 1 else f"{kind.name}-{run.file_label}"


def _make(kind: FigureKind[Any], runs: Sequence[FinishedRun], bench: Workbench, stem: str) -> Made:
    command = _command(f"plot {kind.name}", [run.folder.path for run in runs], bench.effort)
    with styled():
        numbers = kind.from_runs(runs, bench, stem)
        pictures = rendered(kind.draw(numbers), command)
    files = {suffix: bench.folder / f"{stem}.{suffix}" for suffix in pictures}
    for suffix, content in pictures.items():
        write_atomic(files[suffix], content)
    return Made(numbers, files, pictures["svg"], command)


def _panel(kind: FigureKind[Any], label: str, made: Made) -> Panel:
    table = kind.table(made.numbers) if kind.table is not None else []
    return Panel(label, made.svg, kind.caption(made.numbers), made.command, table)


def _kind(name: str) -> FigureKind[Any]:
    known: Mapping[str, FigureKind[Any]] = figures()
    if name not in known:
        raise RunError(f"There is no figure {name!r}.{did_you_mean(name, known)} There are: {', '.join(known)}.")
    return known[name]


def _command(verb: str, paths: Sequence[str | Path], effort: Effort, only: Sequence[str] | None = None) -> str:
    usual = Effort()
    options = [] if only is None else ["--only", ",".join(only)]
    if effort.tasks != usual.tasks:
        options += ["--tasks", str(effort.tasks)]
    if effort.shots != usual.shots:
        options += ["--shots", ",".join(map(str, effort.shots))]
    if effort.task != usual.task:
        options += ["--task", str(effort.task)]
    return shlex.join(["openprompt-meta", *verb.split(), *(str(path) for path in paths), *options])
