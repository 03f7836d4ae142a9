"""The ways to install say the same: requirements/no-deps.txt for pip, the extra ``upstream`` for uv."""

from __future__ import annotations

import ast
import importlib.metadata
import re
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
PROJECT = (ROOT / "pyproject.toml").read_text(encoding="utf-8")


def pinned() -> dict[str, str]:
    lines = (ROOT / "requirements" / "no-deps.txt").read_text(encoding="utf-8").splitlines()
    pins = [line.split()[0] for line in lines if line and not line.startswith(("#", "    --hash="))]
    return {pin.partition("==")[0]: pin for pin in pins}


def upstream() -> list[str]:
    (extra,) = re.findall(r'"upstream": (\[[^\]]*\])', (ROOT / "setup.py").read_text(encoding="utf-8"))
    found: list[str] = ast.literal_eval(extra)
    return found


def test_pip_and_uv_are_given_the_same_versions() -> None:
    assert upstream() == list(pinned().values())


def test_uv_leaves_out_what_we_do_not_install_ourselves() -> None:
    (excluded,) = re.findall(r"exclude-dependencies = (\[[^\]]*\])", PROJECT)
    left_out = {canonicalize_name(name) for name in ast.literal_eval(excluded)}
    ours = re.findall(r"install_requires=(\[.*?\n    \])", (ROOT / "setup.py").read_text(encoding="utf-8"), re.DOTALL)
    own = {canonicalize_name(Requirement(one).name) for one in ast.literal_eval(ours[0])}
    assert not left_out & own
    asked = {
        canonicalize_name(Requirement(one).name)
        for package in pinned()
        for one in importlib.metadata.requires(package) or []
        if "extra ==" not in one
    }
    # requests is transformers' own need, and there in any case.
    assert asked - own - left_out <= {"requests"}


def test_both_build_learn2learn_alike() -> None:
    assert 'config-settings="--build-option=build_ext"' in (ROOT / "requirements" / "no-deps.txt").read_text("utf-8")
    assert 'learn2learn = { "--build-option" = "build_ext" }' in PROJECT


def test_the_image_is_made_of_the_same_lists() -> None:
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    for name in re.findall(r"requirements/[\w.-]+", text):
        assert (ROOT / name).is_file(), name
    assert "--no-deps -r requirements/no-deps.txt" in text
