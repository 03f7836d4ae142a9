"""Fixtures that several folders of tests share."""

from __future__ import annotations

import atexit
import copy
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

# Models of the tests are too small to gain from threads, and lose much by them when several runs share the cores.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# No test reads or writes the user's own cache.
os.environ["OPENPROMPT_META_CACHE"] = tempfile.mkdtemp(prefix="openprompt_meta-tests-")
atexit.register(shutil.rmtree, os.environ["OPENPROMPT_META_CACHE"], ignore_errors=True)

import openprompt_meta  # noqa: E402, F401 - before any test module imports openprompt, which it makes importable

if TYPE_CHECKING:
    from openprompt_meta.encoder.loading import LoadedMLM


@pytest.fixture(autouse=True)
def threads() -> Iterator[None]:
    """As many threads for the next test as for this one: it may compare bits with a process of its own."""
    yield
    if "torch" in sys.modules and sys.modules["torch"].get_num_threads() != int(os.environ["OMP_NUM_THREADS"]):
        sys.modules["torch"].set_num_threads(int(os.environ["OMP_NUM_THREADS"]))


@pytest.fixture
def hub_mode(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[bool], None]]:
    """``hub_mode(False)``: `huggingface_hub` with a network or without one, until the test ends.

    The client asks once a thread whether it is offline and keeps the session; one of another test is thrown away.
    """
    from huggingface_hub import constants
    from huggingface_hub.utils import _http

    forget: Callable[[], None] = getattr(_http, "reset_sessions", None) or _http.close_session  # before 1.0, and since

    def switch(offline: bool) -> None:
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", offline)
        forget()

    yield switch
    forget()


@pytest.fixture(scope="session")
def tiny_mlm_folder(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """``tiny_mlm_folder("roberta")``: a folder that ``load_mlm`` reads, made once a session; do not write to it."""
    return lambda family: _made(family, tmp_path_factory)[0]


@pytest.fixture
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], LoadedMLM]:
    """``tiny("roberta")``: a tiny masked language model in evaluation mode, the test's own to change."""

    def load(family: str = "bert") -> LoadedMLM:
        loaded = _made(family, tmp_path_factory)[1]
        model = copy.deepcopy(loaded.model)
        return loaded._replace(model=model, config=model.config)

    return load


_CACHE: dict[str, tuple[Path, LoadedMLM]] = {}


def _made(family: str, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, LoadedMLM]:
    if family not in _CACHE:
        from tests.helpers.tiny_models import tiny_mlm  # not at the top: it loads torch and transformers

        folder = tmp_path_factory.mktemp(family)
        _CACHE[family] = folder, tiny_mlm(family, folder)
    return _CACHE[family]
