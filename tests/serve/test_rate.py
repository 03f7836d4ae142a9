"""The rate limit, on a clock that the test turns."""

from __future__ import annotations

import pytest

from openprompt_meta.serve.guard import RateLimit, client_of


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_client_has_its_minutes_worth_at_once_and_then_waits() -> None:
    clock = Clock()
    limit = RateLimit(6, clients=10, clock=clock)
    assert [limit.wait("a") for _ in range(6)] == [0] * 6
    assert limit.wait("a") == pytest.approx(10)
    clock.now += 4
    assert limit.wait("a") == pytest.approx(6)
    clock.now += 6
    assert limit.wait("a") == 0
    assert limit.wait("a") == pytest.approx(10)


def test_a_long_pause_gives_no_more_than_a_minutes_worth() -> None:
    clock = Clock()
    limit = RateLimit(3, clients=10, clock=clock)
    limit.wait("a")
    clock.now += 3600
    assert [limit.wait("a") == 0 for _ in range(4)] == [True, True, True, False]


def test_over_an_hour_the_rate_is_kept() -> None:
    clock = Clock()
    limit = RateLimit(30, clients=10, clock=clock)
    granted = 0
    for _ in range(36_000):
        granted += limit.wait("a") == 0
        clock.now += 0.1
    assert granted == pytest.approx(30 * 60 + 30, abs=1)


def test_clients_do_not_share_and_the_oldest_is_forgotten() -> None:
    limit = RateLimit(1, clients=2, clock=Clock())
    assert limit.wait("a") == 0
    assert limit.wait("b") == 0
    assert limit.wait("a") > 0
    assert limit.wait("c") == 0  # b leaves: a was heard of later
    assert limit.wait("a") > 0
    assert limit.wait("b") == 0


def test_zero_is_no_limit() -> None:
    limit = RateLimit(0, clients=2)
    assert not any(limit.wait("a") for _ in range(10_000))


@pytest.mark.parametrize(
    ("address", "key"),
    [
        ("10.1.2.3", "10.1.2.3"),
        ("::ffff:10.1.2.3", "10.1.2.3"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2:ffff::1", "2001:db8:1:2::/64"),
        (None, "unknown"),
        ("testclient", "testclient"),
    ],
)
def test_a_client_is_its_address_or_its_ipv6_network(address: str | None, key: str) -> None:
    assert client_of(address) == key
