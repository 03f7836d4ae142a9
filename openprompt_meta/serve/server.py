"""Running the service: a socket, connections, uvicorn, memory, and an orderly end on SIGINT or SIGTERM."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import json
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from functools import partial
from typing import Any, NoReturn, cast

import h11
import torch
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from openprompt_meta.errors import ServiceError
from openprompt_meta.serve.guard import RateLimit
from openprompt_meta.serve.requests import Limits

if sys.platform != "win32":
    import resource

# -- Giving memory back to the system after a fit, which needs a hundred times as much as a prediction ----------------

_malloc_trim = None
# There on Linux with glibc, which keeps what was freed for the next time; other systems give it back by themselves.
with contextlib.suppress(OSError, AttributeError, TypeError):
    _malloc_trim = ctypes.CDLL(None).malloc_trim


def give_back_memory() -> None:
    """Have the allocator return what is free, where it would keep it."""
    if _malloc_trim is not None:
        _malloc_trim(0)


# -- Running the service: a socket, uvicorn, and an orderly end on SIGINT or SIGTERM ----------------------------------

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_SECONDS_TO_FINISH = 20
# Loggers that whoever connects can have written to.
_LOGS = ("asyncio", "uvicorn.error", "openprompt_meta.serve.app", "openprompt_meta.serve.guard")


def open_socket(host: str, port: int) -> socket.socket:
    """A socket bound to ``host`` and ``port``; port 0 takes a free one.

    Raises:
        ServiceError: the address cannot be had, with the reason.
    """
    try:
        (family, kind, protocol, _, address), *_ = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        listening = socket.socket(family, kind, protocol)
    except (OSError, OverflowError, UnicodeError) as error:
        raise ServiceError(f"There is no address {host!r} with port {port} on this machine: {error}.") from None
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
    except (OSError, OverflowError) as error:
        listening.close()
        raise ServiceError(
            f"The service cannot listen on {host!r}, port {port}: {error}. Choose another with --port; 0 takes one "
            "that is free."
        ) from None
    return listening


def address_of(listening: socket.socket) -> str:
    """``http://host:port`` of a bound socket."""
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def share_cores(threads: int) -> None:
    """Give each of so many threads its share of the cores, unless OMP_NUM_THREADS decides it."""
    if "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(max(1, (os.cpu_count() or 1) // max(1, threads)))


class LogLimit(logging.Filter):
    """Lets a few records of a kind a minute through, so that nobody fills a disk by asking nonsense.

    Args:
        per_minute: records of one kind, as many at once after a pause of a minute.
    """

    def __init__(self, per_minute: int = 10) -> None:
        super().__init__()
        self._rate = RateLimit(per_minute, clients=100)

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the record is written."""
        return self._rate.wait(f"{record.name} {record.levelno} {record.msg!s:.60}") == 0


class _Connection(H11Protocol):
    """A connection that is closed if the head of a request does not come, or if others need its place.

    Args:
        waiting: those that wait for a request, the longest first; shared by all of a server.
        most: open at a time.
        seconds: from the end of a request, or the opening, to the end of the next head.
        given: uvicorn's own.
    """

    def __init__(self, waiting: dict[_Connection, None], most: int, seconds: float, **given: Any) -> None:
        super().__init__(**given)
        self._waiting = waiting
        self._most = most
        self._seconds = seconds
        self._overdue: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self._most:
            next(iter(self._waiting), self).transport.abort()
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self._waits(False)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        self._waits(False)
        super().on_response_complete()
        self._watch()

    def send_400_response(self, msg: str) -> None:
        """As JSON, as every other refusal is."""
        body = json.dumps({"error": "The request is not HTTP that can be read."}).encode()
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
            (b"connection", b"close"),
        ]
        with contextlib.suppress(h11.LocalProtocolError):  # an answer is under way already
            for event in (
                h11.Response(status_code=400, headers=headers, reason=b"Bad Request"),
                h11.Data(data=body),
                h11.EndOfMessage(),
            ):
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    def _watch(self) -> None:
        """Start the clock if it is for the other side to go on with a request, its end after the answer included."""
        answered = self.cycle is not None and self.cycle.response_complete
        their_turn = self.conn.their_state is h11.IDLE or (answered and self.conn.their_state is h11.SEND_BODY)
        if their_turn != (self._overdue is not None) and not self.transport.is_closing():
            self._waits(their_turn)

    def _waits(self, waits: bool) -> None:
        if self._overdue is not None:
            self._overdue.cancel()
        self._overdue = self.loop.call_later(self._seconds, self.transport.abort) if waits else None
        self._waiting.pop(self, None)
        if waits:
            self._waiting[self] = None


def _connections(limits: Limits) -> int:
    """How many connections to take: as many as the limits say, or as descriptors leave beside files of our own."""
    if sys.platform == "win32":
        return limits.connections
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return limits.connections if most == resource.RLIM_INFINITY else max(1, min(limits.connections, most - 64))


class Server(uvicorn.Server):
    """uvicorn with the settings of the service.

    ``run(sockets=[…])`` returns after SIGINT or SIGTERM, when the requests under way are answered or 20 seconds have
    passed; a second SIGINT ends it at once.
    """

    def __init__(self, app: ASGIApp, limits: Limits | None = None) -> None:
        limits = limits or Limits()
        protocol = partial(_Connection, {}, _connections(limits), limits.header_seconds)
        super().__init__(
            uvicorn.Config(
                app,
                # A header that says who is asking could be anybody's; the rate limit goes by the connection.
                proxy_headers=False,
                # Addresses may carry the token, and texts are the users' own.
                access_log=False,
                log_level="warning",
                server_header=False,
                http=cast("Any", protocol),
                ws="none",
                lifespan="on",
                backlog=128,
                timeout_graceful_shutdown=_SECONDS_TO_FINISH,
            )
        )

    def run(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve until told to stop."""
        limit = LogLimit()
        for name in _LOGS:
            logging.getLogger(name).addFilter(limit)
        try:
            super().run(sockets)
        finally:
            for name in _LOGS:
                logging.getLogger(name).removeFilter(limit)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Stop on a signal, and do not raise it again afterwards: to be asked to stop is no failure."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self.handle_exit) for number in _SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def end_process(code: int) -> NoReturn:
    """End the process without waiting for its threads, of which one may be in the middle of a fit.

    Nothing is lost by it: whatever is written is written whole or not at all.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
