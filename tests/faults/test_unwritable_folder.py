"""Folders that cannot be written to, for the administrator too: exit code 2, one sentence, nothing changed."""

from __future__ import annotations

import csv
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from openprompt_meta.cli import main
from openprompt_meta.errors import TemplateError
from openprompt_meta.prompts.pool import PromptPool
from openprompt_meta.prompts.pool_files import read_pool_weights, write_pool_files
from tests.helpers.failing_disks import mounted
from tests.helpers.few_texts import LABELS, TEXTS
from tests.helpers.services import new_classifier
from tests.helpers.victims import SmallRun


@pytest.fixture
def read_only(tmp_path: Path) -> Iterator[Path]:
    """A folder with a saved pool in it that nobody may write to: a read-only tmpfs, or one without permission."""
    folder = tmp_path / "read-only"
    with mounted(folder, "size=512k") as done:
        write_pool_files(folder, PromptPool(2, 2, 8, 8), "text", "model")
        if done:
            subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True)
        elif os.geteuid() == 0:
            pytest.skip("no tmpfs can be mounted here, and no permission stops the administrator")
        else:
            folder.chmod(0o500)
        yield folder
        if not done:
            folder.chmod(0o700)


def refusal(capsys: pytest.CaptureFixture[str], run: SmallRun, folder: Path) -> str:
    assert main(["train", str(run.yaml), f"run.folder={folder}", "--quiet"]) == 2
    told = capsys.readouterr().err.strip()
    assert told.startswith("openprompt-meta: ")
    assert "\n" not in told
    return told


def test_a_folder_on_a_read_only_disk_is_refused(
    read_only: Path, small_run: SmallRun, capsys: pytest.CaptureFixture[str]
) -> None:
    before = sorted(read_only.iterdir())
    saved = read_pool_weights(read_only, PromptPool(2, 2, 8, 8))["prompts"]
    assert "cannot be" in refusal(capsys, small_run, read_only / "run")
    assert "cannot be written" in refusal(capsys, small_run, read_only)
    with pytest.raises(TemplateError, match=r"cannot be saved to .*What was saved there before is as it was"):
        write_pool_files(read_only, PromptPool(2, 2, 8, 8), "text", "model")
    assert sorted(read_only.iterdir()) == before
    assert torch.equal(read_pool_weights(read_only, PromptPool(2, 2, 8, 8))["prompts"], saved)


@pytest.fixture
def saved(tiny_mlm_folder: Callable[[str], Path], tmp_path: Path) -> Path:
    """A saved classifier, a file of texts and one with labels, in a folder that can be written to."""
    folder = tmp_path / "there"
    new_classifier(tiny_mlm_folder("bert"), fitted=True).save_pretrained(folder / "saved")
    (folder / "texts.txt").write_text("\n".join(TEXTS), "utf-8")
    rows = (f"{text},{label}\n" for text, label in zip(TEXTS, LABELS, strict=True))
    (folder / "few.csv").write_text("text,label\n" + "".join(rows), "utf-8")
    return folder


@pytest.mark.parametrize(
    "command",
    [
        ["fit", "SAVED", "--data", "FEW", "--out", "DISK/new"],
        ["predict", "SAVED", "TEXTS", "--out", "DISK/out.csv", "--quiet"],
        ["serve", "SAVED", "--port", "0", "--keep", "DISK/kept"],
        ["serve", "SAVED", "--port", "0", "--keep", "DISK"],
        ["table", "main-5shot", "--finished", "--rows", "mean-prototypes", "--folder", "DISK/tables"],
    ],
    ids=lambda command: " ".join(command[:1] + command[-1:]),
)
def test_commands_that_write_are_refused_on_a_read_only_disk(
    read_only: Path, saved: Path, command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    before = sorted(read_only.iterdir())
    places = {"SAVED": saved / "saved", "FEW": saved / "few.csv", "TEXTS": saved / "texts.txt"}
    words = [str(places.get(word, word)).replace("DISK", str(read_only)) for word in command]
    assert main(words) == 2
    told = capsys.readouterr().err.strip()
    assert told.startswith("openprompt-meta: ")
    assert "\n" not in told
    assert str(read_only) in told
    assert sorted(read_only.iterdir()) == before


def test_a_classifier_and_its_texts_on_a_read_only_disk_are_read_as_anywhere(
    tiny_mlm_folder: Callable[[str], Path], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "read-only"
    with mounted(folder, "size=4m") as done:
        if not done:
            pytest.skip("no tmpfs can be mounted here")
        classifier = new_classifier(tiny_mlm_folder("bert"), fitted=True)
        classifier.save_pretrained(folder / "saved")
        (folder / "texts.txt").write_text("\n".join(TEXTS), "utf-8")
        subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True)
        assert main(["predict", str(folder / "saved"), str(folder / "texts.txt"), "--quiet"]) == 0
        rows = list(csv.DictReader(capfd.readouterr().out.splitlines()))
        assert [row["predicted_label"] for row in rows] == list(classifier.predict(TEXTS))


def test_a_file_in_place_of_the_folder_is_refused_and_stays(
    tmp_path: Path, small_run: SmallRun, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("mine")
    assert "cannot be made" in refusal(capsys, small_run, tmp_path / "file")
    assert "cannot be made" in refusal(capsys, small_run, tmp_path / "file" / "run")
    with pytest.raises(TemplateError, match="cannot be saved to"):
        write_pool_files(tmp_path / "file", PromptPool(2, 2, 8, 8), "text", "model")
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.parametrize("name", ["config.yaml", "log.txt", ".lock", "versions.json", "seed-0/metrics.jsonl"])
def test_a_folder_in_place_of_a_file_is_refused(
    name: str, tmp_path: Path, small_run: SmallRun, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "run" / name).mkdir(parents=True)
    assert name in refusal(capsys, small_run, tmp_path / "run")


@pytest.mark.parametrize("name", ["seed-0", "seed-0/checkpoints"])
def test_a_file_in_place_of_a_seeds_folder_is_refused(
    name: str, tmp_path: Path, small_run: SmallRun, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "run" / name).parent.mkdir(parents=True)
    (tmp_path / "run" / name).write_text("mine")
    refusal(capsys, small_run, tmp_path / "run")
    assert (tmp_path / "run" / name).read_text() == "mine"


def test_a_name_that_no_disk_takes_is_refused(small_run: SmallRun, capsys: pytest.CaptureFixture[str]) -> None:
    assert "File name too long" in refusal(capsys, small_run, Path("x" * 5000))
