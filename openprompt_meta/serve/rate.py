"""A rate limit for each client, with bounded memory."""

from __future__ import annotations

import ipaddress
from collections import OrderedDict
from collections.abc import Callable
from time import monotonic

__all__ = ["RateLimit", "client_of"]


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
