"""What every request passes before the service looks at it: access, rate, and a body of bounded size."""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import logging
import re
import secrets
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping
from time import monotonic

from starlette.datastructures import Headers, MutableHeaders, QueryParams
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from openprompt_meta.errors import ServiceError
from openprompt_meta.serve.requests import Limits, Refusal, refusal_response

# -- Who may ask: the token, the Host header (DNS rebinding) and the Origin header (posts from other sites) -----------

TOKEN_VARIABLE = "OPENPROMPT_META_TOKEN"  # noqa: S105 - the name of an environment variable
COOKIE = "openprompt_meta_session"
_SHORTEST_TOKEN = 16


def is_loopback(host: str) -> bool:
    """Whether only programs on this machine can reach a service bound to ``host``."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


class Access:
    """The checks that every request has to pass.

    A browser that opened ``/?token=…`` gets a cookie with a secret of this process, so that the token itself is sent
    once and stays out of other services on the same machine, which share its cookies.

    Args:
        host: the address that the service is bound to.
        token: asked for on every request; ``None`` for a service on loopback that asks for none.
        names: further host names under which the service may be addressed, such as that of a reverse proxy.
    """

    def __init__(self, host: str = "127.0.0.1", token: str | None = None, names: Collection[str] = ()) -> None:
        if token is None and not is_loopback(host):
            raise ServiceError(f"A service on {host!r} can be reached from other machines and needs a token.")
        if token is not None and not re.fullmatch(rf"[!-~]{{{_SHORTEST_TOKEN},}}", token):
            raise ServiceError(
                f"The token has {len(token)} characters, but it must have at least {_SHORTEST_TOKEN} and consist of "
                "letters, digits and signs of ASCII without spaces. Leave it out and one is made."
            )
        self.token = token
        self.session = secrets.token_urlsafe(32)
        self._only_loopback = is_loopback(host)
        self._names = {name.lower().rstrip(".") for name in names} | {host.lower()}

    def check(self, method: str, headers: Mapping[str, str], query_token: str = "", opens_page: bool = False) -> None:
        """Refuse a request that came for another host, from another site, or without the token.

        Args:
            method: of the request.
            headers: of the request, found by names in lower case.
            query_token: the token in the address, where it may stand there.
            opens_page: whether it asks for the page, to which other sites may have links.
        """
        self._check_host(headers.get("host", ""))
        self._check_site(headers, opens_page)
        if self.token is not None and not (self._has_token(headers) or self.is_token(query_token)):
            raise Refusal(
                401,
                "A token is needed: open the address that was printed when the service started, or send the header "
                "'Authorization: Bearer TOKEN'.",
            )

    def is_token(self, given: str) -> bool:
        """Whether ``given`` is the token; takes as long for a near miss as for a far one."""
        return self.token is not None and _equal(given, self.token)

    def _check_host(self, given: str) -> None:
        name = _host_name(given)
        if name is not None and (name in self._names or self._is_own_address(name)):
            return
        raise Refusal(
            403,
            "The Host header names another host than this service's: use its address, or start it with "
            "'--allow-host NAME' for a name of your own.",
        )

    def _is_own_address(self, name: str) -> bool:
        # A rebound name stays a name in the Host header, so a bare address cannot be the work of DNS.
        if self._only_loopback:
            return is_loopback(name)
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return name == "localhost"
        return True

    def _check_site(self, headers: Mapping[str, str], opens_page: bool) -> None:
        origin = headers.get("origin")
        same_origin = origin is None or origin.lower().partition("://")[2] == headers.get("host", "").lower()
        # Following a link to the page is fine; anything else from another site is not, an image or a frame included.
        follows_link = opens_page and headers.get("sec-fetch-dest") == "document"
        if not (same_origin and (follows_link or not is_of_another_site(headers))):
            raise Refusal(403, "The request comes from a page of another site, which this service does not answer.")

    def _has_token(self, headers: Mapping[str, str]) -> bool:
        scheme, _, given = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and self.is_token(given.strip()):
            return True
        cookies = (part.strip().partition("=") for part in headers.get("cookie", "").split(";"))
        return any(name == COOKIE and _equal(value, self.session) for name, _, value in cookies)


def is_of_another_site(headers: Mapping[str, str]) -> bool:
    """Whether a browser says that a page of another site made it send the request."""
    return headers.get("sec-fetch-site", "none") not in ("same-origin", "none")


def _host_name(given: str) -> str | None:
    """The host of a Host header in lower case without port and brackets, or ``None`` if it is none."""
    match = re.fullmatch(r"(?:\[([0-9a-fA-F:.]+)\]|([A-Za-z0-9._-]+))(?::\d{1,5})?", given)
    return (match[1] or match[2]).lower().rstrip(".") if match else None


def _equal(one: str, other: str) -> bool:
    return hmac.compare_digest(one.encode("utf-8", "replace"), other.encode("utf-8", "replace"))


# -- A rate limit for each client, with bounded memory ----------------------------------------------------------------


class RateLimit:
    """A bucket for each client that holds ``per_minute`` permits and fills up again within a minute.

    Args:
        per_minute: permits a minute; 0 for no limit.
        clients: how many clients are remembered. The one heard of longest ago is forgotten first, and has a full
            bucket when it comes back.
        clock: seconds that never run backwards.
    """

    def __init__(self, per_minute: int, clients: int, clock: Callable[[], float] = monotonic) -> None:
        self.per_minute = per_minute
        self._clients = clients
        self._clock = clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def wait(self, client: str) -> float:
        """Take a permit and return 0, or return the seconds after which there will be one."""
        if not self.per_minute:
            return 0.0
        now = self._clock()
        permits, then = self._buckets.pop(client, (float(self.per_minute), now))
        permits = min(self.per_minute, permits + (now - then) * self.per_minute / 60)
        granted = permits >= 1
        self._buckets[client] = (permits - 1 if granted else permits, now)
        while len(self._buckets) > self._clients:
            self._buckets.popitem(last=False)
        return 0.0 if granted else (1 - permits) * 60 / self.per_minute


def client_of(address: str | None) -> str:
    """The key of a client: its IPv4 address, or the /64 network of its IPv6 address, which is one household's."""
    try:
        found = ipaddress.ip_address(address or "")
    except ValueError:
        return address or "unknown"
    if isinstance(found, ipaddress.IPv4Address):
        return str(found)
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(ipaddress.IPv6Network((int(found) >> 64 << 64, 64)))


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
        posts: paths that take a body by POST.
    """

    def __init__(self, app: ASGIApp, access: Access, limits: Limits, posts: Collection[str]) -> None:
        self._app = app
        self._access = access
        self._limits = limits
        self._posts = frozenset(posts)
        # Guesses count apart: whoever has the token is not locked out by somebody who has not.
        self._guesses = RateLimit(limits.requests_per_minute, limits.clients)
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
        except asyncio.CancelledError:
            # The service stops and waits no longer.
            if started:
                raise
            stopping = Refusal(503, "The service is being stopped: ask again when it runs.", retry_after=10)
            await refusal_response(stopping)(scope, receive, secured)
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
            client = client_of((scope.get("client") or (None,))[0])
            self._check_access(scope, headers, client)
            # Only now: what any page of the web can have a browser send must not use up the permits of its user.
            if not is_of_another_site(headers):
                self._check_rate(scope, client)
            body = await self._read_body(scope, headers, receive)
        except Refusal as refusal:
            await refusal_response(refusal)(scope, receive, send)
            return
        await self._app(scope, _replay(body, receive), send)

    def _check_rate(self, scope: Scope, client: str) -> None:
        wait = self._requests.wait(client)
        if wait:
            raise _too_fast(self._limits.requests_per_minute, "requests", wait)
        if scope["path"] == "/fit":
            wait = self._fits.wait(client)
            if wait:
                raise _too_fast(self._limits.fits_per_minute, "fits", wait)

    def _check_access(self, scope: Scope, headers: Headers, client: str) -> None:
        for name in ("host", "origin", "authorization"):
            if len(headers.getlist(name)) > 1:
                raise Refusal(400, f"The header '{name.title()}' is there more than once.")
        # The address that is printed at the start carries the token; no other one may.
        opens_page = scope["method"] == "GET" and scope["path"] == "/"
        query = QueryParams(scope["query_string"]) if opens_page else QueryParams()
        try:
            self._access.check(scope["method"], headers, query.get("token", ""), opens_page)
        except Refusal as refusal:
            wait = self._guesses.wait(client) if refusal.status == 401 else 0.0
            if wait:
                raise _too_fast(self._limits.requests_per_minute, "requests without the token", wait) from None
            raise

    async def _read_body(self, scope: Scope, headers: Headers, receive: Receive) -> bytes:
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
        takes_body = scope["method"] == "POST" and scope["path"] in self._posts
        # A form of another site can post text/plain without asking first, but not application/json.
        if takes_body and not re.fullmatch(r"application/json\s*(;.*)?", kind, flags=re.IGNORECASE):
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
