"""Writing a folder whole or not at all: it is filled under another name and then takes the place of the old one."""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows has no such locks: what a killed process leaves there stays
    fcntl = None  # type: ignore[assignment]

__all__ = ["folder_writer", "leftovers_beside"]

_SUFFIX = ".part"
_HAS_LOCKS: bool = fcntl is not None


@contextlib.contextmanager
def folder_writer(target: str | os.PathLike[str]) -> Iterator[Path]:
    """Give an empty folder beside ``target`` to be filled, which becomes ``target`` if the block ends well.

    A folder that stands at ``target`` is replaced with all that is in it: the caller has made sure that it may be. On
    any exception, an interrupt included, it stays as it was. Its parent is made if need be. A link is followed.

    On Linux the two folders change places in one step. Elsewhere, and on file systems that cannot do that, there is a
    moment between two renames at which neither is there; a process killed just then leaves the old folder beside,
    under the name that :func:`leftovers_beside` gives.
    """
    final = Path(os.path.realpath(target))
    final.parent.mkdir(parents=True, exist_ok=True)
    _clear_leftovers(final)
    temporary, lock = _new_folder(final)
    try:
        yield temporary
        _sync(temporary)
        _put_in_place(temporary, final)
        _sync(final.parent)
    finally:
        # The folder that was given and not used, or the one that was replaced.
        shutil.rmtree(temporary, ignore_errors=True)
        if lock is not None:
            os.close(lock)


def leftovers_beside(target: str | os.PathLike[str]) -> list[Path]:
    """What writers of ``target`` that were killed have left beside it."""
    final = Path(os.path.realpath(target))
    name = re.compile(rf"\.{re.escape(final.name)}\.[0-9a-f]{{12}}{re.escape(_SUFFIX)}")
    with contextlib.suppress(OSError):
        return sorted(path for path in final.parent.iterdir() if name.fullmatch(path.name) and path.is_dir())
    return []


def _new_folder(final: Path) -> tuple[Path, int | None]:
    """A new folder beside ``final``, and the lock that tells it from one that was left behind."""
    while True:
        temporary = final.with_name(f".{final.name}.{secrets.token_hex(6)}{_SUFFIX}")
        temporary.mkdir()
        if not _HAS_LOCKS:
            return temporary, None
        with contextlib.suppress(FileNotFoundError):  # cleared away by another process before it was locked
            lock = os.open(temporary, os.O_RDONLY)
            with contextlib.suppress(OSError):  # a file system without locks: then nobody can take it for a leftover
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if temporary.is_dir():
                return temporary, lock
            os.close(lock)


def _clear_leftovers(final: Path) -> None:
    if not _HAS_LOCKS or not final.is_dir():  # without a folder in place, the leftover may be all there is
        return
    for path in leftovers_beside(final):
        with contextlib.suppress(OSError):
            lock = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(path, ignore_errors=True)
            finally:
                os.close(lock)


def _put_in_place(temporary: Path, final: Path) -> None:
    if not final.exists():
        os.rename(temporary, final)
        return
    try:
        _exchange(temporary, final)
    except OSError:
        _replace_in_two_steps(temporary, final)


def _replace_in_two_steps(temporary: Path, final: Path) -> None:
    old = final.with_name(f".{final.name}.{secrets.token_hex(6)}{_SUFFIX}")
    os.rename(final, old)
    try:
        os.rename(temporary, final)
    except BaseException:
        os.rename(old, final)
        raise
    shutil.rmtree(old, ignore_errors=True)


def _exchange(one: Path, other: Path) -> None:
    """Let two folders change names in one step. ``OSError`` if the system or the file system cannot."""
    here, exchange = -100, 2  # AT_FDCWD and RENAME_EXCHANGE of Linux
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None) if os.name == "posix" else None
    if rename is None:
        raise OSError("this system cannot exchange two folders")
    if rename(here, os.fsencode(one), here, os.fsencode(other), exchange) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), os.fspath(other))


def _sync(folder: Path) -> None:
    """Bring a folder's list of names to the disk where the platform can."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
