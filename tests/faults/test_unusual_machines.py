"""Clocks that jump, more classes than anybody has, two runs that are the same: nothing but the work counts."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from openprompt_meta import MetaPromptClassifier
from openprompt_meta.cli import main
from openprompt_meta.runs.run import Run
from openprompt_meta.serve.guard import RateLimit
from tests.helpers.few_texts import LABELS, TEXTS
from tests.helpers.services import new_classifier
from tests.helpers.small_runs import assert_same_run
from tests.helpers.victims import SmallRun


@pytest.fixture
def jumping_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time of day leaps by a year, forwards and back, each time that it is asked for."""

    def jumps() -> Iterator[float]:
        now = 1_800_000_000.0
        while True:
            yield now + 31_536_000
            yield now - 31_536_000

    clock = jumps()
    monkeypatch.setattr(time, "time", lambda: next(clock))


def test_equal_runs_give_equal_bytes(small_run: SmallRun, straight: Path, tmp_path: Path) -> None:
    assert Run(small_run.config, tmp_path / "again", show_progress=False).train() is not None
    for name in ("last", "best"):
        file = f"seed-0/checkpoints/{name}.safetensors"
        assert (tmp_path / "again" / file).read_bytes() == (straight / file).read_bytes()


def test_equal_fits_give_equal_bytes(tiny_mlm_folder: Callable[[str], Path], tmp_path: Path) -> None:
    for name in ("one", "two"):
        new_classifier(tiny_mlm_folder("bert")).fit(TEXTS, LABELS).save_pretrained(tmp_path / name)
    for file in (tmp_path / "one").iterdir():
        assert file.read_bytes() == (tmp_path / "two" / file.name).read_bytes(), file.name


def test_a_clock_that_jumps_changes_no_run(
    small_run: SmallRun, straight: Path, tmp_path: Path, jumping_clock: None
) -> None:
    assert Run(small_run.config, tmp_path / "run", show_progress=False).train() is not None
    assert_same_run(straight, tmp_path / "run")


def test_a_clock_that_jumps_gives_and_takes_no_permits(jumping_clock: None) -> None:
    limit = RateLimit(3, clients=2)
    assert [limit.wait("a") == 0 for _ in range(5)] == [True, True, True, False, False]


@pytest.mark.slow
def test_ten_thousand_classes_are_fitted_saved_and_asked(
    tiny_mlm_folder: Callable[[str], Path], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    number = 10_000
    texts, labels = [f"rain {i}" for i in range(number)], [f"class {i:05}" for i in range(number)]
    classifier = MetaPromptClassifier(base_model=str(tiny_mlm_folder("bert")), seed=0, inner_steps=0)
    classifier.fit(texts, labels).save_pretrained(tmp_path / "saved")
    loaded = MetaPromptClassifier.from_pretrained(tmp_path / "saved")
    probabilities = loaded.predict_proba(texts[:3])
    assert probabilities.shape == (3, number)
    assert probabilities.sum(axis=1) == pytest.approx([1, 1, 1], abs=1e-3)
    (tmp_path / "texts.txt").write_text("rain 7\nrain 8\n", "utf-8")
    command = ["predict", str(tmp_path / "saved"), str(tmp_path / "texts.txt"), "--all", "--quiet"]
    assert main([*command, "--out", str(tmp_path / "out.csv")]) == 0
    with (tmp_path / "out.csv").open(encoding="utf-8", newline="") as file:
        assert [len(row) for row in csv.reader(file)] == [3 + number] * 3
    capfd.readouterr()


def test_the_command_starts_where_the_home_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir(mode=0o500)
    environment = {key: value for key, value in os.environ.items() if key != "OPENPROMPT_META_CACHE"}
    environment |= {"HOME": str(tmp_path / "home" / "none"), "XDG_CACHE_HOME": "/proc/none"}
    done = subprocess.run(
        [sys.executable, "-m", "openprompt_meta", "yamls"],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
