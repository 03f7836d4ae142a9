"""A run's log: to its folder in any case, and to the screen between progress bars if asked for."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from pathlib import Path

from tqdm.contrib.logging import logging_redirect_tqdm

__all__ = ["log_file", "log_to_screen"]

_OURS = logging.getLogger("openprompt_meta")


@contextlib.contextmanager
def log_file(path: Path) -> Iterator[None]:
    """Append what this package logs to a file inside the block."""
    handler = logging.FileHandler(path, encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    with _handled(handler, logging.INFO):
        yield


@contextlib.contextmanager
def log_to_screen(level: int) -> Iterator[None]:
    """Show what this package logs on stderr inside the block, above any progress bar."""
    handler = logging.StreamHandler()
    handler.setLevel(level)
    handler.setFormatter(logging.Formatter("%(message)s"))
    with _handled(handler, level), logging_redirect_tqdm([_OURS]):
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
