"""Running the service: a socket, uvicorn, memory, and an orderly end on SIGINT or SIGTERM."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import socket
import threading
from collections.abc import Iterator

import torch
import uvicorn
from starlette.types import ASGIApp

from openprompt_meta.errors import ServiceError

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


class Server(uvicorn.Server):
    """uvicorn with the settings of the service.

    ``run(sockets=[…])`` returns after SIGINT or SIGTERM, when the requests under way are answered or 20 seconds have
    passed; a second SIGINT ends it at once.
    """

    def __init__(self, app: ASGIApp) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                # A header that says who is asking could be anybody's; the rate limit goes by the connection.
                proxy_headers=False,
                # Addresses may carry the token, and texts are the users' own.
                access_log=False,
                log_level="warning",
                server_header=False,
                http="h11",
                ws="none",
                lifespan="on",
                timeout_graceful_shutdown=_SECONDS_TO_FINISH,
            )
        )

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
