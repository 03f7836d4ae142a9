"""`openprompt-meta table`: parse, call, print."""

from __future__ import annotations

import argparse
import json
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from openprompt_meta.errors import ConfigError

if TYPE_CHECKING:
    from openprompt_meta.runs.process import StopRequest
    from openprompt_meta.tables.cells import Cell, TableSettings
    from openprompt_meta.tables.definitions import Table
    from openprompt_meta.tables.plan import PlannedCell

    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]


logger = logging.getLogger(__name__)

Word = TypeVar("Word", str, int)
EXIT_FAILED_CELLS = 1
NAMES = (
    "verbalizers",
    "main-5shot",
    "main-1shot",
    "recommended",
    "ablation-verbalizer",
    "bmg",
    "ablation-K",
    "ablation-Lp",
)


def add_parser(subparsers: Subparsers) -> None:
    """Add the subcommand."""
    parser = subparsers.add_parser(
        "table",
        help="run and print one of the paper's tables",
        description="Run what is missing of one of the paper's tables and print it, with the paper's own figures "
        "beside and every row compared with the best on the same tasks. Run again, it goes on where it was "
        "interrupted. Exits with 1 if a cell failed.",
    )
    parser.add_argument("table", choices=NAMES, metavar="TABLE", help=", ".join(NAMES))
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="for every cell, e.g. meta.iterations=100")
    parser.add_argument("--dataset", nargs="+", default=["demo"], metavar="NAME", help="data sets (default: demo)")
    parser.add_argument("--root", metavar="DIR", help="where the data sets lie, as DIR/NAME (default: data)")
    parser.add_argument("--plm", default="minilm", metavar="MODEL", help="language model (default: %(default)s)")
    parser.add_argument("--tasks", type=int, default=300, metavar="N", help="test tasks (default: %(default)s)")
    parser.add_argument("--seeds", nargs="+", default=["0"], metavar="SEED", help="a run for each (default: 0)")
    parser.add_argument("--shots", nargs="+", metavar="K", help="examples a class (default: as the table has them)")
    parser.add_argument("--rows", nargs="+", metavar="ROW", help="these rows only, by name or as printed")
    parser.add_argument("--against", metavar="ROW", help="compare with this row (default: the best of each column)")
    parser.add_argument(
        "--folder", default="runs/tables", metavar="DIR", help="where cells and tables go (default: %(default)s)"
    )
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument(
        "--dry-run", action="store_true", help="say which cells would be run and about how long it takes"
    )
    mode.add_argument("--finished", action="store_true", help="run nothing; print what is finished")
    parser.add_argument(
        "--time", action="store_true", help="with --dry-run: time an iteration of each cell in place of an estimate"
    )
    parser.add_argument(
        "--raw-cells", action="store_true", help="write cells of CSV that a spreadsheet would run as they are"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--quiet", action="store_true", help="no progress bars")
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    from openprompt_meta.runs.process import StopRequest, log_to_screen
    from openprompt_meta.tables.cells import Stopped, cells_folder, cells_of, check_overrides, look_up, run_missing
    from openprompt_meta.tables.definitions import row_name, rows_of, table_named

    if options.time and not options.dry_run:
        raise ConfigError("--time: is for --dry-run, which says about how long the cells will take.")
    table = table_named(options.table)
    settings, names = _settings(options, table)
    rows = rows_of(table, names)
    against = None if options.against is None else row_name(table, options.against)
    check_overrides(table, rows, settings)
    folder = Path(options.folder)
    cells = cells_of(rows, settings, cells_folder(folder))
    # The log of a trial would stand between the lines of a plan.
    level = logging.WARNING if options.quiet or options.dry_run else logging.INFO
    with log_to_screen(level), StopRequest() as stop:
        if options.dry_run:
            return _print_plan(cells, stop, folder, options)
        # Only now: a plan needs neither, and is there at once.
        from openprompt_meta.tables.rendering import to_json, to_terminal, write_files
        from openprompt_meta.tables.results import assemble

        known = look_up(cells)
        # What is wrong with the request is said before hours of work.
        assemble(table, rows, settings, known, against)
        try:
            states = known if options.finished else run_missing(cells, stop, show_progress=not options.quiet)
        except Stopped as stopped:
            logger.warning("Stopped in %s. The same command goes on from what is saved.", stopped)
            return stop.exit_code
        result = assemble(table, rows, settings, states, against)
        files = write_files(result, folder, options.raw_cells)
        if options.json:
            print(to_json(result), end="")
        else:
            print(to_terminal(result))
            print("Written to " + ", ".join(map(str, files)))
        return stop.exit_code or (EXIT_FAILED_CELLS if result.failures else 0)


def _print_plan(cells: Sequence[Cell], stop: StopRequest, folder: Path, options: argparse.Namespace) -> int:
    from openprompt_meta.tables.cells import Stopped, cells_folder
    from openprompt_meta.tables.plan import plan, total_seconds

    planned = []
    try:
        for one in plan(cells, stop, cells_folder(folder), options.time):
            planned.append(one)
            if not options.json:
                print(f"{one.action:<7} {one.cell}{_explained(one)}", flush=True)
    except Stopped:
        logger.warning("Stopped. A dry run leaves nothing behind.")
        return stop.exit_code
    if options.json:
        print(json.dumps([_planned_record(one) for one in planned], indent=2, ensure_ascii=False))
        return stop.exit_code
    counts = {action: sum(one.action == action for one in planned) for action in ("run", "go on", "reuse", "refuse")}
    unknown = sum(one.source is not None and one.seconds is None for one in planned)
    print(
        f"{counts['run']} cells to run, {counts['go on']} to go on with, {counts['reuse']} finished, "
        f"{counts['refuse']} refused; about {_duration(total_seconds(planned))} on this machine"
        + (f", not counting {unknown} without an estimate." if unknown else ".")
    )
    return stop.exit_code


def _explained(one: PlannedCell) -> str:
    if one.reason is not None:
        return f": {one.reason}"
    if one.source is None:
        return ""
    return f": {'?' if one.seconds is None else 'about ' + _duration(one.seconds)} ({one.source})"


def _planned_record(one: PlannedCell) -> dict[str, object]:
    return {
        "row": one.cell.row.name,
        "dataset": one.cell.dataset,
        "shot": one.cell.shot,
        "seed": one.cell.seed,
        "folder": None if one.cell.config is None else str(one.cell.folder),
        "action": one.action,
        "seconds": one.seconds,
        "source": one.source,
        "reason": one.reason,
    }


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _settings(options: argparse.Namespace, table: Table) -> tuple[TableSettings, tuple[str, ...] | None]:
    """What the options say. A ``key=value`` at the end of a list of names is an override, not a name."""
    from openprompt_meta.tables.cells import TableSettings

    overrides = list(options.overrides)

    def words(given: Sequence[str]) -> list[str]:
        overrides.extend(word for word in given if "=" in word)
        return [part for word in given if "=" not in word for part in word.split(",") if part]

    datasets = _distinct(words(options.dataset), "--dataset")
    seeds = _distinct(_numbers(words(options.seeds), "--seeds", 0), "--seeds")
    shots = table.shots if options.shots is None else tuple(_numbers(words(options.shots), "--shots", 1))
    # What a row prints may hold a comma.
    printed = {row.label.casefold() for row in table.rows}
    whole = [word for word in options.rows or () if word.casefold() in printed]
    others = words([word for word in options.rows or () if word not in whole])
    names = None if options.rows is None else _distinct([*whole, *others], "--rows")
    if len(table.shots) == 1 and table.name.startswith("main") and shots != table.shots:
        raise ConfigError(
            f"--shots: the table {table.name} is for {table.shots[0]} shots; main-1shot and main-5shot are two."
        )
    if options.tasks < 2:
        raise ConfigError(f"--tasks: got {options.tasks}, expected at least 2, for an interval.")
    settings = TableSettings(
        datasets, options.plm, _distinct(shots, "--shots"), options.tasks, seeds, options.root, tuple(overrides)
    )
    return settings, names


def _numbers(words: Sequence[str], option: str, least: int) -> list[int]:
    try:
        numbers = [int(word) for word in words]
    except ValueError:
        raise ConfigError(f"{option}: got {' '.join(words)}, expected whole numbers.") from None
    if any(number < least for number in numbers):
        raise ConfigError(f"{option}: got {' '.join(words)}, expected numbers from {least} on.")
    return numbers


def _distinct(values: Sequence[Word], option: str) -> tuple[Word, ...]:
    if not values or len(set(values)) < len(values):
        raise ConfigError(f"{option}: got {list(values)}, expected at least one and none of them twice.")
    return tuple(values)
