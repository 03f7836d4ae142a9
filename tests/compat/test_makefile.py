from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.interpreters import ROOT

MAKE = shutil.which("make")
pytestmark = pytest.mark.skipif(MAKE is None, reason="there is no make on this machine")


def make(*arguments: str, path: str | None = None) -> subprocess.CompletedProcess[str]:
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("MAKE", "MFLAGS"))}
    if path is not None:
        environment["PATH"] = path
    return subprocess.run(
        [str(MAKE), *arguments], cwd=ROOT, capture_output=True, text=True, check=False, env=environment
    )


def program(file: Path, text: str) -> str:
    file.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    file.chmod(0o755)
    return str(file)


@pytest.mark.parametrize("target", ["install", "run", "test"])
def test_an_old_python_is_refused_in_one_sentence_before_anything_is_installed(target: str, tmp_path: Path) -> None:
    old = program(tmp_path / "python", f"echo called >> {tmp_path}/calls\necho 3.9")
    done = make(target, f"PYTHON={old}", f"VENV={tmp_path}/venv")
    assert done.returncode != 0
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1
    assert "is Python 3.9, but 3.10 or newer is needed" in done.stderr
    assert not (tmp_path / "venv").exists()


def test_a_python_that_does_not_exist_is_refused_in_one_sentence(tmp_path: Path) -> None:
    done = make("install", f"PYTHON={tmp_path}/none", f"VENV={tmp_path}/venv")
    assert done.returncode != 0
    assert len(done.stderr.splitlines()) == 1
    assert "does not run" in done.stderr


def test_a_missing_compiler_is_refused_in_one_sentence_before_anything_is_installed(tmp_path: Path) -> None:
    empty = tmp_path / "bin"
    empty.mkdir()
    done = make("install", f"PYTHON={sys.executable}", f"VENV={tmp_path}/venv", path=str(empty))
    assert done.returncode != 0
    assert len(done.stderr.splitlines()) == 1
    assert "a C compiler is needed to build learn2learn" in done.stderr
    assert not (tmp_path / "venv").exists()


def test_an_environment_that_is_up_to_date_is_not_installed_again(tmp_path: Path) -> None:
    binaries = tmp_path / "bin"
    binaries.mkdir()
    program(binaries / "python", f"echo $* >> {tmp_path}/calls")
    (tmp_path / ".installed").touch()
    done = make("test", f"VENV={tmp_path}", "PYTHON=false")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "calls").read_text().splitlines() == ["-m pytest -n auto"]


def test_a_changed_list_of_versions_is_installed_again(tmp_path: Path) -> None:
    (tmp_path / ".installed").touch()
    os.utime(tmp_path / ".installed", (0, 0))
    done = make("--dry-run", "test", f"VENV={tmp_path}", f"PYTHON={sys.executable}")
    assert "requirements/lock.txt" in done.stdout
    assert "--no-deps --require-hashes -r requirements/no-deps.txt" in done.stdout


def test_help_is_the_default_and_names_every_target() -> None:
    done = make()
    assert done.returncode == 0
    for target in ("help", "install", "run", "test", "coverage", "lint", "bench", "compat", "release", "clean"):
        assert f"make {target} " in done.stdout
