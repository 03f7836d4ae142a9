"""`openprompt-meta yamls | train | resume | test`: parse, call, print."""

from __future__ import annotations

import argparse
import json
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]


def add_parsers(subparsers: Subparsers) -> None:
    """Add the four subcommands."""
    yamls = subparsers.add_parser(
        "yamls", help="list the YAMLs that ship", description="List the YAMLs that ship, to train or to inherit from."
    )
    yamls.set_defaults(run=_list_yamls)
    train = subparsers.add_parser(
        "train",
        help="meta-train and test what a YAML describes",
        description="Meta-train and test what a YAML describes. Run again, it goes on where it was interrupted.",
    )
    train.add_argument("yaml", metavar="YAML", help="a file, or the name of one that ships, e.g. demo")
    train.add_argument("overrides", nargs="*", metavar="key=value", help="e.g. meta.shot=1 run.seeds=[0,1,2]")
    train.set_defaults(run=_train)
    resume = subparsers.add_parser("resume", help="go on with an interrupted run")
    resume.add_argument("folder", metavar="RUN", help="its run folder")
    resume.set_defaults(run=_resume)
    test = subparsers.add_parser("test", help="evaluate a trained run on its test classes again")
    test.add_argument("folder", metavar="RUN", help="its run folder")
    test.add_argument("--tasks", type=int, metavar="N", help="number of tasks; as configured by default")
    test.set_defaults(run=_test)
    for parser in (train, resume, test):
        parser.add_argument("--json", action="store_true", help="print the results as JSON")
        parser.add_argument("--quiet", action="store_true", help="no progress bars")


def _list_yamls(_: argparse.Namespace) -> int:
    from openprompt_meta.config.loading import shipped_yamls

    files = shipped_yamls()
    width = max(map(len, files), default=0)
    for name, file in files.items():
        # Each opens with a comment that says what it is.
        print(f"{name:<{width}}  {file.read_text('utf-8').partition(chr(10))[0].removeprefix('# ')}")
    return 0


def _train(options: argparse.Namespace) -> int:
    from openprompt_meta.config.loading import find_yaml, load_config
    from openprompt_meta.runs.folder import default_run_folder
    from openprompt_meta.runs.process import log_to_screen

    yaml = find_yaml(options.yaml)
    config = load_config(yaml, options.overrides)
    with log_to_screen(logging.WARNING):
        folder = config.run.folder or default_run_folder(config, yaml.stem, options.overrides)
    return _carry_out(options, config, folder)


def _resume(options: argparse.Namespace) -> int:
    from openprompt_meta.runs.run import load_run_config

    return _carry_out(options, load_run_config(options.folder), options.folder)


def _carry_out(options: argparse.Namespace, config: Any, folder: str | Path) -> int:
    from openprompt_meta.runs.process import StopRequest, log_to_screen
    from openprompt_meta.runs.run import Run

    run = Run(config, folder, show_progress=not options.quiet)
    with log_to_screen(logging.WARNING if options.quiet else logging.INFO), StopRequest() as stop:
        results = run.train(stop)
        if results is None:
            logging.getLogger(__name__).warning("%s", run.how_to_go_on())
    if results is not None:
        _print(results, options.json, folder)
    return stop.exit_code


def _test(options: argparse.Namespace) -> int:
    from openprompt_meta.runs.run import Run, load_run_config

    run = Run(load_run_config(options.folder), options.folder, show_progress=not options.quiet)
    results = run.test(options.tasks)
    _print(results, options.json, options.folder)
    return 0


def _print(results: dict[str, Any], as_json: bool, folder: str | Path) -> None:
    from openprompt_meta.runs.evaluation import SeedsSummary

    if as_json:
        print(json.dumps(results, indent=2))
        return
    setting = f"{results['dataset']}, {results['way']}-way {results['shot']}-shot, {results['model']}"
    evaluated = "unseen classes" if results["classes"] == "test" else "validation classes"
    for kind, values in results["test_accuracy"].items():
        summary = SeedsSummary(**values)
        print(f"{setting}: {kind} accuracy on {evaluated} {summary} over {summary.tasks} tasks, 95 % interval")
    print(f"Everything is in {folder}")
