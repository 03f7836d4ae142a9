"""`--keep`: tasks that outlive the service, within the limits of those in memory, whole at any moment."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from openprompt_meta.classifier.classifier import MetaPromptClassifier
from openprompt_meta.errors import ServiceError
from openprompt_meta.serve.keeping import KeptTasks
from openprompt_meta.serve.requests import Limits
from tests.helpers.services import CLASSES, UNLIMITED, new_classifier, running
from tests.helpers.victims import ROOT

KILLS = int(os.environ.get("OPENPROMPT_META_KILLS", "0"))
OTHERS = {"a": ["rain"], "b": ["soup"]}


@pytest.fixture
def keeping(fitted: MetaPromptClassifier, tmp_path: Path) -> Callable[..., object]:
    """``with keeping() as client``: a service that keeps its tasks in one folder."""

    @contextmanager
    def serve(limits: Limits = UNLIMITED) -> Iterator[httpx.Client]:
        with running(fitted, limits, kept=KeptTasks(tmp_path / "kept")) as client:
            yield client

    return serve


def fit(client: httpx.Client, name: str, classes: dict[str, list[str]] = OTHERS, **more: object) -> httpx.Response:
    return client.post("/fit", json={"name": name, "classes": classes, **more})


def names(client: httpx.Client) -> list[str]:
    return [task["name"] for task in client.get("/tasks").json()["tasks"]]


def test_tasks_are_there_again_and_answer_the_same(keeping: Callable[..., object], tmp_path: Path) -> None:
    asked = {"texts": ["a storm", "the soup"], "task": "Intents of три"}
    with keeping() as client:
        assert fit(client, "Intents of три", CLASSES).status_code == 201
        before = client.post("/predict", json=asked).json()
    with keeping() as client:
        assert names(client) == ["served", "Intents of три"]
        assert client.post("/predict", json=asked).json() == before
        assert client.post("/explain", json={"text": "a storm", "task": "Intents of три"}).json()["nearest_examples"]
    assert (tmp_path / "kept").stat().st_mode & 0o777 == 0o700


def test_what_is_replaced_deleted_or_forgotten_stays_so(keeping: Callable[..., object], tmp_path: Path) -> None:
    few = replace(UNLIMITED, tasks=2)
    with keeping(few) as client:
        assert fit(client, "one").status_code == 201
        assert fit(client, "one").status_code == 409
        assert fit(client, "one", CLASSES, replace=True).status_code == 201
        assert fit(client, "two").status_code == 201
        assert fit(client, "three").json()["forgotten"] == ["one"]
        assert client.delete("/tasks/two").status_code == 200
        assert fit(client, "four", CLASSES).status_code == 201
    with keeping(few) as client:
        assert names(client) == ["served", "three", "four"]
        assert [len(task["classes"]) for task in client.get("/tasks").json()["tasks"]] == [3, 2, 3]
    assert len([entry for entry in (tmp_path / "kept").iterdir() if entry.is_dir()]) == 2


def test_with_a_smaller_limit_the_last_are_served_and_none_is_deleted(
    keeping: Callable[..., object], tmp_path: Path
) -> None:
    with keeping() as client:
        for name in ("zebra", "ape", "bee"):
            fit(client, name)
    with keeping(replace(UNLIMITED, tasks=2)) as client:
        assert names(client) == ["served", "ape", "bee"]
    with keeping() as client:
        assert names(client) == ["served", "zebra", "ape", "bee"]


def test_names_of_tasks_are_no_names_of_files(keeping: Callable[..., object], tmp_path: Path) -> None:
    with keeping() as client:
        for name in ("..", "../up", "CON", "a" * 64, "_", "a.b"):
            fit(client, name)
    assert {path.name for path in tmp_path.iterdir()} == {"kept"}
    found = {path.name for path in (tmp_path / "kept").iterdir()} - {".lock"}
    assert all(len(name) == 64 and set(name) <= set("0123456789abcdef") for name in found)


def test_what_is_no_kept_task_is_left_alone_and_the_others_are_served(
    keeping: Callable[..., object], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with keeping() as client:
        for name in ("one", "two", "three"):
            fit(client, name)
    folders = {json.loads((one / "task.json").read_text())["name"]: one for one in (tmp_path / "kept").glob("*/")}
    (folders["one"] / "classifier" / "classifier.safetensors").write_bytes(b"cut")
    (folders["two"] / "task.json").write_text('{"name": "../up", "number": 1}')
    (tmp_path / "kept" / "notes.txt").write_text("mine")
    with keeping() as client:
        assert names(client) == ["served", "three"]
        assert fit(client, "one").status_code == 201  # takes the place of the damaged one
    assert "is kept in" in caplog.text
    assert "is not a kept task" in caplog.text
    assert (tmp_path / "kept" / "notes.txt").read_text() == "mine"
    assert folders["two"].is_dir()


def test_a_task_of_another_base_model_is_not_served(
    keeping: Callable[..., object], tiny_mlm_folder: Callable[[str], Path], tmp_path: Path
) -> None:
    with keeping() as client:
        fit(client, "one")
    other = new_classifier(tiny_mlm_folder("roberta"), fitted=True)
    with running(other, kept=KeptTasks(tmp_path / "kept")) as client:
        assert names(client) == ["served"]


def test_a_disk_that_does_not_take_it_changes_nothing(
    keeping: Callable[..., object], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*given: object, **more: object) -> None:
        raise OSError(28, "No space left on device")

    with keeping() as client:
        assert fit(client, "one").status_code == 201
        with monkeypatch.context() as patch:
            patch.setattr(MetaPromptClassifier, "save_pretrained", full)
            refused = fit(client, "two")
            assert (refused.status_code, set(refused.json())) == (507, {"error"})
            assert fit(client, "one", CLASSES, replace=True).status_code == 507
        assert names(client) == ["served", "one"]
        assert len(client.get("/tasks").json()["tasks"][1]["classes"]) == 2
    with keeping() as client:
        assert names(client) == ["served", "one"]


def test_one_service_at_a_time_has_the_folder(tmp_path: Path) -> None:
    first = KeptTasks(tmp_path / "kept")
    with pytest.raises(ServiceError, match="Another service keeps its tasks in"):
        KeptTasks(tmp_path / "kept")
    first.close()
    KeptTasks(tmp_path / "kept").close()
    (tmp_path / "file").write_text("")
    with pytest.raises(ServiceError, match="Tasks cannot be kept in"):
        KeptTasks(tmp_path / "file")


@pytest.mark.slow
def test_a_service_killed_again_and_again_loses_no_task_that_it_has_answered_for(
    fitted: MetaPromptClassifier, tmp_path: Path
) -> None:
    generator = random.Random(None if KILLS else 21)
    fitted.save_pretrained(tmp_path / "saved")
    command = [sys.executable, "-m", "openprompt_meta", "serve", str(tmp_path / "saved"), "--port", "0"]
    command += ["--keep", str(tmp_path / "kept"), "--fits-per-minute", "0", "--tasks", "6"]
    known: dict[str, int] = {}  # classes of the tasks that were answered for
    doubtful: dict[str, set[int | None]] = {}
    number = 0
    for _ in range(max(2, KILLS // 10)):
        process = subprocess.Popen(
            command,
            env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert process.stdout is not None
            address = process.stdout.readline().split()[-1]
            with httpx.Client(base_url=address, timeout=60, trust_env=False) as client:
                found = {task["name"]: len(task["classes"]) for task in client.get("/tasks").json()["tasks"]}
                found.pop("served")
                for name, classes in known.items():
                    assert found.get(name) in doubtful.get(name, {classes}), (name, found)
                known, doubtful = found, {}
                threading.Timer(generator.uniform(0.1, 1.5), os.kill, [process.pid, signal.SIGKILL]).start()
                while True:
                    name = f"task {number % 5}"
                    classes = CLASSES if generator.random() < 0.5 else OTHERS
                    number += 1
                    doubtful = {name: {known.get(name), len(classes)}}
                    try:
                        assert fit(client, name, classes, replace=True).status_code == 201
                        known[name] = len(classes)
                    except httpx.HTTPError:
                        break
            assert process.wait(30) == -signal.SIGKILL
        finally:
            process.kill()
            process.communicate()
            time.sleep(0)
    assert not [entry for entry in (tmp_path / "kept").iterdir() if entry.suffix == ".part"][3:]
    print(f"{number} fits, {max(2, KILLS // 10)} kills, no task lost")
