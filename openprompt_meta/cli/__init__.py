"""The ``openprompt-meta`` command: parse, call, print.

:func:`commands` lists the functions that add the parsers of the subcommands. Each parser names the function that runs
it, which imports what it needs, so that the command starts quickly.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import re
import shlex
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn, TextIO

from openprompt_meta.errors import OpenPromptMetaError, printable
from openprompt_meta.version import __version__

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]

__all__ = ["build_parser", "commands", "exit_code_of", "main", "program"]

EXIT_REFUSED = 2
EXIT_INTERRUPTED = 130
EXIT_TERMINATED = 143


class Terminated(BaseException):
    """SIGTERM, as KeyboardInterrupt is SIGINT: nothing but the command's end catches it."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code.

    0 means done, 1 that the command found something wrong, 2 that it was refused with a message on stderr,
    130 that it was interrupted, and 143 that it was terminated.
    """
    return exit_code_of("openprompt-meta", lambda: _run(arguments))


def program() -> int:
    """:func:`main` of a process that ends with it.

    What is left is Python's own end, in which an interrupt would be told as a traceback of whichever library was being
    cleared away. SIGINT ends it at once, as SIGTERM does.
    """
    try:
        return main()
    finally:
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # not if whoever started it has it ignored
            signal.signal(signal.SIGINT, signal.SIG_DFL)


def _run(arguments: Sequence[str] | None) -> int:
    parser = build_parser()
    options, rest = parser.parse_known_args(arguments)
    # argparse takes no positional arguments after an option; key=value may stand anywhere.
    if hasattr(options, "overrides") and all("=" in word and not word.startswith("-") for word in rest):
        options.overrides += rest
    elif rest:
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    return int(options.run(options))


def exit_code_of(program: str, run: Callable[[], int]) -> int:
    """What ``run`` returns, or the code for the way it ended; a refusal is one message, never a traceback."""
    try:
        with _terminable(), _harmless_terminal():
            code = run()
            sys.stdout.flush()  # here, where a full disk behind it can still be told
        return code
    except OpenPromptMetaError as error:
        print(f"{program}: {_readable(error)}", file=sys.stderr)
        return EXIT_REFUSED
    except BrokenPipeError:  # whoever read the output has enough
        _drop_output()
        return 0
    except OSError as error:
        _drop_output()
        print(f"{program}: {_readable(error)}", file=sys.stderr)
        return EXIT_REFUSED
    except KeyboardInterrupt:
        print(f"{program}: interrupted", file=sys.stderr)
        return EXIT_INTERRUPTED
    except Terminated:
        print(f"{program}: terminated", file=sys.stderr)
        return EXIT_TERMINATED


def _readable(error: Exception) -> str:
    """The message, in which names without end are cut in their middle."""
    return re.sub(r"(\S{200})\S{200,}(\S{50})", r"\1…\2", printable(str(error)))


@contextlib.contextmanager
def _terminable() -> Iterator[None]:
    """Have SIGTERM unwind the program inside the block, so that temporary files go and the reason is said."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def terminate(number: int, frame: FrameType | None) -> None:
        raise Terminated

    before = signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextlib.contextmanager
def _harmless_terminal() -> Iterator[None]:
    """Have what is printed inside the block pass :func:`printable` if a terminal shows it; files get it as it is."""
    before = sys.stdout
    if not getattr(before, "isatty", bool)():  # something may stand in its place that is no file
        yield
        return
    with contextlib.redirect_stdout(_Terminal(before)):
        yield


class _Terminal(io.TextIOBase):
    """A terminal that text of any origin can be written to, as text or through ``buffer``."""

    def __init__(self, terminal: TextIO) -> None:
        self._terminal = terminal
        self.buffer = _TerminalBytes(terminal)

    def write(self, text: str) -> int:
        self._terminal.write(printable(text))
        return len(text)

    def flush(self) -> None:
        self._terminal.flush()

    def isatty(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._terminal.fileno()


class _TerminalBytes(io.RawIOBase):
    def __init__(self, terminal: TextIO) -> None:
        self._terminal = terminal

    def writable(self) -> bool:
        return True

    def write(self, content: Any) -> int:
        self._terminal.write(printable(bytes(content).decode("utf-8", "replace")))
        return len(content)

    def flush(self) -> None:
        self._terminal.flush()


def _drop_output() -> None:
    """Give up what stdout has not taken, or Python would try once more at its end and complain by itself."""
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


class _Parser(argparse.ArgumentParser):
    """One whose refusals, which repeat what was given, steer no terminal. Its subcommands are of the same kind."""

    def error(self, message: str) -> NoReturn:
        super().error(printable(message))


def build_parser() -> argparse.ArgumentParser:
    """The parser with every subcommand of :func:`commands`."""
    parser: argparse.ArgumentParser = _Parser(
        prog="openprompt-meta",
        description="Meta-learned prompt pools and representative verbalizers for OpenPrompt.",
    )
    parser.add_argument("--version", action="version", version=f"openprompt_meta {__version__}")
    subparsers = parser.add_subparsers(title="commands", dest="command", metavar="COMMAND", required=True)
    for add_command in commands():
        add_command(subparsers)
    return parser


def _add_doctor(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser(
        "doctor",
        help="show what is installed, bridged and missing, and how to fix it",
        description="Show what is installed, bridged and missing, and the command that fixes each. "
        "Exits with 1 if something that is needed is not in place.",
    )
    way = parser.add_mutually_exclusive_group()
    way.add_argument("--json", action="store_true", help="print the report as JSON")
    way.add_argument("--fix", action="store_true", help="show the commands that fix it, ask, and run them")
    parser.add_argument("--yes", action="store_true", help="with --fix: do not ask")
    parser.set_defaults(run=_doctor)


def _doctor(options: argparse.Namespace) -> int:
    from openprompt_meta.compat.doctor import examine, repair, repair_commands

    report = examine()
    print(json.dumps(report.as_dict(), indent=2) if options.json else report.as_text())
    commands = repair_commands(report) if options.fix else []
    if not commands:
        return report.exit_code
    print("\nThese commands would be run:", *map(shlex.join, commands), sep="\n  ", flush=True)
    if not options.yes and not _agreed("Run them now? [y/N] "):
        print("Nothing was changed.")
        return report.exit_code
    return repair(commands)


def _agreed(question: str) -> bool:
    try:
        return input(question).strip().casefold() in ("y", "yes")
    except EOFError:  # nobody is there to be asked
        print()
        return False


def commands() -> tuple[Callable[[Subparsers], None], ...]:
    """What adds the parsers of the subcommands; imported only now, where a signal has an answer already."""
    from openprompt_meta.cli import classifier, data, report, runs, serve, table

    return (
        _add_doctor,
        data.add_parser,
        runs.add_parsers,
        classifier.add_parsers,
        serve.add_parser,
        table.add_parser,
        report.add_parsers,
    )
