"""`openprompt-meta report | plot`: parse, call, print."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from openprompt_meta.errors import RunError

if TYPE_CHECKING:
    from openprompt_meta.report.numbers_cache import ReportOptions

    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]


def add_parsers(subparsers: Subparsers) -> None:
    """Add the two subcommands."""
    report = subparsers.add_parser(
        "report",
        help="write a page with figures on one or several runs",
        description="Write one HTML page that needs nothing else, and its figures as PNG and SVG.",
    )
    which = report.add_mutually_exclusive_group()
    which.add_argument("--only", metavar="NAME,NAME", help="some of the figures (default: all that fit and are quick)")
    which.add_argument("--all", action="store_true", help="also the figures that take long")
    report.set_defaults(run=_report)
    plot = subparsers.add_parser(
        "plot",
        help="make one of the report's figures",
        description="Make one figure as PNG and SVG, with its numbers as JSON. A wrong name lists them all.",
    )
    plot.add_argument("name", metavar="NAME", help="e.g. attention; docs/report.md lists them")
    plot.set_defaults(run=_plot)
    for parser in (report, plot):
        parser.add_argument("folders", nargs="+", metavar="RUN", help="run folders that were trained and tested")
        parser.add_argument("--out", metavar="DIR", help="where it goes (default: RUN/report)")
        parser.add_argument("--tasks", type=int, metavar="N", help="tasks to compute again, at most (default: 50)")
        parser.add_argument("--shots", metavar="1,5,20", help="for accuracy against shots (default: 1,2,3,5,10,20)")
        parser.add_argument("--task", type=int, metavar="I", help="test task of the label map (default: 0)")
        parser.add_argument("--quiet", action="store_true", help="no progress bars")


def _report(options: argparse.Namespace) -> int:
    from openprompt_meta.report.writing import write_report

    only = None if options.only is None else options.only.split(",")
    file = write_report(options.folders, options.out, _report_options(options), not options.quiet, only, options.all)
    print(f"The report is {file}, its figures are in {file.parent / 'figures'}")
    return 0


def _plot(options: argparse.Namespace) -> int:
    from openprompt_meta.report.writing import plot

    for file in plot(options.name, options.folders, options.out, _report_options(options), not options.quiet):
        print(file)
    return 0


def _report_options(options: argparse.Namespace) -> ReportOptions:
    from openprompt_meta.report.numbers_cache import ReportOptions

    given: dict[str, Any] = {
        name: getattr(options, name) for name in ("tasks", "task") if getattr(options, name) is not None
    }
    if options.shots is not None:
        try:
            given["shots"] = tuple(int(shot) for shot in options.shots.split(","))
        except ValueError:
            raise RunError(f"--shots {options.shots}: expected whole numbers with commas, e.g. 1,5,20.") from None
    return ReportOptions(**given)
