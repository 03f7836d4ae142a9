"""What a request passes before the service looks at it, over a real connection."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from dataclasses import replace

import httpx
import pytest

from openprompt_meta.classifier.classifier import MetaPromptClassifier
from openprompt_meta.serve.guard import COOKIE, SECURITY_HEADERS, Access
from openprompt_meta.serve.requests import Limits
from tests.helpers.services import CLASSES, UNLIMITED, running

TOKEN = "a-token-of-enough-letters"  # noqa: S105
JSON = {"Content-Type": "application/json"}
ADDRESSES = [
    ("POST", "/predict"),
    ("POST", "/explain"),
    ("POST", "/fit"),
    ("GET", "/tasks"),
    ("DELETE", "/tasks/a"),
    ("GET", "/health"),
    ("GET", "/openapi.json"),
    ("GET", "/docs"),
    ("GET", "/"),
    ("GET", "/page.js"),
    ("GET", "/nothing"),
]


def raw_answer(client: httpx.Client, request: bytes) -> tuple[int, dict[str, str]]:
    """What comes back for bytes as they are."""
    address = (client.base_url.host, client.base_url.port)
    with socket.create_connection(address, timeout=30) as connection:
        connection.sendall(request)
        received = b""
        while b"}" not in received:
            part = connection.recv(65536)
            assert part, received
            received += part
    head, _, body = received.partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(body)


def test_every_address_asks_for_the_token(fitted: MetaPromptClassifier) -> None:
    with running(fitted, access=Access(token=TOKEN)) as client:
        for method, path in ADDRESSES:
            for headers in ({}, {"Authorization": "Bearer wrong"}, {"Cookie": f"{COOKIE}=wrong"}):
                answer = client.request(method, path, headers=headers)
                assert answer.status_code == 401, path
                assert answer.headers["www-authenticate"] == "Bearer"
                assert set(answer.json()) == {"error"}
            assert client.request(method, path, headers={"Authorization": f"Bearer {TOKEN}"}).status_code != 401


def test_the_printed_address_signs_a_browser_in_and_hides_the_token(fitted: MetaPromptClassifier) -> None:
    access = Access(token=TOKEN)
    with running(fitted, access=access) as client:
        assert client.get("/", params={"token": "wrong"}).status_code == 401
        assert client.get("/health", params={"token": TOKEN}).status_code == 401
        opened = client.get("/", params={"token": TOKEN})
        assert (opened.status_code, opened.headers["location"]) == (303, "/")
        cookie = opened.headers["set-cookie"]
        assert TOKEN not in cookie
        assert "HttpOnly" in cookie
        assert "SameSite=strict" in cookie
        assert "text/html" in client.get("/").headers["content-type"]
        assert client.get("/health").json()["status"] == "ok"


def test_a_rebound_name_and_another_site_get_nothing(service: httpx.Client) -> None:
    for headers in ({"Host": "rebound.example"}, {"Origin": "http://evil.example"}):
        for method, path in ADDRESSES:
            answer = service.request(method, path, headers=headers)
            assert answer.status_code == 403, path
            assert set(answer.json()) == {"error"}


def test_every_answer_carries_the_security_headers(service: httpx.Client) -> None:
    for method, path in ADDRESSES:
        headers = service.request(method, path, headers=JSON if method == "POST" else {}).headers
        assert {name: headers[name] for name in SECURITY_HEADERS} == SECURITY_HEADERS


@pytest.mark.parametrize(
    "kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "", "json"]
)
def test_a_body_that_a_form_could_send_is_refused(service: httpx.Client, kind: str) -> None:
    answer = service.post("/predict", content=b'{"texts": ["x"]}', headers={"Content-Type": kind})
    assert answer.status_code == 415
    assert "application/json" in answer.json()["error"]


@pytest.mark.parametrize(
    "kind", ["application/json", "Application/JSON; charset=utf-8", "application/json;charset=utf8"]
)
def test_json_is_json_however_it_is_spelt(service: httpx.Client, kind: str) -> None:
    assert service.post("/predict", content=b'{"texts": ["x"]}', headers={"Content-Type": kind}).status_code == 200


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"texts": [' + b"9" * 5000 + b"]}",
        b'{"texts": ["\xff"]}',
        b"NaN",
        b"\x00",
    ],
)
def test_a_body_that_is_no_json_is_refused(service: httpx.Client, body: bytes) -> None:
    answer = service.post("/predict", content=body, headers=JSON)
    assert answer.status_code in (400, 422)
    assert set(answer.json()) == {"error"}


def test_a_body_that_says_it_is_too_large_is_refused_unread(service: httpx.Client) -> None:
    status, answer = raw_answer(
        service,
        b"POST /predict HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        b"Content-Length: 1000001\r\n\r\n",
    )
    assert status == 413
    assert "1,000,000 bytes" in answer["error"]


def test_a_body_in_chunks_is_counted_as_it_comes(fitted: MetaPromptClassifier) -> None:
    def chunks() -> Iterator[bytes]:
        yield b'{"texts": ["'
        for _ in range(20):
            yield b"x" * 100
        yield b'"]}'

    with running(fitted, replace(UNLIMITED, body_bytes=2014)) as client:
        assert client.post("/predict", content=chunks(), headers=JSON).status_code == 413
    with running(fitted, replace(UNLIMITED, body_bytes=2015)) as client:
        assert client.post("/predict", content=chunks(), headers=JSON).status_code == 200


def test_a_body_that_does_not_come_is_not_waited_for(fitted: MetaPromptClassifier) -> None:
    with running(fitted, replace(UNLIMITED, body_seconds=0.05)) as client:
        status, answer = raw_answer(
            client,
            b"POST /predict HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
            b'Content-Length: 16\r\n\r\n{"texts"',
        )
        assert status == 408
        assert "did not arrive" in answer["error"]
        assert client.get("/health").json()["status"] == "ok"


def test_a_header_that_is_there_twice_is_refused(service: httpx.Client) -> None:
    for header in (b"Origin: http://127.0.0.1\r\n", b"Authorization: Bearer x\r\n"):
        request = b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n" + 2 * header + b"\r\n"
        status, answer = raw_answer(service, request)
        assert status == 400
        assert "more than once" in answer["error"]


def test_too_many_requests_of_one_client_are_refused_with_the_time_to_wait(fitted: MetaPromptClassifier) -> None:
    with running(fitted, Limits(requests_per_minute=3)) as client:
        answers = [client.get("/health") for _ in range(4)]
        assert [answer.status_code for answer in answers] == [200, 200, 200, 429]
        assert 1 <= int(answers[-1].headers["retry-after"]) <= 20
        assert "More than 3 requests a minute" in answers[-1].json()["error"]


def test_guessing_tokens_counts_as_asking(fitted: MetaPromptClassifier) -> None:
    with running(fitted, Limits(requests_per_minute=2), Access(token=TOKEN)) as client:
        guesses = [client.get("/health", headers={"Authorization": f"Bearer {i}"}) for i in range(3)]
        assert [answer.status_code for answer in guesses] == [401, 401, 429]


def test_fits_have_a_rate_of_their_own(fitted: MetaPromptClassifier) -> None:
    with running(fitted, Limits(fits_per_minute=1)) as client:
        assert client.post("/fit", json={"name": "a", "classes": CLASSES}).status_code == 201
        refused = client.post("/fit", json={"name": "b", "classes": CLASSES})
        assert refused.status_code == 429
        assert "1 fits a minute" in refused.json()["error"]
        assert client.post("/predict", json={"texts": ["x"], "task": "a"}).status_code == 200
