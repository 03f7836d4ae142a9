"""Files written whole or not at all, folders too; files read within limits; untrusted JSON; cells without formulas."""

from __future__ import annotations

import contextlib
import csv
import ctypes
import errno
import json
import math
import os
import re
import secrets
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NoReturn, TextIO

from filelock import lock_descriptor

from openprompt_meta.errors import DataError, OpenPromptMetaError

# -- files ------------------------------------------------------------------------------------------------------------
# Writing files whole or not at all: a reader never sees half a file, and a failure leaves the old one in place.
#
# A file is written under a name of its own beside the old one, brought to the disk, read back, and only then renamed.
# The writer holds a lock on it meanwhile, which tells what is being written from what a killed process left behind.

# A lock of Windows keeps others from reading the file, and the writer from renaming it: what a killed process leaves
# there stays.
_HAS_LOCKS = os.name == "posix"
_LEFTOVER = re.compile(r"\..+\.[0-9a-f]{12}\.part")
_CHUNK = 1 << 20

_Check = Callable[[BinaryIO], None]


def default_cache_folder() -> Path:
    """``$OPENPROMPT_META_CACHE``, else ``openprompt_meta`` in the user's cache folder."""
    own = os.environ.get("OPENPROMPT_META_CACHE")
    if own:
        return Path(own)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "openprompt_meta"


@contextlib.contextmanager
def atomic_writer(path: str | os.PathLike[str], check: _Check | None = None) -> Iterator[BinaryIO]:
    """Open a temporary file beside ``path`` and rename it to ``path`` when the block ends without an exception.

    The bytes are on disk (fsync) before the rename. On any exception, an interrupt included, the temporary file
    is removed and whatever stood at ``path`` stays as it was. The file is open for reading too, so that a writer can
    verify its work. The folder must exist. A symbolic link is followed.

    Args:
        path: the file.
        check: is given the file, at its start and as the disk has it, before the rename; what it raises stops that.
    """
    target = Path(os.path.realpath(path))
    descriptor, temporary = _new_file(target)
    # Lives as long as the temporary file, longer than the block's own descriptor.
    lock = os.dup(descriptor)
    try:
        with os.fdopen(descriptor, "w+b") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        if check is not None:
            with temporary.open("rb") as written:
                _forget_cached(written.fileno())
                check(written)
        if not _HAS_LOCKS:
            os.close(lock)
            lock = -1
        os.replace(temporary, target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    finally:
        if lock >= 0:
            os.close(lock)
    _sync_folder(target.parent)


def write_atomic(path: str | os.PathLike[str], content: bytes | str) -> None:
    """Write ``content`` to ``path`` by :func:`atomic_writer`; text is encoded as UTF-8, line ends as they are.

    What was written is read back from the disk before it takes the old file's place.

    Raises:
        OSError: the disk is full, the folder unwritable, or the disk gave back something else. The old file stays.
    """
    write_together([(path, content)])


def write_together(files: Sequence[tuple[str | os.PathLike[str], bytes | str]]) -> None:
    """As :func:`write_atomic`, for files that belong together: all are on disk before the first takes its place.

    They are put in place in the order given. A kill between two of them leaves the later ones as they were, so the
    last should be the one that says what the others are.
    """
    with contextlib.ExitStack() as stack:
        # The last to be entered is the first to be left.
        for path, content in reversed(files):
            expected = content.encode("utf-8") if isinstance(content, str) else content
            file = stack.enter_context(atomic_writer(path, _reads_as(expected, path)))
            file.write(expected)
            file.flush()
            os.fsync(file.fileno())


def read_limited(path: str | os.PathLike[str], limit: int | None = None) -> bytes:
    """The content of a regular file, or its first ``limit`` bytes.

    Raises:
        OSError: it cannot be read, or it is a pipe or a device, from which reading may never end.
    """
    # Not blocking: opening a pipe that nobody writes to would wait for ever.
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    try:
        mode = os.fstat(descriptor).st_mode
        if not stat.S_ISREG(mode):
            code, reason = (errno.EISDIR, "a folder") if stat.S_ISDIR(mode) else (errno.EINVAL, "a pipe or a device")
            raise OSError(code, f"it is {reason}, not a file", os.fspath(path))
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            return file.read() if limit is None else file.read(limit)
    finally:
        os.close(descriptor)


def read_text(path: Path, limit: int, error: type[OpenPromptMetaError]) -> str:
    """The text of a file of settings, of at most ``limit`` bytes, in UTF-8.

    Raises:
        FileNotFoundError: there is no such file.
        OpenPromptMetaError: it cannot be read as that; the error given, with the file and, where it can, the line.
    """
    try:
        content = read_limited(path, limit + 1)
    except FileNotFoundError:
        raise
    except IsADirectoryError:
        raise error(f"{path} is a folder, expected a file.") from None
    except (OSError, ValueError) as reason:  # ValueError: a zero byte in the name
        raise error(f"{path} cannot be read: {reason}.") from None
    if len(content) > limit:
        raise error(f"{path} is larger than {limit:,} bytes, too large for what it should hold.")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as reason:
        line = content.count(b"\n", 0, reason.start) + 1
        raise error(f"{path}, line {line}: the file is not UTF-8 ({reason.reason}). Save it as UTF-8.") from None


def remove_leftovers(folder: str | os.PathLike[str]) -> list[Path]:
    """Remove what writers that were killed have left in ``folder``, and say what.

    Only names that :func:`atomic_writer` gives, and only files that nobody holds: a writer at work is not disturbed.
    A folder that cannot be read or changed is left as it is.
    """
    removed: list[Path] = []
    if not _HAS_LOCKS:
        return removed
    with contextlib.suppress(OSError):
        for entry in list(os.scandir(folder)):
            if _LEFTOVER.fullmatch(entry.name) and entry.is_file(follow_symlinks=False):
                path = Path(entry.path)
                with contextlib.suppress(OSError):
                    if _remove_unless_held(path):
                        removed.append(path)
    return removed


def _reads_as(expected: bytes, path: str | os.PathLike[str]) -> _Check:
    def check(file: BinaryIO) -> None:
        position = 0
        while chunk := file.read(_CHUNK):
            if chunk != expected[position : position + len(chunk)]:
                break
            position += len(chunk)
        if chunk or position != len(expected):
            reason = f"the disk gives back other bytes than were written, from about byte {position} on"
            raise OSError(errno.EIO, reason, os.fspath(path))

    return check


def _temporary_name(target: Path) -> Path:
    return target.with_name(f".{target.name}.{secrets.token_hex(6)}.part")


def _new_file(target: Path) -> tuple[int, Path]:
    """A new file beside ``target``, open and locked."""
    while True:
        temporary = _temporary_name(target)
        # os.open and not tempfile: the finished file then has the permissions that the user's umask asks for.
        descriptor = os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_RDWR | getattr(os, "O_BINARY", 0), 0o666)
        if not _HAS_LOCKS:
            return descriptor, temporary
        with contextlib.suppress(OSError):  # a file system without locks: then nobody can take it for a leftover
            lock_descriptor(descriptor)
        # Another process may have cleared it away between the two calls.
        if os.fstat(descriptor).st_nlink > 0:
            return descriptor, temporary
        os.close(descriptor)


def _remove_unless_held(path: Path) -> bool:
    """Remove a file or a folder that no writer has locked."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        free = lock_descriptor(descriptor, blocking=False)
        if free and path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        elif free:
            path.unlink()
        return free
    finally:
        os.close(descriptor)


def _forget_cached(descriptor: int) -> None:
    """Have the next read come from the disk and not from memory, where the platform can be asked for that."""
    with contextlib.suppress(OSError, AttributeError):
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)


def _sync_folder(folder: Path) -> None:
    """Bring a folder's list of names to the disk where the platform can (Windows cannot open a folder)."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


# -- Writing a folder whole or not at all: it is filled under another name and then takes the place of the old one ----


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
        _sync_folder(temporary)
        _put_in_place(temporary, final)
        _sync_folder(final.parent)
    finally:
        # The folder that was given and not used, or the one that was replaced.
        shutil.rmtree(temporary, ignore_errors=True)
        if lock is not None:
            os.close(lock)


def leftovers_beside(target: str | os.PathLike[str]) -> list[Path]:
    """What writers of ``target`` that were killed have left beside it."""
    final = Path(os.path.realpath(target))
    name = re.compile(rf"\.{re.escape(final.name)}\.[0-9a-f]{{12}}\.part")
    with contextlib.suppress(OSError):
        return sorted(path for path in final.parent.iterdir() if name.fullmatch(path.name) and path.is_dir())
    return []


def _new_folder(final: Path) -> tuple[Path, int | None]:
    """A new folder beside ``final``, and the lock that tells it from one that was left behind."""
    while True:
        temporary = _temporary_name(final)
        temporary.mkdir()
        if not _HAS_LOCKS:
            return temporary, None
        with contextlib.suppress(FileNotFoundError):  # cleared away by another process before it was locked
            lock = os.open(temporary, os.O_RDONLY)
            with contextlib.suppress(OSError):  # a file system without locks: then nobody can take it for a leftover
                lock_descriptor(lock, blocking=False)
            if temporary.is_dir():
                return temporary, lock
            os.close(lock)


def _clear_leftovers(final: Path) -> None:
    if not _HAS_LOCKS or not final.is_dir():  # without a folder in place, the leftover may be all there is
        return
    for path in leftovers_beside(final):
        with contextlib.suppress(OSError):
            _remove_unless_held(path)


def _put_in_place(temporary: Path, final: Path) -> None:
    if not final.exists():
        os.rename(temporary, final)
        return
    try:
        _exchange(temporary, final)
    except OSError:
        _replace_in_two_steps(temporary, final)


def _replace_in_two_steps(temporary: Path, final: Path) -> None:
    old = _temporary_name(final)
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


# -- untrusted JSON: what the standard allows, every key once, and a reason in words for everything else --------------

_MAX_BYTES = 50_000_000  # the longest file of ours has ten thousand


def read_json(path: Path) -> Any:
    """The content of a file of settings.

    Raises:
        FileNotFoundError: there is no such file.
        DataError: it cannot be read, or is no JSON; it names the file and, where it can, the line.
    """
    text = read_text(path, _MAX_BYTES, DataError)
    return parse_json(text.removeprefix("\ufeff"), str(path))


def parse_json(text: str, where: str, line: int = 1) -> Any:
    """The value that ``text`` is. :class:`DataError` names ``where`` and the line, the first of which is ``line``."""
    try:
        return json.loads(text, object_pairs_hook=_object, parse_float=_finite, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        place = f"line {line + error.lineno - 1}, column {error.colno}"
        raise DataError(f"{where}, {place}: not JSON: {error.msg}.") from None
    except RecursionError:
        raise DataError(f"{where}, line {line}: JSON nested too deeply.") from None
    except ValueError as error:  # of the functions below, or a number of more digits than Python converts
        raise DataError(f"{where}, line {line}: {error}") from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the key {twice[:80]!r} is given twice in one object. Keep one of them.")
    return found


def _finite(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise ValueError(f"{digits:.40} is a larger number than can be computed with.")
    return number


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON. Leave the value out, or put it into quotes.")


# -- cells of tables: nothing that a spreadsheet would run ------------------------------------------------------------

# What begins a formula, as the programs read it: with the full-width forms, and behind white space that they drop.
_FORMULA = re.compile(r"\s*[=+\-@\uff1d\uff0b\uff0d\uff20]|[\t\r]")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)


def write_cells(stream: TextIO, cells: Iterable[str], delimiter: str = ",", raw: bool = False) -> None:
    """Write a row of a table; ``raw`` leaves formulas as they are."""
    written = [cell if raw else without_formula(cell) for cell in cells]
    # The writer leaves a carriage return without quotes, which readers take for the end of a line.
    options: dict[str, Any] = {"quoting": csv.QUOTE_ALL} if any("\r" in cell for cell in written) else {}
    csv.writer(stream, delimiter=delimiter, lineterminator="\n", **options).writerow(written)


def without_formula(cell: str) -> str:
    """The cell, with ``'`` before it if a spreadsheet would run it as a formula; numbers are none."""
    return f"'{cell}" if _FORMULA.match(cell) and not _NUMBER.fullmatch(cell) else cell


def plain_cell(cell: str) -> str:
    """What :func:`without_formula` was given."""
    return cell[1:] if cell.startswith("'") and without_formula(cell[1:]) == cell else cell
