"""Untrusted configurations and template texts: refused in one message, soon, with nothing run or written."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import pytest

from openprompt_meta.cli import main
from openprompt_meta.config.loading import load_config
from openprompt_meta.config.schema import RunConfig
from openprompt_meta.config.template_text import check_pieces, parse_template_text
from openprompt_meta.config.validation import FORMAT_VERSION, config_from_mapping
from openprompt_meta.config.writing import to_yaml
from openprompt_meta.errors import ConfigError, TemplateError
from tests.helpers.hostile import BAD_ENCODINGS, TEMPLATES, YAMLS

LONGEST_MESSAGE = 3_000


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")


def refusal(path: str | Path, *overrides: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load_config(path, overrides)
    told = str(caught.value)
    assert len(told) < LONGEST_MESSAGE
    return told


@pytest.mark.parametrize("text", YAMLS.values(), ids=YAMLS.keys())
def test_a_hostile_yaml_is_refused_in_little_memory(text: str) -> None:
    Path("run.yaml").write_text(text, encoding="utf-8")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    refusal("run.yaml")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000  # kB
    assert os.listdir() == ["run.yaml"]


@pytest.mark.parametrize("content", BAD_ENCODINGS.values(), ids=BAD_ENCODINGS.keys())
def test_a_yaml_in_another_encoding_is_refused_with_the_file(content: bytes) -> None:
    Path("run.yaml").write_bytes(content)
    assert "run.yaml" in refusal("run.yaml")


def test_a_pipe_in_place_of_a_yaml_is_refused_and_not_waited_for() -> None:
    os.mkfifo("run.yaml")
    assert "a pipe or a device" in refusal("run.yaml")


def test_a_link_that_leads_to_itself_is_refused() -> None:
    Path("run.yaml").symlink_to("run.yaml")
    refusal("run.yaml")


@pytest.mark.parametrize("text", TEMPLATES.values(), ids=TEMPLATES.keys())
def test_a_hostile_template_is_refused_and_runs_nothing(text: str) -> None:
    with pytest.raises(TemplateError) as caught:
        check_pieces(parse_template_text(text))
    assert len(str(caught.value)) < LONGEST_MESSAGE
    assert "prompt_pool_template.text" in refusal_of_template(text)
    assert os.listdir() == []


def refusal_of_template(text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        config_from_mapping({"prompt_pool_template": {"text": text}})
    assert len(str(caught.value)) < LONGEST_MESSAGE
    return str(caught.value)


def test_a_runs_configuration_says_which_version_it_is_of() -> None:
    text = to_yaml(RunConfig())
    assert f"\nversion: {FORMAT_VERSION}\n" in f"\n{text}"
    Path("run.yaml").write_text(text, encoding="utf-8")
    assert load_config("run.yaml") == RunConfig()


def test_a_configuration_of_a_newer_version_is_refused_before_its_keys_are_looked_at() -> None:
    Path("run.yaml").write_text(f"meta:\n  a_key_of_the_future: 1\nversion: {FORMAT_VERSION + 1}\n", encoding="utf-8")
    told = refusal("run.yaml")
    assert "run.yaml, line 3: the configuration is of version 2" in told
    assert "update openprompt_meta" in told
    assert "a_key_of_the_future" not in told
    Path("child.yaml").write_text("inherit: run.yaml", encoding="utf-8")
    assert "run.yaml, line 3" in refusal("child.yaml")
    with pytest.raises(ConfigError, match="of version 7"):
        config_from_mapping({"version": 7})


@pytest.mark.parametrize("version", ["0", "-1", "one", "1.0", "true", "[1]", "null", "9" * 90])
def test_what_is_no_version_is_refused(version: str) -> None:
    Path("run.yaml").write_text(f"version: {version}\n", encoding="utf-8")
    assert "run.yaml, line 1" in refusal("run.yaml")


def test_the_version_is_no_setting_of_the_command_line() -> None:
    Path("run.yaml").write_text("version: 1\n", encoding="utf-8")
    assert "version: stands in a file" in refusal("run.yaml", "version=1")


def test_a_run_folder_of_a_newer_version_is_refused_by_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    Path("run").mkdir()
    Path("run/config.yaml").write_text("version: 99\n", encoding="utf-8")
    assert main(["resume", "run"]) == 2
    assert "config.yaml, line 1: the configuration is of version 99" in capsys.readouterr().err
    assert os.listdir("run") == ["config.yaml"]


def test_a_text_with_any_line_break_of_yaml_reads_back() -> None:
    for character in "\n\r\x85\u2028\u2029\ufeff\x7f\x1b\t":
        config = config_from_mapping({"dataset": {"text_column": f"a{character}b{character}"}})
        Path("run.yaml").write_text(to_yaml(config), encoding="utf-8", newline="")
        assert load_config("run.yaml") == config
