"""Connections that come in numbers, half sent or never finished; other sites' requests; an end in time."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from openprompt_meta.classifier.classifier import MetaPromptClassifier
from openprompt_meta.serve import server
from openprompt_meta.serve.guard import Access
from openprompt_meta.serve.requests import Limits
from openprompt_meta.serve.server import LogLimit
from tests.helpers.services import CLASSES, UNLIMITED, running
from tests.helpers.victims import ROOT

TOKEN = "a-token-of-enough-letters"  # noqa: S105
FEW = Limits(requests_per_minute=3)


def connected(client: httpx.Client) -> socket.socket:
    return socket.create_connection((client.base_url.host, client.base_url.port), timeout=30)


# -- the rate ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "rebound.example"},
        {"Origin": "http://evil.example"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Dest": "image"},
        {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Dest": "iframe"},
    ],
)
def test_what_a_page_of_the_web_can_send_uses_up_nobodys_permits(
    fitted: MetaPromptClassifier, headers: dict[str, str]
) -> None:
    with running(fitted, FEW) as client:
        for path in ("/", "/health", "/page.js", "/predict", "/fit"):
            assert client.get(path, headers=headers).status_code == 403
        assert [client.get("/health").status_code for _ in range(4)] == [200, 200, 200, 429]


def test_links_from_elsewhere_use_up_nobodys_permits(fitted: MetaPromptClassifier) -> None:
    link = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Dest": "document", "Sec-Fetch-Mode": "navigate"}
    with running(fitted, FEW) as client:
        assert [client.get("/", headers=link).status_code for _ in range(5)] == [200] * 5
        assert client.get("/health").status_code == 200


def test_whoever_has_the_token_is_not_locked_out_by_guesses(fitted: MetaPromptClassifier) -> None:
    with running(fitted, FEW, Access(token=TOKEN)) as client:
        assert [client.get("/health").status_code for _ in range(5)] == [401, 401, 401, 429, 429]
        assert client.get("/health", headers={"Authorization": f"Bearer {TOKEN}"}).status_code == 200


# -- heads that do not come -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n",
        b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\nGET /heal",
        b"POST /nowhere HTTP/1.1\r\nHost: evil\r\nContent-Length: 100\r\n\r\n123",
    ],
)
def test_a_request_that_does_not_go_on_is_hung_up_on(fitted: MetaPromptClassifier, sent: bytes) -> None:
    with running(fitted, replace(UNLIMITED, header_seconds=0.3)) as client, connected(client) as half:
        half.sendall(sent)
        began = time.monotonic()
        try:
            while half.recv(65536):
                pass
        except ConnectionResetError:
            pass
        assert time.monotonic() - began < 3  # uvicorn by itself waits for ever


def test_a_head_in_drops_is_hung_up_on_too(fitted: MetaPromptClassifier) -> None:
    with running(fitted, replace(UNLIMITED, header_seconds=0.3)) as client, connected(client) as slow:
        began = time.monotonic()

        def drip() -> None:
            for sign in b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nX: " + b"y" * 1000:
                slow.sendall(bytes([sign]))
                time.sleep(0.01)

        with pytest.raises(OSError, match=r"reset|[Bb]roken"):
            drip()
        assert time.monotonic() - began < 3


def test_a_connection_that_is_used_stays(fitted: MetaPromptClassifier) -> None:
    with running(fitted, replace(UNLIMITED, header_seconds=0.3)) as client, connected(client) as kept:
        for _ in range(6):
            kept.sendall(b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            answer = b""
            while not answer.endswith(b"}"):
                answer += kept.recv(65536) or b"hung up on }"
            assert answer.startswith(b"HTTP/1.1 200")
            time.sleep(0.1)


def test_a_fit_may_take_longer_than_a_head(fitted: MetaPromptClassifier, monkeypatch: pytest.MonkeyPatch) -> None:
    real = MetaPromptClassifier.fit

    def slow(self: MetaPromptClassifier, *given: object) -> MetaPromptClassifier:
        time.sleep(0.7)
        return real(self, *given)

    with running(fitted, replace(UNLIMITED, header_seconds=0.2)) as client:
        monkeypatch.setattr(MetaPromptClassifier, "fit", slow)
        assert client.post("/fit", json={"name": "a", "classes": CLASSES}).status_code == 201


def test_many_half_sent_requests_leave_room_for_whole_ones(fitted: MetaPromptClassifier) -> None:
    with running(fitted, replace(UNLIMITED, connections=20)) as client:
        half = [connected(client) for _ in range(60)]
        try:
            for one in half:
                with contextlib.suppress(OSError):  # some are hung up on already
                    one.sendall(b"GET / HT")
            for _ in range(5):
                assert httpx.get(f"{client.base_url}/health", timeout=5, trust_env=False).status_code == 200
        finally:
            for one in half:
                one.close()


# -- the log ----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="there is no limit on descriptors there")
def test_with_few_descriptors_it_answers_still_and_fills_no_log(fitted: MetaPromptClassifier, tmp_path: Path) -> None:
    import resource

    fitted.save_pretrained(tmp_path / "saved")
    command = [sys.executable, "-m", "openprompt_meta", "serve", str(tmp_path / "saved"), "--port", "0"]
    with (tmp_path / "log.txt").open("wb") as log, contextlib.ExitStack() as opened:
        process = subprocess.Popen(
            command,
            env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (96, 96)),
            stdout=subprocess.PIPE,
            stderr=log,
        )
        try:
            assert process.stdout is not None
            address = httpx.URL(process.stdout.readline().split()[-1].decode())
            for _ in range(300):
                half = opened.enter_context(socket.create_connection((address.host, address.port), timeout=30))
                with contextlib.suppress(OSError):  # closed already, to make room for others
                    half.sendall(b"GET / HTTP/1.1\r\nHost: ")
            for _ in range(3):
                assert httpx.get(address.join("/health"), timeout=60, trust_env=False).status_code == 200
        finally:
            process.kill()
            process.communicate()
    assert (tmp_path / "log.txt").stat().st_size < 10_000


def test_nonsense_fills_no_log(service: httpx.Client, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(50):
        with connected(service) as rude:
            rude.sendall(b"\x16\x03\x01nonsense\r\n\r\n")
            answer = b"".join(iter(lambda: rude.recv(65536), b""))
            head, _, body = answer.partition(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 400")
            assert b"application/json" in head
            assert set(json.loads(body)) == {"error"}
    assert len([record for record in caplog.records if "Invalid HTTP" in record.getMessage()]) == 10


def test_kinds_of_records_are_limited_apart() -> None:
    limit = LogLimit(per_minute=2)

    def record(message: str, level: int = logging.WARNING) -> logging.LogRecord:
        return logging.LogRecord("x", level, "", 0, message, (), None)

    assert [limit.filter(record("one")) for _ in range(3)] == [True, True, False]
    assert limit.filter(record("two"))
    assert limit.filter(record("one", logging.ERROR))


# -- methods ----------------------------------------------------------------------------------------------------------


def test_a_method_that_an_address_has_not_is_405_whatever_comes_with_it(service: httpx.Client) -> None:
    has = {"/predict": "POST", "/explain": "POST", "/fit": "POST", "/tasks": "GET", "/tasks/a": "DELETE"}
    for path, allowed in {**has, "/health": "GET", "/": "GET"}.items():
        for method in {"GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "QUERY"} - {allowed}:
            for content in (None, b"x", b"{}"):
                answer = service.request(method, path, content=content)
                assert answer.status_code == 405, (method, path, content)
                assert answer.headers["allow"] == allowed
                assert set(answer.json()) == {"error"}


# -- the end ----------------------------------------------------------------------------------------------------------


def test_an_end_in_the_middle_of_a_fit_comes_in_time_and_is_an_answer(
    fitted: MetaPromptClassifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    entered, go_on = threading.Event(), threading.Event()

    def held(self: MetaPromptClassifier, *given: object) -> MetaPromptClassifier:
        entered.set()
        assert go_on.wait(60)
        return self

    monkeypatch.setattr(server, "_SECONDS_TO_FINISH", 1)
    try:
        with ThreadPoolExecutor(1) as threads:
            with running(fitted) as client:
                monkeypatch.setattr(MetaPromptClassifier, "fit", held)
                body = {"name": "a", "classes": CLASSES}
                answer = threads.submit(httpx.post, f"{client.base_url}/fit", json=body, timeout=60, trust_env=False)
                assert entered.wait(60)
                began = time.monotonic()
            assert time.monotonic() - began < 5
            assert not go_on.is_set()
            assert answer.result(10).status_code == 503
            assert "being stopped" in answer.result().json()["error"]
    finally:
        go_on.set()


SLOW = """
import sys, time
from openprompt_meta.classifier.classifier import MetaPromptClassifier
from openprompt_meta.serve import server
from openprompt_meta.cli import main
MetaPromptClassifier.fit = lambda self, *given: time.sleep(300)
server._SECONDS_TO_FINISH = 1
sys.exit(main(["serve", sys.argv[1], "--port", "0"]))
"""


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_process_ends_with_a_fit_under_way(fitted: MetaPromptClassifier, tmp_path: Path, number: int) -> None:
    fitted.save_pretrained(tmp_path / "saved")
    process = subprocess.Popen(
        [sys.executable, "-c", SLOW, str(tmp_path / "saved")],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        address = process.stdout.readline().split()[-1]
        with ThreadPoolExecutor(1) as threads:
            body = {"name": "a", "classes": CLASSES}
            answer = threads.submit(httpx.post, f"{address}fit", json=body, timeout=60, trust_env=False)
            while httpx.get(f"{address}health", trust_env=False).json()["fits_under_way"] == 0:
                time.sleep(0.05)
            process.send_signal(number)
            output, errors = process.communicate(timeout=15)
            assert answer.result(10).status_code == 503
        assert (process.returncode, output) == (0, "Stopped.\n")
        assert "Traceback" not in errors
    finally:
        process.kill()
        process.communicate()
