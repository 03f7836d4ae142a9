"""A YAML that ships is found by its name, from any folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from openprompt_meta.cli import main
from openprompt_meta.config import loading
from openprompt_meta.config.loading import find_yaml, load_config, shipped_yamls
from openprompt_meta.config.schema import RunConfig
from openprompt_meta.errors import ConfigError

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", ["hwu64/5shot-minilm", "hwu64/5shot-minilm.yaml", "demo", "base/bert"])
def test_a_name_with_or_without_suffix_is_the_file_that_ships(name: str) -> None:
    assert find_yaml(name) == ROOT / "yamls" / f"{name.removesuffix('.yaml')}.yaml"
    assert load_config(find_yaml(name)) != RunConfig()


@pytest.mark.parametrize("name", ["demo", "demo.yaml"])
def test_a_file_of_that_path_wins(name: str, elsewhere: Path) -> None:
    (elsewhere / name).write_text("meta: {way: 3}", encoding="utf-8")
    assert load_config(find_yaml(name)).meta.way == 3


def test_a_folder_of_that_name_is_no_file(elsewhere: Path) -> None:
    (elsewhere / "demo").mkdir()
    assert find_yaml("demo") == ROOT / "yamls" / "demo.yaml"
    (elsewhere / "mine").mkdir()
    with pytest.raises(ConfigError, match="mine is a folder"):
        load_config(find_yaml("mine"))


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"'hwu64/5shot-minilm' or 'hwu64/1shot-minilm'") as refused:
        find_yaml("hwu64/5shot-minlm")
    assert "no file hwu64/5shot-minlm" in str(refused.value)
    with pytest.raises(ConfigError, match="openprompt-meta yamls"):
        find_yaml("xyz")


@pytest.mark.parametrize("given", ["nope.yaml", "no\0pe", "n" * 5000 + ".yaml"])
def test_a_path_that_cannot_be_read_is_refused_as_a_path(given: str) -> None:
    with pytest.raises(ConfigError):
        load_config(find_yaml(given))


def test_a_file_of_ones_own_inherits_by_name(elsewhere: Path) -> None:
    (elsewhere / "my.yaml").write_text("inherit: [base/intents, base/bert.yaml]\nmeta: {way: 3}", encoding="utf-8")
    config = load_config("my.yaml")
    assert "Topic is about" in config.prompt_pool_template.text
    assert (config.plm.model_path, config.meta.way) == ("bert-base-uncased", 3)


def test_what_stands_beside_the_file_wins_over_the_name(elsewhere: Path) -> None:
    (elsewhere / "base").mkdir()
    (elsewhere / "base" / "bert.yaml").write_text("meta: {way: 4}", encoding="utf-8")
    (elsewhere / "my.yaml").write_text("inherit: base/bert.yaml", encoding="utf-8")
    assert load_config("my.yaml").meta.way == 4


def test_every_yaml_says_something_that_no_other_and_no_default_says() -> None:
    configs = [RunConfig(), *(load_config(file) for file in shipped_yamls().values())]
    assert all(one != other for number, one in enumerate(configs) for other in configs[:number])


def test_the_command_lists_them_with_what_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["yamls"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(shipped_yamls())
    assert "hwu64/5shot-minilm" in shipped_yamls()
    assert not any(name.startswith("openprompt/") for name in shipped_yamls())
    assert all(line.split(maxsplit=1)[1].endswith((".", ")", "`.")) for line in lines)


def test_the_folder_of_a_run_is_named_after_the_yaml_and_the_overrides(monkeypatch: pytest.MonkeyPatch) -> None:
    from openprompt_meta.cli import runs

    folders = []
    monkeypatch.setattr(runs, "_carry_out", lambda options, config, folder: folders.append(folder) or 0)
    for given in ("hwu64/5shot-minilm", "hwu64/5shot-minilm.yaml", ROOT / "yamls/hwu64/5shot-minilm.yaml"):
        assert main(["train", str(given), "meta.iterations=1"]) == 0
    assert set(folders) == {Path("runs/hwu64/5shot-minilm-meta.iterations=1")}


def test_an_installed_package_has_them_inside(elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = elsewhere / "site-packages" / "openprompt_meta"
    (package / "yamls").mkdir(parents=True)
    monkeypatch.setattr(loading, "_PACKAGE", package)
    assert loading._folder() == package / "yamls"
