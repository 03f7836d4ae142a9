"""The process of a run: its log, threads, memory, and a request to stop."""

from __future__ import annotations

import ctypes
import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType, TracebackType

from openprompt_meta.errors import printable
from openprompt_meta.progress import write_above

# -- A run's log: to its folder in any case, and to the screen between progress bars if asked for ---------------------

_OURS = logging.getLogger("openprompt_meta")


@contextmanager
def log_file(path: Path) -> Iterator[None]:
    """Append what this package logs to a file inside the block, as far as the disk has room for it."""
    handler = _PatientFileHandler(path, encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    with _handled(handler, logging.INFO):
        yield


@contextmanager
def log_to_screen(level: int) -> Iterator[None]:
    """Show what this package logs on stderr inside the block, above any progress bar."""
    handler = _AboveBars(level)
    handler.setFormatter(logging.Formatter("%(message)s"))
    with _handled(handler, level):
        yield


@contextmanager
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
        with suppress(OSError, ValueError):  # a screen that was closed
            write_above(printable(self.format(record)))


class _PatientFileHandler(logging.FileHandler):
    """A log that cannot be written is said once, on the screen, and is no reason to end a run."""

    failed = False

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - logging's name
        if not self.failed:
            self.failed = True
            error = sys.exc_info()[1]
            # Not to the log itself, which would come back here.
            write_above(f"{self.baseFilename} cannot be written: {error}. The run goes on without it.")

    def close(self) -> None:
        with suppress(OSError):  # what could not be written cannot be flushed either
            super().close()


# -- SIGINT and SIGTERM as a request to stop at the next good moment --------------------------------------------------

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Overdue(KeyboardInterrupt):
    """A stop was asked for, and no good moment for it has come in time."""


class StopRequest:
    """Inside a ``with`` block, :meth:`asked` turns true on SIGINT or SIGTERM instead of ending the program.

    If nobody has asked when ``patience`` seconds have passed since, :class:`Overdue` is raised wherever the program
    is. A second signal acts as it always does, so that nobody is locked in. Outside the main thread, where Python
    delivers no signals, the block changes nothing.

    Attributes:
        signal: the one that came, if any.
        patience: seconds; may be changed at any time. ``None`` waits for as long as it takes.
    """

    def __init__(self, patience: float | None = None) -> None:
        self.signal: int | None = None
        self.patience = patience
        self._before: dict[signal.Signals, signal._HANDLER] = {}
        self._alarm_before: signal._HANDLER = None

    def asked(self) -> bool:
        """Whether to stop. Whoever asks does what has to be done then, and is not interrupted any more."""
        if self.signal is not None:
            self._set_alarm(None)
        return self.signal is not None

    @property
    def exit_code(self) -> int:
        """130 after SIGINT, 143 after SIGTERM, as shells have it; 0 if none came."""
        return 0 if self.signal is None else 128 + self.signal

    def __enter__(self) -> StopRequest:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._handle) for number in _SIGNALS}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._set_alarm(None)
        self._restore()

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self.signal = number
        self._restore()
        self._set_alarm(self.patience)

    def _set_alarm(self, seconds: float | None) -> None:
        if not hasattr(signal, "setitimer"):  # Windows
            return
        if seconds is not None:
            self._alarm_before = signal.signal(signal.SIGALRM, self._overdue)
            signal.setitimer(signal.ITIMER_REAL, seconds)
        elif self._alarm_before is not None:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, self._alarm_before)
            self._alarm_before = None

    def _overdue(self, number: int, frame: FrameType | None) -> None:
        raise Overdue

    def _restore(self) -> None:
        while self._before:
            number, handler = self._before.popitem()
            signal.signal(number, handler)


# -- How many threads to compute with: as many processors as this process may use, not as many as the machine has -----

_QUOTA = Path("/sys/fs/cgroup/cpu.max")  # what a container is allowed, e.g. "200000 100000" for two processors


def set_threads(threads: int | None) -> None:
    """Compute with that many threads; by default with no more than there are processors to use.

    More threads than processors wait for each other at every matrix product. ``OMP_NUM_THREADS`` has the last word.
    """
    import torch  # here: who only asks for a stop, or logs, need not wait for it

    if threads is not None:
        torch.set_num_threads(threads)
    elif "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(min(torch.get_num_threads(), usable_processors()))


def usable_processors(quota: Path = _QUOTA) -> int:
    """Processors that this process may use, by its affinity and its container's quota."""
    affinity = getattr(os, "sched_getaffinity", None)
    count = len(affinity(0)) if affinity is not None else os.cpu_count() or 1
    with suppress(OSError, ValueError):  # no container, or another system
        allowed, period = quota.read_text(encoding="ascii").split()
        if allowed != "max":
            count = min(count, max(1, int(allowed) // int(period)))
    return count


# -- Memory that was freed is kept for the next tensor, not given back to the system and asked for again --------------

# Of glibc's malloc.h.
_M_TRIM_THRESHOLD = -1
_M_MMAP_MAX = -4
_MOST = 2**31 - 1


def keep_freed_memory() -> bool:
    """Have this process reuse large blocks of memory; whether that could be arranged (it can with glibc).

    By default glibc maps every block above 32 MB anew, and the system fills its pages with zeros one by one. The
    gradient of a word embedding is such a block, in every step of a tuned language model: a quarter of the time went
    there. The price: memory is not given back between peaks, and holes between blocks may make the process larger.
    """
    if not sys.platform.startswith("linux"):
        return False
    try:
        set_option = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # another C library
        return False
    return bool(set_option(_M_MMAP_MAX, 0)) and bool(set_option(_M_TRIM_THRESHOLD, _MOST))
