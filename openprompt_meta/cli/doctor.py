"""`openprompt-meta doctor`: what is installed, bridged and missing, and how to fix it."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]

__all__ = ["add_parser"]


def add_parser(subparsers: Subparsers) -> None:
    """Add ``doctor``."""
    parser = subparsers.add_parser(
        "doctor",
        help="show what is installed, bridged and missing, and how to fix it",
        description="Show what is installed, bridged and missing, and the command that fixes each. "
        "Exits with 1 if something that is needed is not in place.",
    )
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    from openprompt_meta.compat.doctor import examine

    report = examine()
    print(json.dumps(report.as_dict(), indent=2) if options.json else report.as_text())
    return report.exit_code
