"""The model hub: what would be uploaded, what is fetched, against a hub on the loopback interface.

The hub speaks as much of the real one's protocol as `huggingface_hub` uses for files that are small and regular.
"""

from __future__ import annotations

import base64
import hashlib
import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

import numpy as np
import pytest
import safetensors.torch
import torch
import yaml

from openprompt_meta import MetaPromptClassifier
from openprompt_meta.classifier import pretrained
from openprompt_meta.classifier.artefact import FILES
from openprompt_meta.cli import main
from openprompt_meta.errors import ArtefactError, ModelError
from tests.helpers.few_texts import QUESTIONS, TEXTS

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Hub(ThreadingHTTPServer):
    """Repositories in memory: ``files`` by repository, ``requests`` as they came."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files: dict[str, dict[str, bytes]] = {}
        self.requests: list[tuple[str, str, Any]] = []
        self.tokens: set[str | None] = set()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    server: Hub

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing on the screen."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        path = urlparse(self.path).path
        self.server.tokens.add(self.headers.get("Authorization"))
        if path == "/api/repos/create":
            content = json.loads(body)
            self.server.requests.append(("POST", path, content))
            name = f"{content.get('organization') or 'me'}/{content['name']}"
            if name.startswith("closed/"):
                return self.answer(403, {"error": "You have no rights here"})
            self.server.files.setdefault(name, {})
            return self.answer(200, {"url": f"{self.server.address}/{name}"})
        if path == "/api/validate-yaml":
            head = yaml.safe_load(json.loads(body)["content"].split("---")[1])
            errors = [] if head["library_name"] == "openprompt_meta" else [{"message": "no library_name"}]
            return self.answer(200, {"errors": errors, "warnings": []})
        if "/preupload/" in path:
            files = [
                {"path": file["path"], "uploadMode": "regular", "shouldIgnore": False}
                for file in json.loads(body)["files"]
            ]
            return self.answer(200, {"files": files})
        if "/commit/" in path:
            lines = [json.loads(line) for line in body.splitlines()]
            self.server.requests.append(("POST", path, lines))
            name = "/".join(path.split("/")[3:5])
            for line in lines:
                if line["key"] == "file":
                    value = line["value"]
                    self.server.files[name][value["path"]] = base64.b64decode(value["content"])
            return self.answer(
                200, {"commitUrl": f"{self.server.address}/{name}/commit/{COMMIT}", "commitOid": COMMIT}
            )
        return self.answer(404, {"error": path})

    def do_GET(self) -> None:
        path = unquote(urlparse(self.path).path)
        parts = path.strip("/").split("/")
        self.server.requests.append(("GET", path, None))
        if parts[:2] == ["api", "models"]:
            name = "/".join(parts[2:4])
            if name not in self.server.files:
                return self.answer(404, {"error": "Repository not found"}, {"X-Error-Code": "RepoNotFound"})
            siblings = [{"rfilename": file} for file in self.server.files[name]]
            if "tree" in parts:
                return self.answer(
                    200,
                    [
                        {"type": "file", "path": f, "size": len(c), "oid": "0"}
                        for f, c in self.server.files[name].items()
                    ],
                )
            return self.answer(200, {"id": name, "sha": COMMIT, "siblings": siblings, "private": False, "tags": []})
        return self.send_file(parts, with_body=True)

    def do_HEAD(self) -> None:
        self.send_file(unquote(urlparse(self.path).path).strip("/").split("/"), with_body=False)

    def send_file(self, parts: list[str], with_body: bool) -> None:
        content = self.server.files.get("/".join(parts[:2]), {}).get("/".join(parts[4:]))
        if content is None:
            self.answer(404, {"error": "Entry not found"}, {"X-Error-Code": "EntryNotFound"})
            return
        self.send_response(200)
        self.send_header("ETag", f'"{hashlib.sha1(content).hexdigest()}"')  # noqa: S324 - git's
        self.send_header("X-Repo-Commit", COMMIT)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if with_body:
            self.wfile.write(content)

    def answer(self, code: int, content: Any, headers: dict[str, str] | None = None) -> None:
        body = json.dumps(content).encode()
        self.send_response(code)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hub_mode: Callable[[bool], None]) -> Iterator[Hub]:
    """A hub, with `huggingface_hub` pointed at it and its cache in a folder of the test's."""
    from huggingface_hub import constants, file_download, hf_api

    server = Hub()
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    changed = {
        "ENDPOINT": server.address,
        "HUGGINGFACE_CO_URL_TEMPLATE": server.address + "/{repo_id}/resolve/{revision}/{filename}",
    }
    for module in (constants, hf_api, file_download):  # some of them have a name of their own for it
        for name, value in changed.items():
            if hasattr(module, name):
                monkeypatch.setattr(module, name, value)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    hub_mode(False)
    monkeypatch.setattr(hf_api.api, "endpoint", server.address)
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def uploaded(hub: Hub) -> dict[str, bytes]:
    ((_, _, lines),) = [request for request in hub.requests if "/commit/" in request[1]]
    return {
        line["value"]["path"]: base64.b64decode(line["value"]["content"]) for line in lines if line["key"] == "file"
    }


def test_exactly_the_files_of_a_classifier_are_uploaded(fitted: MetaPromptClassifier, hub: Hub) -> None:
    where = fitted.push_to_hub("me/weather", token="hf_secret", private=True, metrics={"accuracy": 0.5})  # noqa: S106
    assert where == f"{hub.address}/me/weather/commit/{COMMIT}"
    assert sorted(uploaded(hub)) == sorted(FILES)
    created = next(content for _, path, content in hub.requests if path == "/api/repos/create")
    assert (created["name"], created["organization"]) == ("weather", "me")
    assert created.get("private") or created["visibility"] == "private"  # the newer client
    assert hub.tokens == {"Bearer hf_secret"}
    assert b"| `accuracy` | 0.5000 |" in uploaded(hub)["README.md"]


def test_texts_are_not_published_unless_asked_for(fitted: MetaPromptClassifier, hub: Hub) -> None:
    fitted.push_to_hub("me/weather", token="t")  # noqa: S106
    assert not any(TEXTS[0].encode() in content for content in uploaded(hub).values())
    hub.requests.clear()
    fitted.push_to_hub("me/weather", token="t", keep_texts=True)  # noqa: S106
    assert TEXTS[0].encode() in uploaded(hub)["support.json"]


def test_what_was_pushed_comes_back_and_is_kept_for_later(fitted: MetaPromptClassifier, hub: Hub) -> None:
    fitted.push_to_hub("me/weather", token="t", keep_texts=True)  # noqa: S106
    loaded = MetaPromptClassifier.from_pretrained("me/weather")
    assert np.array_equal(loaded.predict_proba(QUESTIONS), fitted.predict_proba(QUESTIONS))
    assert Path(loaded.artefact).is_dir()  # type: ignore[arg-type]
    again = MetaPromptClassifier("me/weather").fit(TEXTS[:3], ["a", "a", "b"])
    assert list(again.classes_) == ["a", "b"]


def test_nothing_but_json_safetensors_and_the_card_is_fetched(fitted: MetaPromptClassifier, hub: Hub) -> None:
    fitted.push_to_hub("me/weather", token="t")  # noqa: S106
    hub.files["me/weather"] |= {"pytorch_model.bin": b"pickle", "run.py": b"print()", "sub/classifier.json": b"{}"}
    folder = Path(MetaPromptClassifier.from_pretrained("me/weather").artefact)  # type: ignore[arg-type]
    assert sorted(path.name for path in folder.rglob("*")) == sorted(FILES)
    assert not any("bin" in path or "run.py" in path for method, path, _ in hub.requests if method == "GET")


def test_a_name_that_the_hub_does_not_know_is_refused(hub: Hub) -> None:
    with pytest.raises(ArtefactError, match="There is no folder me/nothing, and no classifier of that name"):
        MetaPromptClassifier.from_pretrained("me/nothing")


def test_a_hub_that_refuses_is_quoted(fitted: MetaPromptClassifier, hub: Hub) -> None:
    with pytest.raises(ArtefactError, match=r"could not be uploaded to closed/weather: .*403"):
        fitted.push_to_hub("closed/weather", token="t")  # noqa: S106


def test_what_is_no_name_of_a_repository_never_reaches_the_hub(hub: Hub, tmp_path: Path) -> None:
    for name in ("nowhere", "../up", "/nowhere/else", "a/b/c", "https://me/x", str(tmp_path / "none")):
        with pytest.raises(ArtefactError, match="There is no folder"):
            MetaPromptClassifier.from_pretrained(name)
    assert hub.requests == []


# -- the base model: fetched if the user names it, never by the word of a classifier ----------------------------------


@pytest.fixture
def on_the_hub(
    fitted: MetaPromptClassifier,
    hub: Hub,
    tmp_path: Path,
    tiny_mlm_folder: Callable[[str], Path],
    monkeypatch: pytest.MonkeyPatch,
) -> Path:
    """A saved classifier whose base model is ``me/bert`` on the hub."""
    monkeypatch.setattr(pretrained, "_loaded", {})  # what another test has loaded would not be asked for
    hub.files["me/bert"] = {file.name: file.read_bytes() for file in tiny_mlm_folder("bert").iterdir()}
    hub.files["me/bert"] |= {"run.py": b"print()", "onnx/model.safetensors": b"none"}
    fitted.save_pretrained(tmp_path / "saved")
    description = json.loads((tmp_path / "saved" / "classifier.json").read_text("utf-8"))
    description["base_model"]["name"] = "me/bert"
    (tmp_path / "saved" / "classifier.json").write_text(json.dumps(description), "utf-8")
    return tmp_path / "saved"


def test_what_a_classifier_names_is_not_fetched(on_the_hub: Path, hub: Hub) -> None:
    for open_it in (MetaPromptClassifier.from_pretrained, lambda folder: MetaPromptClassifier(folder).meta_learned):
        with pytest.raises(ModelError, match=r"base model, 'me/bert', is not on this machine.*--base-model"):
            open_it(on_the_hub)
    assert hub.requests == []


def test_a_classifier_that_poses_as_a_run_gains_nothing(on_the_hub: Path, hub: Hub) -> None:
    (on_the_hub / "config.yaml").write_text("plm:\n  model_path: me/bert\n", "utf-8")
    with pytest.raises(ModelError, match="is not on this machine"):
        MetaPromptClassifier(on_the_hub).fit(TEXTS[:3], ["a", "a", "b"])
    assert main(["serve", str(on_the_hub), "--port", "0"]) == 2
    assert hub.requests == []


def test_an_address_in_place_of_a_base_model_is_never_asked(on_the_hub: Path, hub: Hub) -> None:
    description = json.loads((on_the_hub / "classifier.json").read_text("utf-8"))
    description["base_model"]["name"] = f"{hub.address}/me/bert"
    (on_the_hub / "classifier.json").write_text(json.dumps(description), "utf-8")
    with pytest.raises(ModelError, match="is not on this machine"):
        MetaPromptClassifier.from_pretrained(on_the_hub)
    assert hub.requests == []


def test_what_the_user_names_is_fetched_once_and_needs_no_word_from_then_on(
    fitted: MetaPromptClassifier, on_the_hub: Path, hub: Hub
) -> None:
    named = MetaPromptClassifier.from_pretrained(on_the_hub, base_model="me/bert")
    assert np.array_equal(named.predict_proba(QUESTIONS), fitted.predict_proba(QUESTIONS))
    fetched = {path.split("/")[-1] for method, path, _ in hub.requests if "/resolve/" in path}
    assert "model.safetensors" in fetched
    assert not any("run.py" in path or "onnx" in path for _, path, _ in hub.requests if "/resolve/" in path)
    hub.requests.clear()
    again = MetaPromptClassifier.from_pretrained(on_the_hub)
    assert np.array_equal(again.predict_proba(QUESTIONS), fitted.predict_proba(QUESTIONS))
    assert hub.requests == []


def test_a_pickle_is_fetched_only_if_it_is_allowed(
    on_the_hub: Path, hub: Hub, tiny_mlm_folder: Callable[[str], Path], tmp_path: Path
) -> None:
    torch.save(safetensors.torch.load_file(tiny_mlm_folder("bert") / "model.safetensors"), tmp_path / "weights")
    del hub.files["me/bert"]["model.safetensors"]
    hub.files["me/bert"]["pytorch_model.bin"] = (tmp_path / "weights").read_bytes()
    description = json.loads((on_the_hub / "classifier.json").read_text("utf-8"))
    description["settings"]["plm"]["allow_pickle"] = True
    (on_the_hub / "classifier.json").write_text(json.dumps(description), "utf-8")
    with pytest.raises(ModelError, match="it has no weights"):
        MetaPromptClassifier.from_pretrained(on_the_hub, base_model="me/bert")
    assert not any("pytorch_model" in path for _, path, _ in hub.requests)
    MetaPromptClassifier.from_pretrained(on_the_hub, base_model="me/bert", allow_pickle=True)
    with pytest.raises(ModelError, match="weights as a pickle only"):  # in the cache now, and no more trusted
        MetaPromptClassifier(on_the_hub).fit(TEXTS[:3], ["a", "a", "b"])
