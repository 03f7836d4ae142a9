"""SIGINT and SIGTERM as a request to stop at the next good moment."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType

__all__ = ["StopRequest"]

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class StopRequest:
    """Inside a ``with`` block, ``requested`` turns true on SIGINT or SIGTERM instead of ending the program.

    A second signal acts as it always does, so that nobody is locked in. Outside the main thread, where Python delivers
    no signals, the block changes nothing.
    """

    def __init__(self) -> None:
        self.requested = False
        self._before: dict[signal.Signals, signal._HANDLER] = {}

    def __enter__(self) -> StopRequest:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._handle) for number in _SIGNALS}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._restore()

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self.requested = True
        self._restore()

    def _restore(self) -> None:
        while self._before:
            number, handler = self._before.popitem()
            signal.signal(number, handler)
