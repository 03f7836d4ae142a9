"""Writing files whole or not at all: a reader never sees half a file, and a failure leaves the old one in place."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

__all__ = ["atomic_writer", "write_whole"]


@contextlib.contextmanager
def atomic_writer(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Open a temporary file beside ``path`` and rename it to ``path`` when the block ends without an exception.

    The bytes are on disk (fsync) before the rename. On any exception, an interrupt included, the temporary file
    is removed and whatever stood at ``path`` stays as it was. The file is open for reading too, so that a writer can
    verify its work. The folder must exist. A symbolic link is followed.
    """
    target = Path(os.path.realpath(path))
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(6)}.part")
    # os.open and not tempfile: the finished file then has the permissions that the user's umask asks for.
    descriptor = os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_RDWR | getattr(os, "O_BINARY", 0), 0o666)
    try:
        with os.fdopen(descriptor, "w+b") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    _sync_folder(target.parent)


def write_whole(path: str | os.PathLike[str], content: bytes | str) -> None:
    """Write ``content`` to ``path`` by :func:`atomic_writer`; text is encoded as UTF-8, line ends as they are."""
    with atomic_writer(path) as file:
        file.write(content.encode("utf-8") if isinstance(content, str) else content)


def _sync_folder(folder: Path) -> None:
    """Make the rename itself durable where the platform can (it cannot open a folder on Windows)."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
