"""Making figures and the page: compute, draw, write."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

from openprompt_meta.components import figures
from openprompt_meta.errors import CompatibilityError, OpenPromptMetaError, RunError, did_you_mean
from openprompt_meta.files import write_atomic
from openprompt_meta.report.figure import FigureKind, FigureNumbers
from openprompt_meta.report.figures.comparison import BASELINES
from openprompt_meta.report.finished_run import FinishedRun, open_runs
from openprompt_meta.report.numbers_cache import NumbersCache, ReportOptions
from openprompt_meta.report.page import FigureSection, Picture, render_page, summarise_run
from openprompt_meta.report.plotting import rendered, styled

PAGE = "report.html"
FIGURES_FOLDER = "figures"
Numbers = TypeVar("Numbers", bound=FigureNumbers)


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
    options: ReportOptions | None = None,
    show_progress: bool = True,
) -> list[Path]:
    """Make one figure as PNG and SVG, with its numbers as JSON beside them.

    Args:
        name: one of :func:`~openprompt_meta.components.figures`.
        paths: run folders; a figure of one run is made for each.
        out: folder; by default where the report of these runs has its figures.
        options: how much to compute again.
        show_progress: draw progress bars on stderr.

    Returns:
        The pictures' files.
    """
    kind, runs = _kind(name), open_runs(paths)
    folder = Path(out) if out is not None else default_folder(paths) / FIGURES_FOLDER
    cache = NumbersCache(folder, options, show_progress)
    files = []
    for label, own, stem in _groups(kind, runs):
        _make(kind, label, own, cache, stem)
        files += [folder / f"{stem}.{suffix}" for suffix in ("png", "svg")]
    return files


def write_report(
    paths: Sequence[str | Path],
    out: str | Path | None = None,
    options: ReportOptions | None = None,
    show_progress: bool = True,
    only: Sequence[str] | None = None,
    slow: bool = False,
) -> Path:
    """Write a page on one or several runs, and its figures.

    A figure that these runs cannot have is named on the page with the reason; the others are made.

    The page goes to ``out``, by default :func:`default_folder`, with the figures that ``only`` names; by default all
    that fit the runs, those that take long only if ``slow`` asks for them. Other arguments as for :func:`plot`.

    Returns:
        The page's file.
    """
    with styled():  # matplotlib is asked for before minutes of computing
        runs = open_runs(paths)
    folder = Path(out) if out is not None else default_folder(paths)
    cache = NumbersCache(folder / FIGURES_FOLDER, options, show_progress)
    fitting = [kind for kind in figures().values() if kind.fits(runs)]
    quick = [kind for kind in fitting if slow or not kind.slow]
    kinds = quick if only is None else [_kind(name) for name in only]
    left_out = [] if only is not None else [kind.name for kind in fitting if kind not in quick]
    sections = []
    baselines: dict[str, Any] = {}
    with cache.progress_bar(len(kinds), "report", "figure") as bar:
        for kind in kinds:
            bar.set_description_str(f"report, {kind.name}")
            pictures, troubles = [], []
            for label, own, stem in _groups(kind, runs):
                try:
                    numbers, picture = _make(kind, label, own, cache, stem)
                except CompatibilityError:
                    raise
                except OpenPromptMetaError as error:
                    troubles.append(str(error))
                    continue
                pictures.append(picture)
                if kind is BASELINES:
                    baselines[label] = numbers
            sections.append(FigureSection(kind.name, kind.title, kind.question, pictures, " ".join(troubles)))
            bar.update()
    summaries = [summarise_run(run, baselines.get(run.label)) for run in runs]
    command = _command("report", paths, cache.options, only, slow)
    more = [_command(f"plot {name}", paths, cache.options) for name in left_out]
    file = folder / PAGE
    folder.mkdir(parents=True, exist_ok=True)
    write_atomic(file, render_page(runs, summaries, sections, command, more))
    return file


def _groups(kind: FigureKind[Any], runs: Sequence[FinishedRun]) -> Iterator[tuple[str, Sequence[FinishedRun], str]]:
    """All runs together, or each: the run's label if it is one, the runs, and the name of the figure's files."""
    if kind.several:
        yield "", runs, kind.name
        return
    for run in runs:
        yield run.label, [run], kind.name if len(runs) == 1 else f"{kind.name}-{run.file_label}"


def _make(
    kind: FigureKind[Numbers], label: str, runs: Sequence[FinishedRun], cache: NumbersCache, stem: str
) -> tuple[Numbers, Picture]:
    """Compute or read the numbers, draw them and write the pictures."""
    command = _command(f"plot {kind.name}", [run.folder.path for run in runs], cache.options)
    with styled():
        numbers = kind.from_runs(runs, cache, stem)
        files = rendered(numbers.draw(), command)
    for suffix, content in files.items():
        write_atomic(cache.folder / f"{stem}.{suffix}", content)
    return numbers, Picture(label, files["svg"], numbers.caption(), numbers.table())


def _kind(name: str) -> FigureKind[Any]:
    known: Mapping[str, FigureKind[Any]] = figures()
    if name not in known:
        raise RunError(f"There is no figure {name!r}.{did_you_mean(name, known)} There are: {', '.join(known)}.")
    return known[name]


def _command(
    verb: str,
    paths: Sequence[str | Path],
    options: ReportOptions,
    only: Sequence[str] | None = None,
    slow: bool = False,
) -> str:
    words = [] if only is None else ["--only", ",".join(only)]
    words += ["--all"] if slow and only is None else []
    for option in fields(options):
        value = getattr(options, option.name)
        if value != option.default:
            words += [f"--{option.name}", ",".join(map(str, value)) if option.name == "shots" else str(value)]
    return shlex.join(["openprompt-meta", *verb.split(), *(str(path) for path in paths), *words])
