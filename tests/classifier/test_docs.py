"""docs/classifier.md: its code executed as it stands there, its commands as a shell would call them."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from openprompt_meta.classifier.artefact import FILES
from openprompt_meta.cli import build_parser, main
from tests.helpers.few_texts import LABELS, TEXTS

PAGE = (Path(__file__).parents[2] / "docs" / "classifier.md").read_text(encoding="utf-8")
README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")


@pytest.fixture(autouse=True)
def in_a_folder_with_a_run(tiny_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("runs/demo/demo", "runs/intents/my"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).symlink_to(tiny_run)
    monkeypatch.chdir(tmp_path)


def test_the_code_runs_as_printed(capsys: pytest.CaptureFixture[str]) -> None:
    (block,) = re.findall(r"<!-- executed by the tests -->\n```python\n(.*?)```", PAGE, flags=re.DOTALL)
    names: dict[str, object] = {}
    exec(compile(block, "classifier.md", "exec"), names)  # noqa: S102 - our own page
    assert list(names["classifier"].classes_) == ["music", "restaurant", "weather"]  # type: ignore[attr-defined]
    assert "weather" in capsys.readouterr().out


@pytest.mark.parametrize("page", [PAGE, README], ids=["classifier.md", "README.md"])
def test_the_commands_run_as_printed(page: str, tmp_path: Path) -> None:
    rows = "".join(f"{text},{label}\n" for text, label in zip(TEXTS, LABELS, strict=True))
    for name in ("few.csv", "texts.csv", "test.csv"):
        (tmp_path / name).write_text(f"text,label\n{rows}")
    pattern = r"^openprompt-meta ((?:fit|predict|eval|explain) [^#\n]*)"
    commands = [shlex.split(line) for line in re.findall(pattern, page, flags=re.MULTILINE)]
    assert {command[0] for command in commands} == {"fit", "predict", "eval", "explain"}
    for command in commands:
        assert main(command) == 0, command
    assert len((tmp_path / "labelled.csv").read_text().splitlines()) == len(TEXTS) + 1


def test_every_file_of_the_folder_is_described() -> None:
    for name in FILES:
        assert f"`{name}`" in PAGE


def test_every_option_the_page_names_is_there() -> None:
    parser = build_parser()
    helps = "".join(
        sub.format_help()
        for action in parser._subparsers._group_actions
        for sub in action.choices.values()  # type: ignore[union-attr, attr-defined]
    )
    for option in set(re.findall(r"--[a-z][a-z-]*", PAGE)):
        assert option in helps
