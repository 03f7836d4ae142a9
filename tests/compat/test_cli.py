from __future__ import annotations

import argparse
import os
import subprocess
import sys

import pytest

from openprompt_meta import __version__, cli
from openprompt_meta.errors import ConfigError
from tests.helpers.interpreters import ROOT


def command_that_raises(error: BaseException) -> object:
    def run(options: argparse.Namespace) -> int:
        raise error

    return lambda subparsers: subparsers.add_parser("try").set_defaults(run=run)


def test_what_the_package_refuses_is_one_message_on_stderr_and_exit_code_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cli, "commands", lambda: (command_that_raises(ConfigError("no key 'shots'")),))
    assert cli.main(["try"]) == 2
    captured = capsys.readouterr()
    assert captured.err == "openprompt-meta: no key 'shots'\n"
    assert captured.out == ""


def test_an_interrupt_exits_with_130_and_no_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cli, "commands", lambda: (command_that_raises(KeyboardInterrupt()),))
    assert cli.main(["try"]) == 130
    assert "Traceback" not in capsys.readouterr().err


SIGNALLED = """
import os, signal, sys
from openprompt_meta import cli

assert "openprompt_meta.cli.data" not in sys.modules


class Signalling:
    def find_spec(self, *given):
        os.kill(os.getpid(), signal.SIGTERM)


sys.meta_path.insert(0, Signalling())
sys.exit(cli.main(["doctor"]))
"""


def test_a_signal_while_the_command_is_still_being_imported_has_an_answer_too() -> None:
    done = subprocess.run([sys.executable, "-c", SIGNALLED], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (143, "openprompt-meta: terminated\n")


def test_a_fault_of_our_own_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli, "commands", lambda: (command_that_raises(ZeroDivisionError()),))
    with pytest.raises(ZeroDivisionError):
        cli.main(["try"])


def test_the_module_runs_as_the_command() -> None:
    command = [sys.executable, "-m", "openprompt_meta", "--version"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == f"openprompt_meta {__version__}\n"


def test_without_a_command_the_usage_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        cli.main([])
    assert stopped.value.code == 2
    assert "COMMAND" in capsys.readouterr().err


def test_a_reader_that_has_enough_ends_the_command_in_peace() -> None:
    reading, writing = os.pipe()
    os.close(reading)  # as head does, sooner or later
    try:
        done = subprocess.run(
            [sys.executable, "-m", "openprompt_meta", "yamls"], stdout=writing, stderr=subprocess.PIPE, check=False
        )
    finally:
        os.close(writing)
    assert (done.returncode, done.stderr) == (0, b"")
