from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tests.helpers.interpreters import ROOT


@pytest.fixture(scope="module")
def runner() -> ModuleType:
    spec = importlib.util.spec_from_file_location("run_compat", ROOT / "runners" / "run_compat.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def test_each_role_names_one_transformers_for_this_python(runner: ModuleType) -> None:
    for role in ("oldest", "newest"):
        names = [requirement.name for requirement in runner.requirements_for(role, None)]
        assert names.count("transformers") == 1
    assert "transformers==5.99.0" in [str(r) for r in runner.requirements_for("newest", "5.99.0")]


def test_errors_count_as_failures(runner: ModuleType, tmp_path: Path) -> None:
    report = tmp_path / "report.xml"
    report.write_text('<testsuites><testsuite tests="9" failures="2" errors="1" skipped="3"/></testsuites>')
    assert runner.count(report) == {"passed": 3, "failed": 3, "skipped": 3}


def test_a_failing_environment_stands_out_in_the_table(runner: ModuleType) -> None:
    versions = dict.fromkeys(("python", *runner.SHOWN), "1.0+cpu")
    good = runner.Result("oldest", versions, {"passed": 5, "failed": 0, "skipped": 1}, ok=True)
    bad = runner.Result("newest", versions, {"passed": 4, "failed": 1, "skipped": 1}, ok=False)
    rows = [line for line in runner.table([good, bad]).splitlines() if line.startswith("|")]
    assert len({row.count("|") for row in rows}) == 1
    assert rows[2].endswith("| 5 | 0 | 1 | works |")
    assert rows[3].endswith("| 4 | 1 | 1 | **fails** |")
    assert "+cpu" not in "".join(rows)


@pytest.mark.parametrize(("outcomes", "code"), [((True, True), 0), ((True, False), 1)])
def test_one_failing_environment_fails_the_run(
    outcomes: tuple[bool, ...], code: int, runner: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    versions = dict.fromkeys(("python", *runner.SHOWN), "1.0")
    counts = {"passed": 1, "failed": 0, "skipped": 0}
    left = iter(outcomes)
    monkeypatch.setattr(runner, "environment", lambda role, newest: "python")
    monkeypatch.setattr(runner, "run_tests", lambda role, python: runner.Result(role, versions, counts, next(left)))
    monkeypatch.setattr(sys, "argv", ["run_compat", "--only", "oldest", "--only", "newest"])
    assert runner.main() == code


def test_the_table_has_its_place_in_the_docs(runner: ModuleType) -> None:
    assert runner.TABLE.search(runner.PAGE.read_text("utf-8"))
