"""Where a run goes if nobody says: two configurations never meet in one folder, and one finds its own again."""

from __future__ import annotations

from pathlib import Path

import pytest

from openprompt_meta.config.schema import RunConfig
from openprompt_meta.config.writing import to_yaml
from openprompt_meta.runs.folder import RunFolder, default_run_folder


def claim(folder: Path, config: RunConfig) -> None:
    folder.mkdir(parents=True)
    RunFolder(folder).config_file.write_text(to_yaml(config), encoding="utf-8")


def test_a_changed_line_of_the_yaml_goes_to_a_folder_that_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    rep, warp = RunConfig(), RunConfig(verbalizer="warp_verbalizer")
    first = default_run_folder(rep, "my")
    assert first == Path("runs/demo/my")
    claim(first, rep)
    assert default_run_folder(rep, "my") == first
    assert not caplog.records
    second = default_run_folder(warp, "my")
    assert second == Path("runs/demo/my-verbalizer=warp_verbalizer")
    assert "runs/demo/my holds a run with other settings; this one goes to" in caplog.text
    claim(second, warp)
    assert default_run_folder(warp, "my") == second


def test_overrides_stand_in_the_name_and_a_long_one_stays_short(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    config = RunConfig()
    assert default_run_folder(config, "my", ["meta.shot=1", "run.seeds=[0,1]"]).name == "my-meta.shot=1-run.seeds=_0_1"
    assert default_run_folder(config, "my", ["run.folder=x"]).name == "my"
    texts = [f"prompt_pool_template.text={'a' * 300}{i}" for i in range(2)]
    names = {default_run_folder(config, "my", [text]).name for text in texts}
    assert len(names) == 2
    assert all(len(name) <= 100 for name in names)
