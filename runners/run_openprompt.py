"""OpenPrompt's own run from a YAML, on any device.

    python runners/run_openprompt.py --config_yaml yamls/openprompt/demo_intents.yaml

Anything in the YAML can be overridden as in OpenPrompt: `--verbalizer warp_verbalizer --train.num_epochs 2`.
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Sequence
from pathlib import Path

import openprompt_meta
from openprompt_meta.cli import exit_code_of


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it and print the test metrics; 2 and one message if it is refused."""
    options, others = build_parser().parse_known_args(arguments)
    return exit_code_of("run_openprompt", lambda: run(options, others))


def build_parser() -> argparse.ArgumentParser:
    """OpenPrompt's three options; the rest are overrides."""
    parser = argparse.ArgumentParser(prog="run_openprompt", description=__doc__, allow_abbrev=False)
    parser.add_argument("--config_yaml", help="the configuration; by default that of the folder to resume or test")
    folders = parser.add_mutually_exclusive_group()
    folders.add_argument("--resume", metavar="FOLDER", help="go on with an interrupted run")
    folders.add_argument("--test", metavar="FOLDER", help="test the best epoch of a run")
    return parser


def run(options: argparse.Namespace, others: Sequence[str]) -> int:
    """Do what the options ask for; the exit code."""
    from openprompt_meta import openprompt_runs

    folder = options.resume or options.test
    if options.config_yaml is None and folder is None:
        raise openprompt_meta.OpenPromptMetaError("Give --config_yaml, or the folder of a run as --resume or --test.")
    path = options.config_yaml or Path(folder) / openprompt_runs.CONFIG_FILE
    config = openprompt_runs.read_config(path, openprompt_runs.parse_openprompt_overrides(others))
    logging.basicConfig(level=config.logging.console_level, format="%(levelname)s %(message)s")
    if options.resume:
        result = openprompt_runs.resume_openprompt(config, folder)
    elif options.test:
        result = openprompt_runs.test_openprompt(config, folder)
    else:
        result = openprompt_runs.run_openprompt(config)
    for name, value in result.metrics.items():
        print(f"test {name}: {value:.4f}")
    print(f"folder: {result.folder}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
