"""Saved classifiers by a stranger: sizes, numbers and names without end, and what only looks right: one sentence."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from openprompt_meta import MetaPromptClassifier
from openprompt_meta.cli import main
from openprompt_meta.config.loading import load_config
from openprompt_meta.errors import ArtefactError, ConfigError, ModelError, OpenPromptMetaError, RunError
from openprompt_meta.runs.run import Run
from openprompt_meta.runs.training import Training
from openprompt_meta.tensor_files import read_tensors, write_tensors
from tests.helpers.services import new_classifier
from tests.helpers.small_runs import small_config, write_data

HUGE = 10**400


@pytest.fixture
def saved(tiny_mlm_folder: Callable[[str], Path], tmp_path: Path) -> Path:
    new_classifier(tiny_mlm_folder("bert"), fitted=True).save_pretrained(tmp_path / "saved")
    return tmp_path / "saved"


def edit(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    content = json.loads((folder / "classifier.json").read_text("utf-8"))
    change(content)
    (folder / "classifier.json").write_text(json.dumps(content), "utf-8")


def refusal(folder: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """What Python and the command say of a classifier; neither with a traceback."""
    with pytest.raises(OpenPromptMetaError) as refused:
        MetaPromptClassifier.from_pretrained(folder).predict(["rain"])
    assert main(["explain", str(folder), "rain"]) == 2
    assert "Traceback" not in capsys.readouterr().err
    assert len(str(refused.value)) < 2000
    return str(refused.value)


# -- sizes, numbers, names --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["classifier.json", "classifier.safetensors", "prompt_pool.safetensors", "support.json"]
)
def test_a_file_of_twelve_gigabytes_is_not_read(
    saved: Path, name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with (saved / name).open("r+b") as file:
        file.truncate(12_000_000_000)  # of nothing: it takes no room on the disk
    assert name in refusal(saved, capsys)


@pytest.mark.parametrize(
    "change",
    [
        lambda content: content.update(seed=HUGE),
        lambda content: content.update(seed=-1),
        lambda content: content["metrics"].update(accuracy=HUGE),
        lambda content: content["metrics"].update(accuracy="good"),
        lambda content: content["task"].update(inner_losses=[HUGE]),
        lambda content: content["settings"]["meta"].update(inner_lr=HUGE),
        lambda content: content["settings"]["prompt_pool_template"].update(num_prompts=HUGE),
        lambda content: content["settings"]["rep_verbalizer"].update(temperature=HUGE),
        lambda content: content.update(format_version=HUGE),
        lambda content: content.update(format_version=True),
        lambda content: content.update(format_version=1.0),
        lambda content: content["base_model"].update(name="x" * 100_000),
        lambda content: content["base_model"].update(name="a\0b"),
        lambda content: content.update(written_by="x" * 100_000, format_version=9),
    ],
)
def test_a_value_without_end_or_of_another_kind_is_one_message(
    saved: Path, change: Callable[[dict[str, Any]], object], capsys: pytest.CaptureFixture[str]
) -> None:
    edit(saved, change)
    assert refusal(saved, capsys)


@pytest.mark.parametrize("name", ["x" * 100_000, "a/" * 5_000, "a\0b", ""])
def test_a_name_that_no_folder_can_have_is_one_that_is_not_there(
    saved: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ArtefactError, match=r"There is no folder|holds no saved classifier"):
        MetaPromptClassifier.from_pretrained(name)
    with pytest.raises((ModelError, ConfigError)):
        MetaPromptClassifier.from_pretrained(saved, base_model=name)
    capsys.readouterr()


@pytest.mark.parametrize(
    "command",
    [
        ["train", "NAME"],
        ["train", "demo", "run.folder=NAME", "meta.iterations=1"],
        ["train", "demo", "dataset.path=NAME"],
        ["resume", "NAME"],
        ["fit", "r", "--data", "NAME", "--out", "o"],
        ["serve", "NAME"],
        ["report", "NAME"],
        ["data", "check", "NAME"],
    ],
)
def test_a_name_without_end_is_cut_in_messages(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([word.replace("NAME", "x" * 100_000) for word in command]) == 2
    said = capsys.readouterr().err
    assert "xxx…xxx" in said
    assert len(said) < 3000


# -- what only looks right --------------------------------------------------------------------------------------------


def test_a_key_that_is_there_twice_is_refused(saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    content = (saved / "classifier.json").read_text("utf-8").replace('"seed": 0', '"seed": 0, "seed": 1')
    (saved / "classifier.json").write_text(content, "utf-8")
    assert "the key 'seed' is given twice" in refusal(saved, capsys)


@pytest.mark.parametrize(
    ("name", "cut"),
    [
        ("feature_sum", lambda value: value[:1]),
        ("feature_sum", lambda value: value[:, :1]),
        ("feature_sum", lambda value: value[0]),
        ("feature_sum", lambda value: value[None]),
        ("feature_count", lambda value: value[:1]),
        ("feature_count", lambda value: value[:, None]),
    ],
)
def test_averages_that_torch_would_stretch_are_refused(
    saved: Path, name: str, cut: Callable[[torch.Tensor], torch.Tensor], capsys: pytest.CaptureFixture[str]
) -> None:
    file = saved / "classifier.safetensors"
    tensors, metadata = read_tensors(file)
    tensors[f"verbalizer.{name}"] = cut(tensors[f"verbalizer.{name}"]).contiguous()
    write_tensors(file, tensors, metadata)
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    edit(saved, lambda content: content["files"].update({file.name: digest}))
    assert f"{name} has shape" in refusal(saved, capsys)


# -- files of others --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "secret",
    [
        "root:x:hunter2:/root",
        "password: hunter2",
        "meta:\n  hunter2: 1\n",
        "- hunter2",
        "meta: hunter2",
        "hunter2: [",
        "version: hunter2",
        "\thunter2",
    ],
)
def test_a_file_elsewhere_is_named_and_nothing_of_it_is_shown(
    tmp_path: Path, secret: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "theirs").mkdir()
    (tmp_path / "ours").mkdir()
    elsewhere = tmp_path / "theirs" / "secret.yaml"
    elsewhere.write_text(secret)
    (tmp_path / "ours" / "link.yaml").symlink_to(elsewhere)
    for name in (str(elsewhere), "../theirs/secret.yaml", "link.yaml"):
        (tmp_path / "ours" / "run.yaml").write_text(f"inherit: {name}\n")
        with pytest.raises(ConfigError, match="nothing of it is shown") as refused:
            load_config(tmp_path / "ours" / "run.yaml")
        assert "hunter2" not in str(refused.value)
        assert main(["train", str(tmp_path / "ours" / "run.yaml")]) == 2
        assert "hunter2" not in "".join(capsys.readouterr())


def test_a_configuration_elsewhere_is_inherited_as_ever(tmp_path: Path) -> None:
    (tmp_path / "ours").mkdir()
    (tmp_path / "base.yaml").write_text("inherit: base/intents\npreset: paper\nmeta:\n  way: 7\nplm:\n")
    (tmp_path / "ours" / "run.yaml").write_text("inherit: ../base.yaml\n")
    assert load_config(tmp_path / "ours" / "run.yaml").meta.way == 7


def test_a_run_folder_that_is_deleted_in_mid_run_is_said_to_be_gone(
    tiny_mlm_folder: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = small_config(tiny_mlm_folder("bert"), write_data(tmp_path / "data"))
    real = Training._step

    def deleted(self: Training, bar: Any) -> None:
        real(self, bar)
        if self.progress.iteration == 3:
            (tmp_path / "run").rename(tmp_path / "moved")

    monkeypatch.setattr(Training, "_step", deleted)
    with pytest.raises(RunError, match=r"is gone: it was deleted or moved .*Put it back") as refused:
        Run(config, tmp_path / "run", show_progress=False).train()
    assert "is as it was" not in str(refused.value)
