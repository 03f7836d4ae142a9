"""`openprompt-meta serve DIR` as one types it."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from openprompt_meta import cli
from openprompt_meta.classifier.classifier import MetaPromptClassifier
from openprompt_meta.runs.run import Run
from openprompt_meta.serve.guard import TOKEN_VARIABLE
from openprompt_meta.serve.server import Server, open_socket
from tests.helpers.services import running
from tests.helpers.small_runs import small_config, write_data

TOKEN = "a-token-of-enough-letters"  # noqa: S105


@pytest.fixture(scope="module")
def saved(fitted: MetaPromptClassifier, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("serve") / "topics"
    fitted.save_pretrained(folder)
    return folder


@contextmanager
def serving(folder: Path, *arguments: str, **environment: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The process and the address that it printed."""
    command = [sys.executable, "-m", "openprompt_meta", "serve", str(folder), "--port", "0", *arguments]
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    )
    try:
        assert process.stdout is not None
        printed = process.stdout.readline()
        match = re.fullmatch(r"Serving .* on (http://127\.0\.0\.1:\d+/\S*)\n", printed)
        assert match, printed + process.communicate(timeout=60)[1]
        yield process, match[1]
    finally:
        process.kill()
        process.communicate()


def test_it_serves_a_saved_classifier_until_it_is_told_to_stop(saved: Path, fitted: MetaPromptClassifier) -> None:
    with serving(saved) as (process, address):
        found = httpx.post(f"{address}predict", json={"texts": ["rain"]}, timeout=60, trust_env=False).json()
        assert found["predictions"][0]["label"] == fitted.predict(["rain"])[0]
        process.send_signal(signal.SIGTERM)
        output, errors = process.communicate(timeout=60)
    assert (process.returncode, output, errors) == (0, "Stopped.\n", "")


def test_a_token_of_the_environment_is_asked_for_and_not_printed(saved: Path) -> None:
    with serving(saved, **{TOKEN_VARIABLE: TOKEN}) as (process, address):
        assert address.endswith("/?token=YOUR_TOKEN")
        health = address.replace("?token=YOUR_TOKEN", "health")
        assert httpx.get(health, trust_env=False).status_code == 401
        bearer = {"Authorization": f"Bearer {TOKEN}"}
        assert httpx.get(health, headers=bearer, trust_env=False).status_code == 200
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=60)
    assert (process.returncode, output, errors) == (0, "Stopped.\n", "")


def test_beyond_loopback_a_new_token_is_made_and_printed_each_time(
    saved: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv(TOKEN_VARIABLE, raising=False)
    monkeypatch.setattr(Server, "run", lambda self, sockets: None)  # nothing listens: the address is the point
    tokens = set()
    for _ in range(2):
        assert cli.main(["serve", str(saved), "--host", "0.0.0.0", "--port", "0"]) == 0  # noqa: S104
        match = re.search(r"\?token=(\S{40,})\n", capsys.readouterr().out)
        assert match
        tokens.add(match[1])
    assert len(tokens) == 2


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["nowhere"], "There is no folder nowhere"),
        (["."], ""),
        (["DIR", "--token", "short"], "The token has 5 characters"),
        (["DIR", "--host", "no.such.host.invalid"], "There is no address 'no.such.host.invalid'"),
    ],
)
def test_what_cannot_be_served_is_refused_in_one_message(
    saved: Path, arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [str(saved) if argument == "DIR" else argument for argument in arguments]
    assert cli.main(["serve", *given, "--port", "0"]) == 2
    captured = capsys.readouterr()
    assert sentence in captured.err
    assert captured.err.startswith("openprompt-meta: ")
    assert captured.out == ""


def test_a_port_that_is_taken_is_said_so(saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with open_socket("127.0.0.1", 0) as taken:
        taken.listen()
        assert cli.main(["serve", str(saved), "--port", str(taken.getsockname()[1])]) == 2
    assert "Choose another with --port" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["--port", "65536"], ["--tasks", "0"], ["--fits-per-minute", "-1"]])
def test_a_number_out_of_range_is_refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        cli.main(["serve", "DIR", *arguments])
    assert stopped.value.code == 2
    assert "expected" in capsys.readouterr().err


def test_without_the_extra_the_remedy_is_named(
    saved: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for module in [name for name in sys.modules if name.startswith("openprompt_meta.serve")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "fastapi", None)
    assert cli.main(["serve", str(saved)]) == 2
    assert "Install it with: pip install fastapi uvicorn" in capsys.readouterr().err


def test_a_run_is_served_without_a_task_of_its_own(
    tiny_mlm_folder: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = small_config(tiny_mlm_folder("bert"), write_data(tmp_path / "data"), iterations=2)
    Run(config, tmp_path / "run", show_progress=False).train()
    answers = []

    async def ask(app: Any) -> None:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            answers.append((await client.get("/tasks")).json())
            classes = {"a": ["rain"], "b": ["soup"]}
            answers.append((await client.post("/fit", json={"name": "x", "classes": classes})).json())

    monkeypatch.setattr(Server, "run", lambda self, sockets: asyncio.run(ask(self.config.app)))
    assert cli.main(["serve", str(tmp_path / "run"), "--port", "0"]) == 0
    assert answers[0] == {"tasks": []}
    assert answers[1]["task"]["classes"] == ["a", "b"]


def test_once_it_runs_the_folder_is_not_needed_any_more(fitted: MetaPromptClassifier, tmp_path: Path) -> None:
    fitted.save_pretrained(tmp_path / "saved")
    loaded = MetaPromptClassifier.from_pretrained(tmp_path / "saved")
    shutil.rmtree(tmp_path / "saved")
    with running(loaded) as client:
        assert client.post("/fit", json={"name": "a", "classes": {"x": ["rain"], "y": ["soup"]}}).status_code == 201
        found = client.post("/predict", json={"texts": ["rain"]}).json()["predictions"][0]
        assert found["label"] == fitted.predict(["rain"])[0]
