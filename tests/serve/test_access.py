"""Who may ask: hosts, origins and tokens."""

from __future__ import annotations

import pytest

from openprompt_meta.errors import ServiceError
from openprompt_meta.serve.guard import COOKIE, Access, is_loopback
from openprompt_meta.serve.requests import Refusal

TOKEN = "a-token-of-enough-letters"  # noqa: S105


def status(access: Access, method: str = "GET", query_token: str = "", **headers: str) -> int:
    try:
        access.check(method, {name.replace("_", "-"): value for name, value in headers.items()}, query_token)
    except Refusal as refusal:
        return refusal.status
    return 200


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", True),
        ("127.8.9.1", True),
        ("::1", True),
        ("LocalHost", True),
        ("0.0.0.0", False),  # noqa: S104
        ("::", False),
        ("192.168.1.2", False),
        ("example.org", False),
        ("", False),
    ],
)
def test_loopback_is_what_only_this_machine_can_reach(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected


@pytest.mark.parametrize("host", ["127.0.0.1:8000", "127.0.0.1", "localhost:8000", "LOCALHOST", "[::1]:8000"])
def test_a_service_on_loopback_answers_to_names_of_loopback(host: str) -> None:
    assert status(Access(), host=host) == 200


@pytest.mark.parametrize(
    "host",
    [
        "",
        "evil.example",
        "evil.example:8000",
        "127.0.0.1.evil.example",
        "localhost.evil.example",
        "192.168.1.2:8000",
        "127.0.0.1:8000:9",
        "127.0.0.1@evil.example",
        "[::1",
        "127.0.0.1/",
        " 127.0.0.1",
        "127.0.0.1\n",
    ],
)
def test_another_host_is_refused_as_a_rebound_name_would_be(host: str) -> None:
    assert status(Access(), host=host) == 403


def test_a_name_that_was_allowed_is_answered_to() -> None:
    access = Access(names=["Texts.Example"])
    assert status(access, host="texts.example:443") == 200
    assert status(access, host="example") == 403


def test_beyond_loopback_addresses_are_fine_and_strange_names_are_not() -> None:
    access = Access("0.0.0.0", TOKEN)  # noqa: S104
    bearer = f"Bearer {TOKEN}"
    assert status(access, host="192.168.1.2:8000", authorization=bearer) == 200
    assert status(access, host="[fe80::1]:8000", authorization=bearer) == 200
    assert status(access, host="rebound.example:8000", authorization=bearer) == 403


@pytest.mark.parametrize(
    "origin",
    [
        "http://evil.example",
        "https://127.0.0.1:9000",
        "null",
        "",
        "http://127.0.0.1:8000.evil.example",
        "http://127.0.0.1:8000@evil.example",
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
def test_a_request_of_another_origin_is_refused(origin: str, method: str) -> None:
    assert status(Access(), method, host="127.0.0.1:8000", origin=origin) == 403


def test_a_request_of_the_page_itself_and_of_a_program_is_answered() -> None:
    access = Access()
    assert status(access, "POST", host="127.0.0.1:8000", origin="http://127.0.0.1:8000") == 200
    assert status(access, "POST", host="127.0.0.1:8000", sec_fetch_site="same-origin") == 200
    assert status(access, "POST", host="127.0.0.1:8000") == 200


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_a_link_from_another_site_opens_the_page_and_nothing_else_of_it_is_answered(site: str) -> None:
    headers = {"host": "127.0.0.1", "sec-fetch-site": site}
    link = {**headers, "sec-fetch-dest": "document"}
    Access().check("GET", link, opens_page=True)
    for given, opens_page in ((link, False), (headers, True), ({**headers, "sec-fetch-dest": "iframe"}, True)):
        for method in ("GET", "HEAD", "POST", "DELETE", "PUT"):
            with pytest.raises(Refusal, match="another site"):
                Access().check(method, given, opens_page=opens_page)


def test_a_token_is_asked_for_beyond_loopback() -> None:
    with pytest.raises(ServiceError, match="needs a token"):
        Access("0.0.0.0")  # noqa: S104


@pytest.mark.parametrize("token", ["", "short", "with spaces in between it", "with-ümlauts-in-it-somewhere", "a" * 15])
def test_a_weak_or_unsendable_token_is_refused(token: str) -> None:
    with pytest.raises(ServiceError, match="at least 16"):
        Access(token=token)


def test_the_token_comes_as_bearer_as_cookie_of_this_process_or_in_the_address_of_the_page() -> None:
    access = Access(token=TOKEN)
    host = "127.0.0.1"
    assert status(access, host=host, authorization=f"Bearer {TOKEN}") == 200
    assert status(access, host=host, authorization=f"bearer  {TOKEN}") == 200
    assert status(access, host=host, cookie=f"other=1; {COOKIE}={access.session}; more=x") == 200
    assert status(access, host=host, query_token=TOKEN) == 200


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"authorization": TOKEN},
        {"authorization": f"Basic {TOKEN}"},
        {"authorization": "Bearer "},
        {"authorization": f"Bearer {TOKEN[:-1]}"},
        {"authorization": f"Bearer {TOKEN}x"},
        {"authorization": "Bearer é\x00"},
        {"cookie": f"{COOKIE}={TOKEN}"},
        {"cookie": f"{COOKIE}="},
        {"cookie": "\x00=;;;=="},
    ],
)
def test_anything_else_is_no_token(headers: dict[str, str]) -> None:
    assert status(Access(token=TOKEN), host="127.0.0.1", **headers) == 401


def test_without_a_token_none_is_recognised() -> None:
    assert not Access().is_token("")
