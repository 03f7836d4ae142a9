"""What the tests of faults share: processes to kill, a straight run to compare with, disks that fail."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from openprompt_meta.runs.run import Run
from tests.helpers.failing_disks import LimitedDisk, TmpfsDisk, mounted
from tests.helpers.victims import SmallRun, VictimServer


@pytest.fixture(scope="session")
def victims(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VictimServer]:
    """Starts runs as processes that can be killed."""
    with VictimServer(tmp_path_factory.mktemp("victims") / "errors.txt") as server:
        yield server


@pytest.fixture(scope="session")
def small_run(tiny_mlm_folder: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> SmallRun:
    """A run of a few iterations on a tiny model, and where its YAML is."""
    return SmallRun(tiny_mlm_folder("bert"), tmp_path_factory.mktemp("small-run"))


@pytest.fixture(params=["tmpfs", "limit"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[TmpfsDisk | LimitedDisk]:
    """A disk that can be filled: a tmpfs of half a megabyte where one may be mounted, and a limit on files' size."""
    if request.param == "limit":
        (tmp_path / "limited").mkdir()
        yield LimitedDisk(tmp_path / "limited")
        return
    with mounted(tmp_path / "tmpfs", "size=512k") as done:
        if not done:
            pytest.skip("no tmpfs can be mounted here; the limit on the size of files stands in for it")
        yield TmpfsDisk(tmp_path / "tmpfs")


@pytest.fixture(scope="session")
def straight(small_run: SmallRun, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the small run, done without any fault."""
    folder = tmp_path_factory.mktemp("straight") / "run"
    assert Run(small_run.config, folder, show_progress=False).train() is not None
    return folder
