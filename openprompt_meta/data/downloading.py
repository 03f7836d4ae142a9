"""Fetching the authors' data files: limited in size and time, verified, put in place whole or not at all."""

from __future__ import annotations

import hashlib
import http.client
import logging
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import BinaryIO

from openprompt_meta.data.facts import SourceFile, facts_of
from openprompt_meta.errors import DataError
from openprompt_meta.files import atomic_writer, remove_leftovers
from openprompt_meta.progress import progress_bar

logger = logging.getLogger(__name__)

AUTHORS_FILES = (
    "https://raw.githubusercontent.com/ws-jiang/MetaPrompter_public/dea17d573a5eb4f31b3366ba1fe88b1beb865c50/data"
)
# Room for the files whose size is not known; the largest is some 30 MB.
SIZE_LIMIT = 200 * 2**20
_CHUNK = 1 << 16


def download(
    name: str,
    folder: str | Path,
    *,
    base_url: str = AUTHORS_FILES,
    timeout: float = 30.0,
    time_limit: float = 1800.0,
    size_limit: int = SIZE_LIMIT,
    progress: bool = False,
) -> Path:
    """Fetch the file of one of the six sets into ``folder`` and return its path.

    A file that is there already is verified and kept. ``timeout`` is for each wait on the network, ``time_limit`` for
    the whole (both in seconds), ``size_limit`` in bytes. Nothing is left behind unless the checksum is right.

    Raises:
        DataError: if the file cannot be fetched, is too large, too slow, cut off or altered, or if another file of
            that name is in the way.
    """
    file = facts_of(name).file
    target = Path(folder) / file.name
    if target.exists():
        try:
            with target.open("rb") as present:
                verify(present, file)
        except DataError as error:
            raise DataError(
                f"{target} exists but is not the authors' file: {error} Remove it or choose another folder."
            ) from error
        logger.info("%s is already there", target)
        return target
    url = f"{base_url.rstrip('/')}/{urllib.parse.quote(file.name)}"
    if urllib.parse.urlsplit(url).scheme not in {"https", "http"}:
        raise DataError(f"{url}: only http and https addresses are fetched.")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        remove_leftovers(target.parent)
        with atomic_writer(target, lambda written: verify(written, file)) as temporary:
            limit = size_limit if file.bytes is None else min(file.bytes, size_limit)
            _fetch(url, temporary, limit=limit, timeout=timeout, time_limit=time_limit, progress=progress)
    except urllib.error.HTTPError as error:
        raise DataError(f"{url}: the server answered {error.code} {error.reason}.") from error
    except (OSError, http.client.HTTPException, ValueError) as error:
        if isinstance(error, DataError):
            raise DataError(f"{url}: {error} Nothing was kept.") from error
        reason = getattr(error, "reason", error)
        raise DataError(
            f"{url} could not be fetched: {reason or type(error).__name__}. Nothing was kept; try again."
        ) from error
    return target


def verify(file: BinaryIO, expected: SourceFile) -> None:
    """:class:`DataError` unless size and checksum are the known ones (SHA-256, else git's blob id)."""
    size = file.seek(0, 2)
    if expected.bytes is not None and size != expected.bytes:
        raise DataError(f"{size} bytes instead of {expected.bytes}.")
    file.seek(0)
    if expected.sha256 is not None:
        digest, wanted, kind = _hashed(file, hashlib.sha256()), expected.sha256, "SHA-256"
    else:
        digest, wanted, kind = git_blob_id(file, size), expected.git_blob, "git blob id"
    if digest != wanted:
        raise DataError(f"the content is not the expected one: {kind} {digest} instead of {wanted}.")


def git_blob_id(file: BinaryIO, size: int) -> str:
    """The id that git gives to the rest of ``file``, ``size`` bytes."""
    # git's own choice of hash; it stands in where no SHA-256 is known.
    return _hashed(file, hashlib.sha1(b"blob %d\0" % size, usedforsecurity=False))


def _hashed(file: BinaryIO, digest: hashlib._Hash) -> str:
    while chunk := file.read(_CHUNK):
        digest.update(chunk)
    return digest.hexdigest()


def _fetch(url: str, sink: BinaryIO, *, limit: int, timeout: float, time_limit: float, progress: bool) -> None:
    deadline = time.monotonic() + time_limit
    request = urllib.request.Request(url, headers={"User-Agent": "openprompt_meta"})  # noqa: S310 -- scheme checked above
    with urllib.request.urlopen(request, timeout=timeout) as answer:  # noqa: S310
        announced = answer.headers.get("Content-Length")
        if announced is not None and int(announced) > limit:
            raise DataError(f"the server announces {announced} bytes, at most {limit} are expected.")
        received = 0
        total = None if announced is None else int(announced)
        with progress_bar(total=total, unit="B", unit_scale=True, title=Path(url).name, show=progress) as bar:
            # read1 gives what has arrived, so that a trickle cannot hold the deadline up.
            while chunk := answer.read1(_CHUNK):
                received += len(chunk)
                if received > limit:
                    raise DataError(f"more than the expected {limit} bytes.")
                if time.monotonic() > deadline:
                    raise DataError(f"not finished after {time_limit:.0f} seconds.")
                sink.write(chunk)
                bar.update(len(chunk))
