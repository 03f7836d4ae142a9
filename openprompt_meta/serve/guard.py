"""What every request passes before the service looks at it: rate, access, and a body of bounded size."""

from __future__ import annotations

import asyncio
import logging
import re

from starlette.datastructures import Headers, MutableHeaders, QueryParams
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from openprompt_meta.serve.access import Access
from openprompt_meta.serve.answers import Refusal, refusal_response
from openprompt_meta.serve.limits import Limits
from openprompt_meta.serve.rate import RateLimit, client_of

__all__ = ["SECURITY_HEADERS", "Guard"]

_log = logging.getLogger(__name__)

SECURITY_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}


class Guard:
    """ASGI middleware around the service. It holds counts, so one belongs to one service.

    Args:
        app: the service.
        access: who may ask.
        limits: how much.
    """

    def __init__(self, app: ASGIApp, access: Access, limits: Limits) -> None:
        self._app = app
        self._access = access
        self._limits = limits
        self._requests = RateLimit(limits.requests_per_minute, limits.clients)
        self._fits = RateLimit(limits.fits_per_minute, limits.clients)
        self._under_way = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or pass the server's start and stop on."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":  # no WebSockets here
            return
        self._under_way += 1
        started = False

        async def secured(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                headers = MutableHeaders(scope=message)
                for name, value in SECURITY_HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        try:
            await self._answer(scope, receive, secured)
        except Exception:
            # Not left to the server, which would close the connection under the client's next request.
            if started:
                raise
            _log.exception("A request failed: %s %r", scope["method"], scope["path"])
            broken = Refusal(500, "Something went wrong inside the service: its log says what.")
            await refusal_response(broken)(scope, receive, secured)
        finally:
            self._under_way -= 1

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope)
        try:
            if self._under_way > self._limits.requests_at_once:
                raise Refusal(503, "Too many requests are under way: try again soon.", retry_after=1)
            self._check_rate(scope)
            self._check_access(scope, headers)
            body = await self._read_body(scope["method"], headers, receive)
        except Refusal as refusal:
            await refusal_response(refusal)(scope, receive, send)
            return
        await self._app(scope, _replay(body, receive), send)

    def _check_rate(self, scope: Scope) -> None:
        client = client_of((scope.get("client") or (None,))[0])
        wait = self._requests.wait(client)
        if wait:
            raise _too_fast(self._limits.requests_per_minute, "requests", wait)
        if scope["path"] == "/fit":
            wait = self._fits.wait(client)
            if wait:
                raise _too_fast(self._limits.fits_per_minute, "fits", wait)

    def _check_access(self, scope: Scope, headers: Headers) -> None:
        for name in ("host", "origin", "authorization"):
            if len(headers.getlist(name)) > 1:
                raise Refusal(400, f"The header '{name.title()}' is there more than once.")
        # The address that is printed at the start carries the token; no other one may.
        opens_page = scope["method"] == "GET" and scope["path"] == "/"
        query = QueryParams(scope["query_string"]) if opens_page else QueryParams()
        self._access.check(scope["method"], headers, query.get("token", ""))

    async def _read_body(self, method: str, headers: Headers, receive: Receive) -> bytes:
        limit = self._limits.body_bytes
        length = headers.get("content-length", "0")
        if length.isascii() and length.isdigit() and int(length[:20]) > limit:
            raise _too_large(limit)
        seconds = self._limits.body_seconds
        try:
            body = await asyncio.wait_for(_collect(receive, limit), seconds)
        except asyncio.TimeoutError:
            raise Refusal(408, f"The body did not arrive within {seconds:g} seconds: send it faster.") from None
        kind = headers.get("content-type", "")
        # A form of another site can post text/plain without asking first, but not application/json.
        if (body or method == "POST") and not re.fullmatch(r"application/json\s*(;.*)?", kind, flags=re.IGNORECASE):
            raise Refusal(415, "The body has to be JSON: send it with the header 'Content-Type: application/json'.")
        return body


async def _collect(receive: Receive, limit: int) -> bytes:
    body = bytearray()
    more = True
    while more:
        message = await receive()
        if message["type"] != "http.request":
            raise Refusal(400, "The connection was closed before the whole body had arrived.")
        body += message.get("body", b"")
        if len(body) > limit:
            raise _too_large(limit)
        more = message.get("more_body", False)
    return bytes(body)


def _replay(body: bytes, receive: Receive) -> Receive:
    """The body as one message, then what the connection has to say."""
    first: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replayed() -> Message:
        return first.pop() if first else await receive()

    return replayed


def _too_fast(per_minute: int, what: str, wait: float) -> Refusal:
    return Refusal(
        429, f"More than {per_minute} {what} a minute came from this address: wait a little.", retry_after=wait
    )


def _too_large(limit: int) -> Refusal:
    return Refusal(413, f"The body is larger than {limit:,} bytes, the most that is read: send less at a time.")
