from __future__ import annotations

import hashlib
import http.server
import io
import shutil
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from openprompt_meta.data.downloading import download, git_blob_id
from openprompt_meta.data.facts import SetFacts, SourceFile, facts_of
from openprompt_meta.errors import DataError

CONTENT = b'{"raw": "some text", "label": 0}\n' * 5000
GOOD = SourceFile("hwu64.json", len(CONTENT), hashlib.sha256(CONTENT).hexdigest(), "unused")
BLOB = SourceFile("20news.json", None, None, hashlib.sha1(b"blob %d\0" % len(CONTENT) + CONTENT).hexdigest())  # noqa: S324


class Server(http.server.ThreadingHTTPServer):
    """Serves CONTENT in the manner that the first part of the path names."""

    daemon_threads = True
    block_on_close = False

    def __init__(self) -> None:
        self.release = threading.Event()
        super().__init__(("127.0.0.1", 0), Handler)


class Handler(http.server.BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        manner = self.path.split("/")[1]
        if manner == "missing":
            self.send_error(404)
            return
        body = {"altered": CONTENT.replace(b"some", b"same", 1), "longer": CONTENT + b"x"}.get(manner, CONTENT)
        self.send_response(200)
        if manner not in {"unannounced", "endless"}:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if manner in {"cut", "unannounced"}:
            self.wfile.write(body[:1000])
        elif manner == "hanging":
            self.wfile.write(body[:1000])
            self.wfile.flush()
            self.server.release.wait(30)
        elif manner == "endless":
            while True:
                try:
                    self.wfile.write(body)
                except OSError:
                    return
        else:
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    files = {"hwu64": GOOD, "20news": BLOB}

    def facts(name: str) -> SetFacts:
        return replace(facts_of(name), file=files[name])

    monkeypatch.setattr("openprompt_meta.data.downloading.facts_of", facts)
    for variable in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(variable, raising=False)
    with Server() as httpd:
        thread = threading.Thread(target=httpd.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{httpd.server_address[1]}"
        httpd.release.set()
        httpd.shutdown()


@pytest.mark.parametrize("name", ["hwu64", "20news"])
def test_a_good_file_arrives_whole_and_alone(server: str, tmp_path: Path, name: str) -> None:
    path = download(name, tmp_path / "data", base_url=f"{server}/good/")
    assert path.read_bytes() == CONTENT
    assert [file.name for file in path.parent.iterdir()] == [f"{name}.json"]


@pytest.mark.parametrize("name", ["hwu64", "20news"])
@pytest.mark.parametrize(
    ("manner", "message"),
    [
        ("missing", "404"),
        ("altered", "not the expected one"),
        ("cut", "bytes instead of|not the expected one|could not be fetched"),
        ("unannounced", "bytes instead of|not the expected one"),
        ("longer", "announces|not the expected one"),
        ("hanging", "timed out"),
        ("endless", "more than the expected"),
    ],
)
def test_anything_else_is_refused_and_leaves_nothing_behind(
    server: str, tmp_path: Path, name: str, manner: str, message: str
) -> None:
    with pytest.raises(DataError, match=message):
        download(name, tmp_path, base_url=f"{server}/{manner}", timeout=0.5, size_limit=2 * len(CONTENT))
    assert list(tmp_path.iterdir()) == []


def test_a_download_that_takes_too_long_as_a_whole_is_given_up(server: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="not finished after"):
        download("hwu64", tmp_path, base_url=f"{server}/good", time_limit=0)
    assert list(tmp_path.iterdir()) == []


def test_a_server_that_is_not_there_is_an_error_of_the_family(tmp_path: Path, server: str) -> None:
    with pytest.raises(DataError, match="could not be fetched"):
        download("hwu64", tmp_path, base_url="http://127.0.0.1:1/", timeout=1)
    with pytest.raises(DataError, match="only http and https"):
        download("hwu64", tmp_path, base_url=f"file://{tmp_path}")
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_there_is_kept_if_it_is_right_and_never_overwritten(server: str, tmp_path: Path) -> None:
    path = download("hwu64", tmp_path, base_url=f"{server}/good")
    assert download("hwu64", tmp_path, base_url=f"{server}/missing") == path
    path.write_bytes(b"mine")
    with pytest.raises(DataError, match="exists but is not the authors' file"):
        download("hwu64", tmp_path, base_url=f"{server}/good")
    assert path.read_bytes() == b"mine"


@pytest.mark.skipif(shutil.which("git") is None, reason="git is the oracle")
def test_blob_ids_are_those_of_git(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(CONTENT)
    said = subprocess.run(
        ["git", "hash-object", "--no-filters", "file"], cwd=tmp_path, check=True, capture_output=True, text=True
    )
    assert git_blob_id(io.BytesIO(CONTENT), len(CONTENT)) == said.stdout.strip()


def test_an_unknown_set_is_refused_before_anything_is_fetched(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="Did you mean 'huffpost'"):
        download("hufpost", tmp_path)
