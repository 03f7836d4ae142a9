"""Threads for what takes long, with a bounded queue, so that the event loop always has an ear free."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from openprompt_meta.serve.answers import Refusal

__all__ = ["Workers"]

Result = TypeVar("Result")


class Workers:
    """A number of threads and a number of places to wait for them. Used from one event loop.

    Args:
        kind: what the threads do, in the plural, for their names and for messages.
        at_once: threads.
        waiting: jobs that may wait; one more is refused.
    """

    def __init__(self, kind: str, at_once: int, waiting: int) -> None:
        self.kind = kind
        self.under_way = 0
        self._places = at_once + waiting
        self._threads = ThreadPoolExecutor(at_once, thread_name_prefix=kind)

    def check_room(self) -> None:
        """Refuse with status 503 if too many wait already."""
        if self.under_way >= self._places:
            raise Refusal(
                503, f"{self.under_way} {self.kind} are under way, as many as may be: try again soon.", retry_after=2
            )

    async def run(self, job: Callable[[], Result]) -> Result:
        """What ``job`` returns, from one of the threads, if there is room."""
        self.check_room()
        self.under_way += 1
        try:
            future = self._threads.submit(job)
        except BaseException:
            self.under_way -= 1
            raise
        loop = asyncio.get_running_loop()
        # Counted until the thread is done with it, even when nobody waits for the answer any more.
        future.add_done_callback(lambda _: _call_soon(loop, self._leave))
        return await asyncio.wrap_future(future)

    def close(self) -> None:
        """Finish what is being worked on and drop what waits."""
        self._threads.shutdown(wait=True, cancel_futures=True)

    def _leave(self) -> None:
        self.under_way -= 1


def _call_soon(loop: asyncio.AbstractEventLoop, callback: Callable[[], None]) -> None:
    # At the end the last threads may outlive the loop, and then nobody counts any more.
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(callback)
