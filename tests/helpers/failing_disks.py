"""Disks that are full or must not be written to: a small tmpfs where one can be mounted, else what comes nearest."""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

__all__ = ["PAGE", "LimitedDisk", "TmpfsDisk", "mounted"]

PAGE = 4096


@contextlib.contextmanager
def mounted(folder: Path, options: str) -> Iterator[bool]:
    """A tmpfs at ``folder`` inside the block, if this process may mount one; whether it may is what is given."""
    folder.mkdir(parents=True, exist_ok=True)
    mount = shutil.which("mount")
    command = [mount or "mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
    done = mount is not None and subprocess.run(command, capture_output=True, check=False).returncode == 0
    try:
        yield done
    finally:
        if done:
            subprocess.run(["umount", "-l", str(folder)], check=True)


class TmpfsDisk:
    """A disk of half a megabyte."""

    kind = "tmpfs"

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @contextlib.contextmanager
    def with_room_for(self, size: int) -> Iterator[None]:
        """Inside the block there is room for about ``size`` bytes more, in all files together."""
        ballast = self.folder / "ballast"
        try:
            with ballast.open("wb", buffering=0) as file, contextlib.suppress(OSError):
                while file.write(bytes(PAGE)):
                    pass
            os.truncate(ballast, max(0, ballast.stat().st_size - size))
            yield
        finally:
            ballast.unlink()


class LimitedDisk:
    """A folder in which no file may grow beyond a size: RLIMIT_FSIZE, which needs no rights."""

    kind = "file size limit"

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @contextlib.contextmanager
    def with_room_for(self, size: int) -> Iterator[None]:
        """Inside the block no file may be larger than ``size`` bytes."""
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
