"""Who may ask: the token, the Host header (DNS rebinding) and the Origin header (posts from other sites)."""

from __future__ import annotations

import hmac
import ipaddress
import re
import secrets
from collections.abc import Collection, Mapping

from openprompt_meta.errors import ServiceError
from openprompt_meta.serve.answers import Refusal

__all__ = ["COOKIE", "TOKEN_VARIABLE", "Access", "is_loopback"]

TOKEN_VARIABLE = "OPENPROMPT_META_TOKEN"  # noqa: S105 - the name of an environment variable
COOKIE = "openprompt_meta_session"
_SHORTEST_TOKEN = 16
_SAFE_METHODS = ("GET", "HEAD", "OPTIONS")


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

    def check(self, method: str, headers: Mapping[str, str], query_token: str = "") -> None:
        """Refuse a request that came for another host, from another site, or without the token.

        Args:
            method: of the request.
            headers: of the request, found by names in lower case.
            query_token: the token in the address, where it may stand there.
        """
        self._check_host(headers.get("host", ""))
        self._check_site(method, headers)
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

    def _check_site(self, method: str, headers: Mapping[str, str]) -> None:
        origin = headers.get("origin")
        same_origin = origin is None or origin.lower().partition("://")[2] == headers.get("host", "").lower()
        # Following a link to the page is fine; anything else from another site is not.
        same_site = method in _SAFE_METHODS or headers.get("sec-fetch-site", "none") in ("same-origin", "none")
        if not (same_origin and same_site):
            raise Refusal(403, "The request comes from a page of another site, which this service does not answer.")

    def _has_token(self, headers: Mapping[str, str]) -> bool:
        scheme, _, given = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and self.is_token(given.strip()):
            return True
        cookies = (part.strip().partition("=") for part in headers.get("cookie", "").split(";"))
        return any(name == COOKIE and _equal(value, self.session) for name, _, value in cookies)


def _host_name(given: str) -> str | None:
    """The host of a Host header in lower case without port and brackets, or ``None`` if it is none."""
    match = re.fullmatch(r"(?:\[([0-9a-fA-F:.]+)\]|([A-Za-z0-9._-]+))(?::\d{1,5})?", given)
    return (match[1] or match[2]).lower().rstrip(".") if match else None


def _equal(one: str, other: str) -> bool:
    return hmac.compare_digest(one.encode("utf-8", "replace"), other.encode("utf-8", "replace"))
