"""What killed writers leave behind is cleared away, and nothing else is."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

import pytest

from openprompt_meta.files import atomic_writer, remove_leftovers, write_atomic
from openprompt_meta.runs.run import Run
from tests.helpers.victims import SmallRun

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="writers are forked")


def killed_writer(file: Path) -> Path:
    """A process is killed in the middle of writing ``file``; what it leaves."""
    file.parent.mkdir(parents=True, exist_ok=True)
    pid = os.fork()
    if pid == 0:
        with atomic_writer(file) as half:
            half.write(b"half")
            half.flush()
            os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(pid, 0)
    (left,) = file.parent.glob(f".{file.name}.*.part")
    return left


def test_what_a_killed_writer_left_is_removed(tmp_path: Path) -> None:
    write_atomic(tmp_path / "file", "old")
    left = killed_writer(tmp_path / "file")
    assert left.read_bytes() == b"half"
    assert remove_leftovers(tmp_path) == [left]
    assert os.listdir(tmp_path) == ["file"]
    assert (tmp_path / "file").read_text() == "old"


def test_what_is_being_written_is_left_alone(tmp_path: Path) -> None:
    with atomic_writer(tmp_path / "file") as file:
        file.write(b"new")
        assert remove_leftovers(tmp_path) == []
    assert remove_leftovers(tmp_path) == []
    assert (tmp_path / "file").read_bytes() == b"new"


def test_files_of_others_are_left_alone(tmp_path: Path) -> None:
    for name in ("a.part", ".a.part", ".a.0123456789ab.part.txt", ".a.0123456789AB.part", "a.0123456789ab.part"):
        (tmp_path / name).write_text("mine")
    (tmp_path / ".folder.0123456789ab.part").mkdir()
    (tmp_path / ".link.0123456789ab.part").symlink_to(tmp_path / "a.part")
    os.mkfifo(tmp_path / ".pipe.0123456789ab.part")
    before = sorted(os.listdir(tmp_path))
    assert remove_leftovers(tmp_path) == []
    assert sorted(os.listdir(tmp_path)) == before
    assert remove_leftovers(tmp_path / "nowhere") == []
    assert remove_leftovers(tmp_path / "a.part") == []


def test_writers_and_clearers_at_the_same_time_lose_nothing(tmp_path: Path) -> None:
    stop = threading.Event()
    failures: list[BaseException] = []

    def clear() -> None:
        while not stop.is_set():
            remove_leftovers(tmp_path)

    def write(name: str) -> None:
        try:
            for number in range(100):
                write_atomic(tmp_path / name, f"{name} {number}")
                assert (tmp_path / name).read_text() == f"{name} {number}"
        except BaseException as error:
            failures.append(error)

    clearer = threading.Thread(target=clear)
    writers = [threading.Thread(target=write, args=(name,)) for name in ("a", "b")]
    for thread in (clearer, *writers):
        thread.start()
    for thread in writers:
        thread.join()
    stop.set()
    clearer.join()
    assert not failures
    assert sorted(os.listdir(tmp_path)) == ["a", "b"]


def test_the_next_run_clears_its_folder(small_run: SmallRun, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    for name in ("config.yaml", "seed-0/test.json", "seed-0/checkpoints/last.safetensors"):
        killed_writer(folder / name)
    (folder / "mine.part").write_text("mine")
    assert Run(small_run.config, folder, show_progress=False).train() is not None
    assert [path.name for path in folder.rglob("*.part")] == ["mine.part"]
    assert (folder / "log.txt").exists()
