"""A run's log: to its folder in any case, and to the screen between progress bars if asked for."""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Iterator
from pathlib import Path

from tqdm.auto import tqdm

__all__ = ["log_file", "log_to_screen"]

_OURS = logging.getLogger("openprompt_meta")


@contextlib.contextmanager
def log_file(path: Path) -> Iterator[None]:
    """Append what this package logs to a file inside the block, as far as the disk has room for it."""
    handler = _PatientFileHandler(path, encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    with _handled(handler, logging.INFO):
        yield


@contextlib.contextmanager
def log_to_screen(level: int) -> Iterator[None]:
    """Show what this package logs on stderr inside the block, above any progress bar."""
    handler = _AboveBars(level)
    handler.setFormatter(logging.Formatter("%(message)s"))
    with _handled(handler, level):
        yield


@contextlib.contextmanager
def _handled(handler: logging.Handler, level: int) -> Iterator[None]:
    before = _OURS.level
    _OURS.addHandler(handler)
    _OURS.setLevel(min(level, before or level))
    try:
        yield
    finally:
        _OURS.setLevel(before)
        _OURS.removeHandler(handler)
        handler.close()


class _AboveBars(logging.Handler):
    """tqdm's own redirection forgets a handler's level, and with it what the user does not want to see."""

    def emit(self, record: logging.LogRecord) -> None:
        with contextlib.suppress(OSError, ValueError):  # a screen that was closed
            tqdm.write(self.format(record), sys.stderr)


class _PatientFileHandler(logging.FileHandler):
    """A log that cannot be written is said once, on the screen, and is no reason to end a run."""

    failed = False

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - logging's name
        if not self.failed:
            self.failed = True
            error = sys.exc_info()[1]
            # Not to the log itself, which would come back here.
            tqdm.write(f"{self.baseFilename} cannot be written: {error}. The run goes on without it.", sys.stderr)

    def close(self) -> None:
        with contextlib.suppress(OSError):  # what could not be written cannot be flushed either
            super().close()
