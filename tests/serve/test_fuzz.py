"""Anything at all over HTTP: an answer in JSON, never a fault of the service, never a file."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from openprompt_meta.classifier.classifier import MetaPromptClassifier
from tests.helpers.fuzzing import fuzzed
from tests.helpers.services import UNLIMITED, running

MARK = "fuzzmark"

any_text = st.text(max_size=30) | st.sampled_from(
    ["", " ", "\x00", "\ud800", "é" * 30, "../" + MARK, "[MASK]", "[PAD]"]
)
names = st.sampled_from(["a", "served", f"../{MARK}", f"/tmp/{MARK}", f"{MARK}\x00", MARK, f"C:\\{MARK}"]) | any_text  # noqa: S108
scalars = st.none() | st.booleans() | st.integers() | st.floats() | any_text
anything = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(any_text, inner, max_size=4), max_leaves=12
)
classes = st.dictionaries(any_text, st.lists(any_text, max_size=3), max_size=4)
keys = {
    "texts": st.lists(any_text, max_size=4) | anything,
    "text": any_text | anything,
    "task": names | anything,
    "name": names | anything,
    "classes": classes | anything,
    "label_words": st.none() | classes | anything,
    "replace": st.booleans() | anything,
}
wild_bodies = (
    st.fixed_dictionaries({}, optional=keys).map(json.dumps).map(str.encode)
    | anything.map(json.dumps).map(str.encode)
    | st.binary(max_size=200)
)
# Of the right shape, so that they come as far as the classifier: odd texts, odd class names, odd words.
odd = st.text(min_size=1, max_size=30).filter(str.strip) | st.sampled_from(
    ["[MASK]", "[PAD] [SEP]", "{'pool'}", "é" * 300]
)
well_formed = {
    "/predict": st.fixed_dictionaries(
        {"texts": st.lists(odd, min_size=1, max_size=4)}, optional={"task": st.just("a")}
    ),
    "/explain": st.fixed_dictionaries({"text": odd}, optional={"task": st.just("a")}),
    "/fit": st.fixed_dictionaries(
        {
            "name": st.sampled_from(["a", "b", MARK, "три"]),
            "classes": st.dictionaries(odd, st.lists(odd, min_size=1, max_size=3), min_size=2, max_size=4),
            "replace": st.just(True),
        },
        optional={"label_words": st.none()},
    ),
}
paths = st.sampled_from(list(well_formed))
requests = st.tuples(paths, wild_bodies) | paths.flatmap(
    lambda path: st.tuples(st.just(path), well_formed[path].map(json.dumps).map(str.encode))
)


class _Seen:
    """What the interpreter was asked to open or change while it watched."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str]] = []
        self.watches = False

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self.watches:
            return
        if event == "open":
            _, _, flags = arguments
            writes = isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
            self.events.append(("write" if writes else "read", repr(arguments)))
        elif event.startswith(("os.", "shutil.", "subprocess.", "ctypes.dlopen", "sqlite3", "tempfile")):
            self.events.append((event, repr(arguments)))


_seen = _Seen()


@contextmanager
def watched() -> Iterator[list[tuple[str, str]]]:
    """The file system as the service uses it inside the block."""
    if not getattr(_seen, "installed", False):
        sys.addaudithook(_seen)  # for good: hooks cannot be taken out, so it sleeps outside of the block
        _seen.installed = True  # type: ignore[attr-defined]
    _seen.events = []
    _seen.watches = True
    try:
        yield _seen.events
    finally:
        _seen.watches = False


@pytest.fixture(scope="module")
def client(fitted: MetaPromptClassifier) -> Iterator[httpx.Client]:
    with running(fitted, replace(UNLIMITED, tasks=3)) as client:
        client.post("/fit", json={"name": "a", "classes": {"x": ["rain"], "y": ["soup"]}})
        yield client


def assert_answered(answer: httpx.Response) -> None:
    assert answer.status_code < 500, answer.text
    body = answer.json()
    if answer.status_code >= 400:
        assert set(body) == {"error"}
        assert body["error"]
        assert "Traceback" not in body["error"]


def assert_no_file(events: list[tuple[str, str]]) -> None:
    assert not [event for event in events if event[0] != "read" and not event[0].startswith("os.listdir")]
    assert not [event for event in events if MARK in event[1]]


@fuzzed(120)
@given(request=requests)
def test_any_body_is_answered(client: httpx.Client, request: tuple[str, bytes]) -> None:
    path, body = request
    with watched() as events:
        answer = client.post(path, content=body, headers={"Content-Type": "application/json"})
    assert_answered(answer)
    assert_no_file(events)


@fuzzed(120)
@given(name=names, method=st.sampled_from(["DELETE", "GET", "PUT"]))
def test_any_name_in_an_address_is_answered(client: httpx.Client, name: str, method: str) -> None:
    with watched() as events:
        answer = client.request(method, f"/tasks/{quote(name.encode('utf-8', 'surrogatepass'), safe='')}")
    assert_answered(answer)
    assert_no_file(events)


@fuzzed(120)
@given(
    path=st.text(alphabet=st.characters(min_codepoint=33, max_codepoint=126, exclude_characters="?#"), max_size=30),
    method=st.sampled_from(["GET", "POST", "DELETE", "HEAD", "PATCH", "OPTIONS", "BREW"]),
    headers=st.dictionaries(
        st.sampled_from(["Origin", "Cookie", "Authorization", "Content-Type", "Host", "X-Forwarded-For", "Range"]),
        st.text(alphabet=st.characters(min_codepoint=32, max_codepoint=126), max_size=30).map(str.strip),
        max_size=3,
    ),
)
def test_any_address_method_and_header_is_answered(
    client: httpx.Client, path: str, method: str, headers: dict[str, str]
) -> None:
    address = "/" + quote(path, safe="%/")
    with watched() as events:
        answer = client.request(method, address, headers=headers)
    assert answer.status_code < 500
    if method != "HEAD" and answer.status_code >= 400:
        assert_answered(answer)
    assert_no_file(events)


def test_the_watch_sees_files_that_are_written(tmp_path: Path) -> None:
    with watched() as events:
        (tmp_path / MARK).write_text("x", encoding="utf-8")
    with pytest.raises(AssertionError):
        assert_no_file(events)


def test_after_all_that_the_service_is_well(client: httpx.Client, fitted: MetaPromptClassifier) -> None:
    assert client.get("/health").json()["fits_under_way"] == 0
    found = client.post("/predict", json={"texts": ["rain"]}).json()["predictions"][0]["label"]
    assert found == fitted.predict(["rain"])[0]
