"""SIGINT and SIGTERM at any moment: the command stops within seconds, says what is true, and goes on to the same bits.

``OPENPROMPT_META_KILLS=50`` makes the loop over real processes longer and draws other moments every time.
"""

from __future__ import annotations

import itertools
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from openprompt_meta.classifier.prediction import Predictor
from openprompt_meta.cli import main
from openprompt_meta.learners.meta import GradientLearner, MamlLearner
from openprompt_meta.runs import run as runs
from openprompt_meta.runs.checkpoint import read_progress
from openprompt_meta.runs.folder import RunFolder
from openprompt_meta.runs.process import Overdue, StopRequest
from openprompt_meta.runs.run import Run
from tests.helpers.few_texts import LABELS, QUESTIONS, TEXTS
from tests.helpers.services import new_classifier
from tests.helpers.small_runs import assert_same_run, write_data
from tests.helpers.small_tables import KEYS, SmallTables
from tests.helpers.victims import ROOT, SmallRun, ended_by

pytestmark = pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="only POSIX has timers that interrupt")

KILLS = int(os.environ.get("OPENPROMPT_META_KILLS", "0"))
SIGNALS = [(signal.SIGINT, 130), (signal.SIGTERM, 143)]
PROMISED, PROMISED_IF_TUNED = 3.0, 10.0  # seconds
MACHINE = 3.0  # seconds more that a busy machine may take


def send(number: int) -> None:
    os.kill(os.getpid(), number)


def hang(number: int) -> None:
    """Be sent a signal and go on with something that takes for ever."""
    send(number)
    time.sleep(60)
    raise AssertionError("nothing ended it")


def before_call(patch: pytest.MonkeyPatch, owner: type, name: str, call: int, act: Callable[[Any], object]) -> None:
    """Have a method's call of that number do something first, with the object that it is called on."""
    real, calls = getattr(owner, name), itertools.count(1)

    def acting(self: Any, *arguments: Any) -> Any:
        if next(calls) == call:
            act(self)
        return real(self, *arguments)

    patch.setattr(owner, name, acting)


@pytest.fixture
def train(small_run: SmallRun, tmp_path: Path) -> Callable[..., int]:
    """The command, in this process, into ``tmp_path / "cut"``."""
    return lambda *more: main(["train", str(small_run.yaml), f"run.folder={tmp_path / 'cut'}", "--quiet", *more])


@pytest.mark.parametrize(("number", "code"), SIGNALS)
def test_a_signal_in_the_last_group_of_test_tasks_is_heard(
    train: Callable[..., int],
    tmp_path: Path,
    straight: Path,
    number: int,
    code: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    real = Run._evaluate

    def signalled(self: Run, *arguments: Any) -> list[float]:
        found = real(self, *arguments)
        send(number)
        return found

    with monkeypatch.context() as patch:
        patch.setattr(Run, "_evaluate", signalled)
        assert train() == code
    said = capsys.readouterr()
    assert f"go on with: openprompt-meta resume {tmp_path / 'cut'}" in said.err
    assert said.out == ""
    assert main(["resume", str(tmp_path / "cut"), "--quiet"]) == 0
    assert_same_run(straight, tmp_path / "cut")


@pytest.mark.parametrize(("number", "code"), SIGNALS)
@pytest.mark.parametrize("begun", [False, True])
def test_a_step_without_end_is_broken_off_and_those_before_it_are_saved(
    train: Callable[..., int],
    tmp_path: Path,
    straight: Path,
    number: int,
    code: int,
    begun: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def endless(learner: GradientLearner) -> None:
        if begun:  # what is half done must not be taken for done
            with torch.no_grad():
                next(iter(learner.meta_parameters.parameters())).add_(1)
        hang(number)

    started = time.monotonic()
    with monkeypatch.context() as patch:
        before_call(patch, GradientLearner, "meta_step", 4, endless)
        assert train("run.checkpoint_every=50") == code
    assert time.monotonic() - started < PROMISED + MACHINE
    saved = read_progress(RunFolder(tmp_path / "cut").seed(0).last_checkpoint).iteration
    assert saved == (2 if begun else 3)  # a validation, after the second, saves too
    assert main(["resume", str(tmp_path / "cut"), "--quiet"]) == 0
    assert_same_run(straight, tmp_path / "cut")


def test_loading_without_end_is_broken_off_and_there_is_nothing_to_resume(
    train: Callable[..., int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(runs, "load_language_model", lambda config: hang(signal.SIGTERM))
    started = time.monotonic()
    assert train() == 143
    assert time.monotonic() - started < PROMISED + MACHINE
    assert "Stopped before there was anything to save: start it again." in capsys.readouterr().err
    assert not (tmp_path / "cut" / "config.yaml").exists()


# -- runs that tune the language model --------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), SIGNALS)
def test_a_tuned_model_in_the_middle_of_a_task_is_let_go_of(
    train: Callable[..., int], tmp_path: Path, number: int, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    tuned = ("method=metaprompting", "run.checkpoint_every=1")
    assert train(*tuned, f"run.folder={tmp_path / 'straight'}") == 0
    started = time.monotonic()
    with monkeypatch.context() as patch:
        before_call(patch, MamlLearner, "learn", 4, lambda learner: hang(number))  # adapted to the task, in place
        assert train(*tuned) == code
    assert time.monotonic() - started < PROMISED_IF_TUNED + MACHINE
    assert read_progress(RunFolder(tmp_path / "cut").seed(0).last_checkpoint).iteration == 3
    assert main(["resume", str(tmp_path / "cut"), "--quiet"]) == 0
    assert_same_run(tmp_path / "straight", tmp_path / "cut")


@pytest.mark.slow
def test_a_step_that_a_tuned_model_may_take_is_waited_for(
    train: Callable[..., int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def long(learner: GradientLearner) -> None:
        send(signal.SIGTERM)
        time.sleep(PROMISED)

    before_call(monkeypatch, GradientLearner, "meta_step", 3, long)
    assert train("method=metaprompting", "run.checkpoint_every=50") == 143
    assert read_progress(RunFolder(tmp_path / "cut").seed(0).last_checkpoint).iteration == 3


@pytest.mark.slow
@pytest.mark.real_encoder
@pytest.mark.parametrize("name", ["metaprompting-repverb", "verbalizer-repverb", "fine_tuning"])
def test_a_real_run_of_a_tuned_model_stops_in_time(tmp_path: Path, name: str) -> None:
    generator = random.Random(None if KILLS else 22)
    command = [sys.executable, "-m", "openprompt_meta", "train", f"methods/{name}", "meta.iterations=1000"]
    for number, code in SIGNALS:
        folder = tmp_path / str(number)
        process = subprocess.Popen(
            [*command, f"run.folder={folder}", "--quiet"],
            env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        while not (folder / "config.yaml").exists() and process.poll() is None:
            time.sleep(0.1)
        time.sleep(generator.uniform(0, 5))
        seconds, errors = ended_by(process, number)
        assert seconds < PROMISED_IF_TUNED + MACHINE
        assert process.returncode == code, errors
        assert "Traceback" not in errors
        assert f"go on with: openprompt-meta resume {folder}" in errors


def test_whoever_has_asked_is_not_interrupted_any_more() -> None:
    with StopRequest(patience=0.05) as stop:
        send(signal.SIGTERM)
        assert stop.asked()
        time.sleep(0.2)  # such as a checkpoint that takes its time
    with pytest.raises(Overdue), StopRequest(patience=0.05):
        hang(signal.SIGTERM)
    time.sleep(0.1)  # no alarm is left behind


def test_a_second_signal_acts_as_always() -> None:
    with StopRequest() as stop:
        send(signal.SIGINT)
        assert stop.asked()
        with pytest.raises(KeyboardInterrupt):
            send(signal.SIGINT)


# -- tables -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def tables(tiny_mlm_folder: Callable[[str], Path], tmp_path: Path) -> SmallTables:
    write_data(tmp_path / "data" / "small")
    return SmallTables(tiny_mlm_folder("bert"), tmp_path / "data", tmp_path / "tables")


@pytest.mark.parametrize(("number", "code"), SIGNALS)
@pytest.mark.parametrize("options", [(), ("--dry-run", "--time")])
def test_a_signal_at_the_very_end_of_a_cell_keeps_the_next_from_being_begun(
    tables: SmallTables,
    number: int,
    code: int,
    options: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    real = Run._write_results
    finished = []

    def signalled(self: Run) -> dict[str, Any]:
        send(number)
        finished.append(self.folder)
        return real(self)

    monkeypatch.setattr(Run, "_write_results", signalled)
    assert tables("ablation-K", "--rows", "K-1", "K-2", *options) == code
    assert len(finished) == 1
    said = capsys.readouterr()
    assert "Stopped" in said.err
    assert "resume" not in said.err
    assert ("leaves nothing behind" in said.err) is bool(options)


# -- classifiers ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("number", "code"), SIGNALS)
def test_predictions_stop_at_once_and_go_on(
    tiny_mlm_folder: Callable[[str], Path],
    tmp_path: Path,
    number: int,
    code: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    classifier = new_classifier(tiny_mlm_folder("bert")).fit(TEXTS, LABELS)
    classifier.save_pretrained(tmp_path / "saved")
    texts = tmp_path / "texts.txt"
    texts.write_text("\n".join(f"{question} {i}" for i in range(150) for question in QUESTIONS), "utf-8")
    command = ["predict", str(tmp_path / "saved"), str(texts), "--quiet", "--out", str(tmp_path / "out.csv")]
    started = time.monotonic()
    with monkeypatch.context() as patch:
        before_call(patch, Predictor, "probabilities", 3, lambda predictor: hang(number))
        assert main(command) == code
    assert time.monotonic() - started < PROMISED + MACHINE
    assert capsys.readouterr().err in ("openprompt-meta: interrupted\n", "openprompt-meta: terminated\n")
    assert len((tmp_path / "out.csv").read_text("utf-8").splitlines()) == 1 + 2 * 256
    assert main(command) == 0
    assert len((tmp_path / "out.csv").read_text("utf-8").splitlines()) == 1 + 750


def test_sigterm_means_what_it_did_once_a_command_is_over(capsys: pytest.CaptureFixture[str]) -> None:
    before = signal.getsignal(signal.SIGTERM)
    assert main(["yamls"]) == 0
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("command", ["yamls", "no-such-command"])
def test_a_signal_while_python_ends_is_told_by_no_traceback(command: str, number: int) -> None:
    late = (
        "import atexit, os, runpy; "
        f"atexit.register(lambda: os.kill(os.getpid(), {int(number)})); "
        "runpy.run_module('openprompt_meta', run_name='__main__')"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    ended = subprocess.run([sys.executable, "-c", late, command], env=environment, capture_output=True, text=True)
    assert ended.returncode == -number
    assert "Traceback" not in ended.stderr
    assert ended.stdout if command == "yamls" else "no-such-command" in ended.stderr


# -- real processes ---------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    [["fit", "--data", "FILE", "--out", "OUT"], ["predict", "SAVED", "FILE"], ["eval", "SAVED", "FILE"], ["doctor"]],
    ids=lambda command: command[0],
)
def test_a_command_stops_at_any_moment(
    tiny_mlm_folder: Callable[[str], Path], tmp_path: Path, command: list[str]
) -> None:
    generator = random.Random(None if KILLS else 23)
    new_classifier(tiny_mlm_folder("bert")).fit(TEXTS, LABELS).save_pretrained(tmp_path / "saved")
    rows = [f"{text} {i},{label}" for i in range(2000) for text, label in zip(TEXTS, LABELS, strict=True)]
    (tmp_path / "texts.csv").write_text("text,label\n" + "\n".join(rows), "utf-8")
    places = {"SAVED": tmp_path / "saved", "FILE": tmp_path / "texts.csv", "OUT": tmp_path / "out"}
    words = [str(places.get(word, word)) for word in command]
    for number, code in SIGNALS * max(1, KILLS // 10):
        process = subprocess.Popen(
            [sys.executable, "-m", "openprompt_meta", *words],
            env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        time.sleep(generator.uniform(0.5, 6))
        seconds, errors = ended_by(process, number)
        assert "Traceback" not in errors
        assert seconds < PROMISED + MACHINE
        assert process.returncode in (code, -number, 0)  # what came before the program, or after it, is none of its
        assert process.returncode != code or errors.endswith(("interrupted\n", "terminated\n"))
    assert not (tmp_path / "out").exists() or (tmp_path / "out" / "classifier.json").is_file()


@pytest.mark.slow
def test_a_real_table_signalled_again_and_again_ends_as_the_straight_one(tables: SmallTables, tmp_path: Path) -> None:
    generator = random.Random(None if KILLS else 21)
    keys = [*KEYS, "meta.iterations=20", "run.checkpoint_every=7"]
    rows = ("ablation-K", "--rows", "K-1", "K-2")
    straight = SmallTables(tables.model, tables.root, tmp_path / "straight")
    assert straight(*rows, keys=keys) == 0
    sent = finished = 0
    while finished == 0 or sent < KILLS:
        victim = SmallTables(tables.model, tables.root, tmp_path / f"tables-{finished}")
        while True:
            process = subprocess.Popen(
                [sys.executable, "-m", "openprompt_meta", *victim.command(*rows, keys=keys)],
                env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            number, code = generator.choice(SIGNALS)
            if sent >= (KILLS or 3):
                number = 0  # which is no signal
            else:
                time.sleep(generator.uniform(2, 9))
            seconds, errors = ended_by(process, number)
            assert "Traceback" not in errors, errors
            if process.returncode == 0:
                break
            if process.returncode == -number and not errors:
                continue  # a busy machine had not come to the program yet
            sent += 1
            assert process.returncode == code, errors
            assert seconds < PROMISED + MACHINE
        finished += 1
        for cell in straight.cells():
            assert_same_run(cell, victim.folder / "cells" / cell.name)
    print(f"{sent} signals, {finished} tables ended as the straight one")
