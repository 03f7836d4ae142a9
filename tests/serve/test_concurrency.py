"""Many at once: the same answers, bounded queues, and an ear always free."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from openprompt_meta.classifier.classifier import MetaPromptClassifier
from openprompt_meta.serve.requests import Limits
from openprompt_meta.serve.server import Server
from tests.helpers.services import CLASSES, UNLIMITED, running

TEXTS = [
    f"{one} {other}" for one in ("rain", "the team", "soup") for other in ("at night", "is good", "in the city", "")
]


class Held(MetaPromptClassifier):
    """A classifier whose fits and predictions wait for the test."""

    entered = threading.Semaphore(0)
    go_on = threading.Event()

    def fit(self, *given: Any) -> MetaPromptClassifier:
        self._wait()
        return super().fit(*given)

    def predict_proba(self, texts: Any) -> Any:
        self._wait()
        return super().predict_proba(texts)

    @classmethod
    def _wait(cls) -> None:
        cls.entered.release()
        assert cls.go_on.wait(60)


@pytest.fixture
def held(tiny_mlm_folder: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch) -> Held:
    monkeypatch.setattr(Held, "entered", threading.Semaphore(0))
    monkeypatch.setattr(Held, "go_on", threading.Event())
    classifier = Held(base_model=str(tiny_mlm_folder("bert")), inner_steps=1)
    Held.go_on.set()
    classifier.fit(["rain", "game"], ["a", "b"])
    assert Held.entered.acquire(timeout=60)
    Held.go_on.clear()
    return classifier


@contextmanager
def at_once(count: int) -> Iterator[ThreadPoolExecutor]:
    """Threads for calls that wait; they are let go in any case."""
    with ThreadPoolExecutor(count) as threads:
        try:
            yield threads
        finally:
            Held.go_on.set()


def test_many_threads_at_once_get_the_answers_of_one(service: httpx.Client) -> None:
    def ask(text: str) -> Any:
        predictions = service.post("/predict", json={"texts": [text, text[::-1]]}).json()["predictions"]
        explanation = service.post("/explain", json={"text": text}).json()
        return [list(p["probabilities"].values()) for p in predictions], explanation

    probabilities, explanations = zip(*(ask(text) for text in TEXTS), strict=True)
    with ThreadPoolExecutor(8) as threads:
        for _ in range(4):
            together, explained = zip(*threads.map(ask, TEXTS), strict=True)
            # In one batch with other texts, the last bits may differ.
            np.testing.assert_allclose(together, probabilities, atol=1e-5)
            assert explained == explanations


def test_tasks_fitted_at_once_are_those_fitted_one_by_one(fitted: MetaPromptClassifier) -> None:
    tasks = {f"task {i}": {name: CLASSES[name][: 1 + i % 2] for name in CLASSES} for i in range(6)}

    def fit_and_ask(client: httpx.Client, name: str) -> Any:
        answer = client.post("/fit", json={"name": name, "classes": tasks[name]})
        assert answer.status_code == 201, answer.text
        return client.post("/predict", json={"texts": TEXTS, "task": name}).json()

    with running(fitted) as client:
        one_by_one = [fit_and_ask(client, name) for name in tasks]
    roomy = replace(UNLIMITED, fits_waiting=6, fits_at_once=2)
    with running(fitted, roomy) as client, ThreadPoolExecutor(6) as threads:
        assert list(threads.map(lambda name: fit_and_ask(client, name), tasks)) == one_by_one


def test_health_and_predictions_are_answered_while_a_fit_runs(held: Held) -> None:
    with running(held) as client, at_once(2) as threads:
        fit = threads.submit(client.post, "/fit", json={"name": "a", "classes": CLASSES})
        assert Held.entered.acquire(timeout=60)
        health = client.get("/health").json()
        assert (health["status"], health["fits_under_way"]) == ("ok", 1)
        assert client.post("/explain", json={"text": "rain"}).status_code == 200
        Held.go_on.set()
        assert fit.result(60).status_code == 201
        assert client.get("/health").json()["fits_under_way"] == 0


def test_one_fit_more_than_may_wait_is_refused(held: Held) -> None:
    limits = replace(UNLIMITED, fits_at_once=1, fits_waiting=1)
    with running(held, limits) as client, at_once(2) as threads:
        first = threads.submit(client.post, "/fit", json={"name": "a", "classes": CLASSES})
        assert Held.entered.acquire(timeout=60)
        second = threads.submit(client.post, "/fit", json={"name": "b", "classes": CLASSES})
        assert any(client.get("/health").json()["fits_under_way"] == 2 for _ in range(1000))
        third = client.post("/fit", json={"name": "c", "classes": CLASSES})
        assert third.status_code == 503
        assert "2 fits are under way" in third.json()["error"]
        assert int(third.headers["retry-after"]) >= 1
        Held.go_on.set()
        assert (first.result(60).status_code, second.result(60).status_code) == (201, 201)


def test_one_prediction_more_than_may_wait_is_refused(held: Held) -> None:
    limits = replace(UNLIMITED, predictions_at_once=1, predictions_waiting=0)
    with running(held, limits) as client, at_once(1) as threads:
        first = threads.submit(client.post, "/predict", json={"texts": ["rain"]})
        assert Held.entered.acquire(timeout=60)
        assert client.post("/predict", json={"texts": ["rain"]}).status_code == 503
        Held.go_on.set()
        assert first.result(60).status_code == 200


def test_more_requests_than_can_be_heard_are_refused(held: Held) -> None:
    with running(held, replace(UNLIMITED, requests_at_once=1)) as client, at_once(1) as threads:
        first = threads.submit(client.post, "/predict", json={"texts": ["rain"]})
        assert Held.entered.acquire(timeout=60)
        assert client.get("/health").status_code == 503
        Held.go_on.set()
        assert first.result(60).status_code == 200


def test_of_two_fits_under_one_name_the_later_is_refused(held: Held) -> None:
    limits = Limits(fits_at_once=2)
    with running(held, limits) as client, at_once(2) as threads:
        fits = [threads.submit(client.post, "/fit", json={"name": "a", "classes": CLASSES}) for _ in range(2)]
        for _ in fits:
            assert Held.entered.acquire(timeout=60)
        Held.go_on.set()
        assert sorted(fit.result(60).status_code for fit in fits) == [201, 409]


def test_a_task_that_is_deleted_while_it_is_asked_still_answers(held: Held) -> None:
    with running(held) as client, at_once(1) as threads:
        Held.go_on.set()
        assert client.post("/fit", json={"name": "a", "classes": CLASSES}).status_code == 201
        assert Held.entered.acquire(timeout=60)
        Held.go_on.clear()
        asked = threads.submit(client.post, "/predict", json={"texts": ["rain"], "task": "a"})
        assert Held.entered.acquire(timeout=60)
        assert client.delete("/tasks/a").status_code == 200
        Held.go_on.set()
        assert asked.result(60).status_code == 200


def test_stopping_waits_for_the_answers_under_way(held: Held, monkeypatch: pytest.MonkeyPatch) -> None:
    shutdown = Server.shutdown

    async def let_go_and_shut_down(self: Server, sockets: Any = None) -> None:
        Held.go_on.set()
        await shutdown(self, sockets)

    monkeypatch.setattr(Server, "shutdown", let_go_and_shut_down)
    with ThreadPoolExecutor(1) as threads:
        with running(held) as client:
            asked = threads.submit(
                httpx.post, client.base_url.join("/predict"), json={"texts": ["rain"]}, timeout=60, trust_env=False
            )
            assert Held.entered.acquire(timeout=60)
        assert asked.result(60).status_code == 200
