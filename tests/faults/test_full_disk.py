"""A disk that is full: the state before stays, the message is one sentence, and with room again the run goes on."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from openprompt_meta.cli import main
from openprompt_meta.errors import CheckpointError, TemplateError
from openprompt_meta.files import write_atomic
from openprompt_meta.prompts.pool import PromptPool
from openprompt_meta.prompts.pool_files import read_pool_config, read_pool_weights, write_pool_files
from openprompt_meta.runs.checkpoint import Progress, load_pool, write_checkpoint
from openprompt_meta.runs.folder import SeedFolder
from openprompt_meta.runs.process import log_file
from tests.helpers.failing_disks import PAGE, LimitedDisk, TmpfsDisk
from tests.helpers.victims import ROOT, SmallRun, assert_same_results, assert_sound

Disk = TmpfsDisk | LimitedDisk


def learner_of(learned: PromptPool) -> Any:
    return SimpleNamespace(meta_parameters=learned, optimizer=torch.optim.Adam(learned.parameters()))


def pool() -> PromptPool:
    return PromptPool(8, 8, 128, 128)  # 36 kB of numbers


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.name != "ballast")


def test_a_file_that_does_not_fit_leaves_the_one_before_and_nothing_else(disk: Disk) -> None:
    file = disk.folder / "file"
    write_atomic(file, b"old")
    with disk.with_room_for(2 * PAGE), pytest.raises(OSError, match=r"No space left|too large"):
        write_atomic(file, bytes(3 * PAGE))
    assert file.read_bytes() == b"old"
    assert names(disk.folder) == ["file"]
    write_atomic(file, bytes(3 * PAGE))
    assert file.read_bytes() == bytes(3 * PAGE)


def test_a_checkpoint_that_does_not_fit_leaves_the_one_before(disk: Disk) -> None:
    file = disk.folder / "last.safetensors"
    old, new = pool(), pool()
    write_checkpoint(file, learner_of(old), Progress(iteration=1))
    content = file.read_bytes()
    with (
        disk.with_room_for(PAGE),
        pytest.raises(CheckpointError, match="The one before it is untouched"),
    ):
        write_checkpoint(file, learner_of(new), Progress(iteration=2))
    assert file.read_bytes() == content
    assert names(disk.folder) == ["last.safetensors"]
    assert load_pool(file, new).iteration == 1
    assert torch.equal(new.prompts, old.prompts)


@pytest.mark.parametrize("pages", [0, 1, 2, 7, 8, 9, 10, 11, 12])
def test_a_pool_is_saved_as_a_whole_or_the_one_before_can_still_be_loaded(disk: Disk, pages: int) -> None:
    torch.manual_seed(0)
    old, new = pool(), pool()
    write_pool_files(disk.folder, old, "old text", "model")
    saved, text = new, "new text"
    with disk.with_room_for(pages * PAGE):
        try:
            write_pool_files(disk.folder, new, text, "model")
        except TemplateError:
            saved, text = old, "old text"
    assert pages == 10 or (saved is old) == (pages < 10)  # on a tmpfs of 10 the weights fit, and the JSON does not
    assert read_pool_config(disk.folder)["text"] == text
    assert torch.equal(read_pool_weights(disk.folder, pool())["prompts"], saved.prompts)
    assert names(disk.folder) == ["prompt_pool.json", "prompt_pool.safetensors"]


def test_a_run_that_finds_no_room_says_so_and_goes_on_when_there_is_some(
    disk: Disk, small_run: SmallRun, straight: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = disk.folder / "run"
    config = small_run.config.with_values({"run.folder": str(folder)})
    arguments = ["train", str(small_run.yaml), f"run.folder={folder}", "--quiet"]
    stopped = 0
    # Ever more room: it ends at the folder itself, the configuration, the first checkpoint, later ones …
    for size in (0, PAGE, 2 * PAGE, 4 * PAGE, 6 * PAGE, 9 * PAGE):
        with disk.with_room_for(size):
            code = main(arguments)
            told = capsys.readouterr().err
        assert_sound(folder, config)
        assert not list(disk.folder.rglob("*.part"))
        assert code in (0, 2)
        assert "Traceback" not in told
        if code == 2:
            stopped += 1
            (message,) = [line for line in told.splitlines() if line.startswith("openprompt-meta: ")]
            assert "cannot be" in message
            assert "No space left" in message or "too large" in message
    assert stopped >= 2
    assert main(arguments) == 0
    assert_same_results(straight, folder)


def test_a_finished_run_tells_its_results_on_a_full_disk(
    disk: Disk, small_run: SmallRun, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["train", str(small_run.yaml), f"run.folder={disk.folder / 'run'}", "--quiet", "--json"]
    assert main(arguments) == 0
    first = json.loads(capsys.readouterr().out)
    with disk.with_room_for(0):
        assert main(arguments) == 0
    assert json.loads(capsys.readouterr().out) == first


def test_metrics_wait_until_there_is_room(disk: Disk) -> None:
    folder = SeedFolder(disk.folder)
    records = [{"kind": "step", "iteration": number, "notes": "x" * 3000} for number in range(6)]
    folder.log(records[0])
    with disk.with_room_for(PAGE):
        for record in records[1:5]:
            folder.log(record)
            assert folder.metrics() == records[: len(folder.metrics())], "a half line"
        assert len(folder.metrics()) < 5
    folder.log(records[5])
    assert folder.metrics() == records
    folder.finish()
    assert folder.metrics() == records


def test_metrics_that_never_find_room_are_said_to_be_lost(disk: Disk, caplog: pytest.LogCaptureFixture) -> None:
    folder = SeedFolder(disk.folder)
    with disk.with_room_for(0):
        for number in range(3):
            folder.log({"kind": "step", "iteration": number, "notes": "x" * PAGE})
        folder.finish()
    assert [record.message.partition(" ")[0] for record in caplog.records] == [str(folder.metrics_file), "The"]
    assert "The last 3 records of" in caplog.text


def test_a_log_without_room_is_said_once_and_stops_nothing(disk: Disk, capsys: pytest.CaptureFixture[str]) -> None:
    logger = logging.getLogger("openprompt_meta.runs.run")
    file = disk.folder / "log.txt"
    file.write_bytes(b"x" * (PAGE - 10) + b"\n")
    with disk.with_room_for(0), log_file(file):
        for _ in range(3):
            logger.info("a line that is longer than what is left of the last page, %s", "x" * PAGE)
    told = capsys.readouterr().err
    assert told.count("log.txt cannot be written") == 1
    assert "Traceback" not in told


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
@pytest.mark.parametrize("command", [["data", "list"], ["data", "check", "demo", "--json"]])
def test_output_that_finds_no_room_ends_in_one_sentence(command: list[str]) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "openprompt_meta", *command],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 2
    assert done.stderr.startswith("openprompt-meta: ")
    assert "No space left on device" in done.stderr
    assert done.stderr.count("\n") == 1
