"""Whole runs by OpenPrompt's own runners on a CPU: every verbalizer, resume, test from a checkpoint, refusals."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from openprompt import PromptForClassification
from openprompt.data_utils import InputFeatures
from openprompt.protoverb_trainer import ProtoVerbClassificationRunner as StockProtoVerbRunner
from openprompt.trainer import ClassificationRunner as StockRunner

from openprompt_meta.errors import (
    CheckpointError,
    ConfigError,
    DataError,
    VerbalizerError,
)
from openprompt_meta.openprompt_runs import runners
from openprompt_meta.openprompt_runs.config import make_config
from openprompt_meta.openprompt_runs.run import resume_openprompt, run_openprompt, test_openprompt
from openprompt_meta.openprompt_runs.runners import read_runner_state
from tests.helpers.openprompt_runs import CLASSES, predictions, small_config, write_folder

pytestmark = pytest.mark.prompts

OURS = (
    "rep_verbalizer",
    "adaptive_verbalizer",
    "warp_verbalizer",
    "dart_verbalizer",
    "proto_verbalizer",
    "manual_verbalizer",
    "name_verbalizer",
)
OPENPROMPTS = ("soft_verbalizer", "one2one_verbalizer", "automatic_verbalizer")


@pytest.fixture
def given(tiny_mlm_folder: Callable[[str], Path], tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """A small configuration on a tiny BERT, to be completed by keyword."""
    data = write_folder(tmp_path / "data")
    return lambda **top: small_config(tiny_mlm_folder("bert"), data, tmp_path / "logs", **top)


@pytest.mark.parametrize("name", [*OURS, *OPENPROMPTS])
def test_every_verbalizer_runs_and_tests_the_same_from_its_checkpoint(
    name: str, given: Callable[..., dict[str, Any]]
) -> None:
    config = make_config(given(verbalizer=name))
    result = run_openprompt(config)
    predicted = predictions(result.folder)
    labels = (result.folder / "test_labels.txt").read_text().split()
    accuracy = sum(one == other for one, other in zip(predicted, labels, strict=True)) / len(labels)
    assert result.metrics["accuracy"] == pytest.approx(accuracy)
    assert json.loads((result.folder / "results.json").read_text())["metrics"] == result.metrics

    (result.folder / "test_preds.txt").unlink()
    again = test_openprompt(config, result.folder)
    assert predictions(again.folder) == predicted
    assert again.metrics == result.metrics


@pytest.mark.parametrize("name", ["rep_verbalizer", "warp_verbalizer", "proto_verbalizer"])
def test_a_resumed_run_ends_as_an_uninterrupted_one(
    name: str, given: Callable[..., dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    train = {"num_epochs": 4, "batch_size": 4, "train_verblizer": "alternate"}
    logs = given()["logging"]
    whole = run_openprompt(
        make_config(given(verbalizer=name, train=train, logging={**logs, "unique_string": "whole"}))
    )

    config = make_config(given(verbalizer=name, train=train))
    with monkeypatch.context() as patch:
        patch.setattr(runners.ClassificationRunner, "training_epoch", _stop_in_epoch(2))
        patch.setattr(runners.ProtoVerbClassificationRunner, "training_epoch", _stop_in_epoch(2))
        with pytest.raises(KeyboardInterrupt):
            run_openprompt(config)
    folder = Path(config.logging.path_base) / "run"
    assert read_runner_state(folder / "checkpoints" / "last.ckpt")["cur_epoch"] == 1
    torch.rand(17)  # whatever else a process draws in between
    resumed = resume_openprompt(config, folder)

    assert resumed.metrics == whole.metrics
    ends = [read_runner_state(run / "checkpoints" / "last.ckpt") for run in (whole.folder, folder)]
    _assert_equal(*ends)


def _stop_in_epoch(number: int) -> Callable[..., Any]:
    def training_epoch(self: Any, epoch: int) -> Any:
        if epoch == number:
            raise KeyboardInterrupt
        return StockRunner.training_epoch(self, epoch)

    return training_epoch


def _assert_equal(one: Any, other: Any) -> None:
    if isinstance(one, torch.Tensor):
        assert torch.equal(one, other)
    elif isinstance(one, dict):
        assert one.keys() == other.keys()
        for key in one:
            _assert_equal(one[key], other[key])
    elif isinstance(one, list):
        assert len(one) == len(other)
        for left, right in zip(one, other, strict=True):
            _assert_equal(left, right)
    else:
        assert one == other


def test_a_seed_gives_the_same_run_and_zero_is_a_seed(given: Callable[..., dict[str, Any]]) -> None:
    def learned(seed: int) -> torch.Tensor:
        config = make_config(given(reproduce={"seed": seed}))
        folder = run_openprompt(config).folder
        state = read_runner_state(folder / "checkpoints" / "last.ckpt")["state_dict"]
        pool: torch.Tensor = state["prompt_model.template.pool.prompts"]
        return pool

    assert torch.equal(learned(0), learned(0))
    assert not torch.equal(learned(0), learned(1))


# -- the runners ------------------------------------------------------------------------------------------------------


def test_the_runners_are_openprompts_own() -> None:
    for ours, stock in (
        (runners.ClassificationRunner, StockRunner),
        (runners.ProtoVerbClassificationRunner, StockProtoVerbRunner),
    ):
        assert issubclass(ours, stock)
        for method in ("training_epoch", "inference_epoch", "training_step", "configure_optimizers", "run", "test"):
            assert getattr(ours, method) is getattr(stock, method)


def test_protoverb_gets_its_runner(given: Callable[..., dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    monkeypatch.setattr(runners.ProtoVerbClassificationRunner, "on_fit_start", lambda self: made.append(self))
    run_openprompt(make_config(given(verbalizer="proto_verbalizer")))
    assert len(made) == 1


def test_batches_follow_the_model_whatever_device_is_asked_for() -> None:
    model = torch.nn.Linear(2, 2, device="meta")
    loader = runners.FollowingLoader([InputFeatures(input_ids=torch.ones(1, 3), label=torch.zeros(1))], model)
    (batch,) = loader
    assert len(loader) == 1
    for sent in (batch.to("cuda:0"), batch.cuda()):
        assert sent.to_dict()["input_ids"].device.type == "meta"


def test_without_cuda_the_run_is_on_the_cpu_and_the_environment_is_left_alone(
    given: Callable[..., dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    config = make_config(given())
    assert config.environment.num_gpus == 1
    run_openprompt(config)
    assert config.environment.num_gpus == 1  # the caller's is not changed
    assert "CUDA_VISIBLE_DEVICES" not in os.environ


@pytest.mark.parametrize("moment", ["pre", "alternate", "post"])
def test_prototypes_are_learned_and_are_those_that_are_tested(
    moment: str, given: Callable[..., dict[str, Any]]
) -> None:
    train = {"num_epochs": 1, "batch_size": 4, "train_verblizer": moment}
    result = run_openprompt(make_config(given(verbalizer="proto_verbalizer", train=train)))
    best = read_runner_state(result.folder / "checkpoints" / "best.ckpt")
    assert best["verbalizer"]["trained"] is True
    assert best["verbalizer"]["optimizer"]["state"][0]["step"] == 5  # one round of its five steps


# -- checkpoints ------------------------------------------------------------------------------------------------------


def test_a_frozen_model_is_not_in_the_checkpoint(given: Callable[..., dict[str, Any]]) -> None:
    result = run_openprompt(make_config(given()))
    state = read_runner_state(result.folder / "checkpoints" / "best.ckpt")["state_dict"]
    assert sorted(state) == [
        "prompt_model.template.pool.keys",
        "prompt_model.template.pool.prompts",
        "verbalizer.feature_count",
        "verbalizer.feature_sum",
        "verbalizer.seen_this_round",
    ]


def test_a_tuned_model_is_and_comes_back(given: Callable[..., dict[str, Any]]) -> None:
    plm = given()["plm"]
    tuned = {**plm, "eval_mode": False, "optimize": {"freeze_para": False, "lr": 0.01}}
    config = make_config(given(plm=tuned, verbalizer="warp_verbalizer", template="manual_template"))
    result = run_openprompt(config)
    predicted = predictions(result.folder)
    state = read_runner_state(result.folder / "checkpoints" / "best.ckpt")["state_dict"]
    assert any(name.startswith("prompt_model.plm.") for name in state)
    test_openprompt(config, result.folder)
    assert predictions(result.folder) == predicted


def test_a_pickle_in_place_of_a_checkpoint_is_refused(given: Callable[..., dict[str, Any]], tmp_path: Path) -> None:
    config = make_config(given())
    folder = run_openprompt(config).folder
    torch.save({"state_dict": {}}, folder / "checkpoints" / "best.ckpt")
    with pytest.raises(CheckpointError, match="not a checkpoint of this package"):
        test_openprompt(config, folder)


def test_a_checkpoint_of_another_shape_or_model_is_refused(
    given: Callable[..., dict[str, Any]], tiny_mlm_folder: Callable[[str], Path]
) -> None:
    folder = run_openprompt(make_config(given())).folder
    template = {**given()["prompt_pool_template"], "num_prompts": 4}
    with pytest.raises(CheckpointError, match="does not fit this configuration"):
        test_openprompt(make_config(given(prompt_pool_template=template)), folder)
    with pytest.raises(CheckpointError, match="does not fit this configuration; it differs in"):
        test_openprompt(make_config(given(verbalizer="warp_verbalizer")), folder)
    plm = {**given()["plm"], "model_path": str(tiny_mlm_folder("roberta"))}
    with pytest.raises(CheckpointError, match="was trained on mlm:bert"):
        test_openprompt(make_config(given(plm=plm)), folder)


def test_a_run_without_a_checkpoint_can_be_resumed_but_not_tested(
    given: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    config = make_config(given())
    (tmp_path / "empty").mkdir()
    with pytest.raises(CheckpointError, match="There is no checkpoint"):
        test_openprompt(config, tmp_path / "empty")
    assert resume_openprompt(config, tmp_path / "empty").metrics
    with pytest.raises(CheckpointError, match="There is no folder"):
        resume_openprompt(config, tmp_path / "nowhere")


# -- settings ---------------------------------------------------------------------------------------------------------


def test_few_shot_sampling_runs_once_a_seed_and_averages(given: Callable[..., dict[str, Any]]) -> None:
    config = make_config(
        given(
            learning_setting="few_shot",
            few_shot={"few_shot_sampling": "sampling_from_train"},
            sampling_from_train={"num_examples_per_label": 2, "num_examples_per_label_dev": 2, "seed": [1, 2]},
        )
    )
    result = run_openprompt(config)
    assert list(result.by_seed) == [1, 2]
    mean = sum(metrics["accuracy"] for metrics in result.by_seed.values()) / 2
    assert result.metrics["accuracy"] == pytest.approx(mean)
    assert (result.folder / "seed-2" / "checkpoints" / "best.ckpt").is_file()


def test_zero_shot_only_tests(given: Callable[..., dict[str, Any]]) -> None:
    config = make_config(
        given(learning_setting="zero_shot", template="manual_template", verbalizer="manual_verbalizer")
    )
    result = run_openprompt(config)
    assert len(predictions(result.folder)) == 4 * len(CLASSES)
    assert not list((result.folder / "checkpoints").iterdir())


def test_openprompts_own_model_names_work(given: Callable[..., dict[str, Any]], tmp_path: Path) -> None:
    from tests.helpers.tiny_models import _BERT_SPECIAL, WORDS

    plm = given()["plm"]
    folder = Path(plm["model_path"])
    for file in folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    letters = "abcdefghijklmnopqrstuvwxyz0123456789"
    words = [*_BERT_SPECIAL.values(), *WORDS, *letters, *(f"##{c}" for c in letters)]
    (tmp_path / "vocab.txt").write_text("\n".join(dict.fromkeys(words)) + "\n")
    config = make_config(given(plm={**plm, "model_name": "bert", "model_path": str(tmp_path)}))
    assert run_openprompt(config).metrics


def test_the_folder_keeps_the_configuration_and_the_log(
    given: Callable[..., dict[str, Any]], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    folder = run_openprompt(make_config(given())).folder
    assert "verbalizer: rep_verbalizer" in (folder / "config.yaml").read_text()
    assert "Test: accuracy" in (folder / "log.txt").read_text()


def test_a_stranger_folder_is_not_overwritten(given: Callable[..., dict[str, Any]], tmp_path: Path) -> None:
    (tmp_path / "logs" / "run").mkdir(parents=True)
    (tmp_path / "logs" / "run" / "thesis.tex").write_text("years of work")
    with pytest.raises(ConfigError, match="is no earlier run"):
        run_openprompt(make_config(given()))
    logs = given()["logging"]
    with pytest.raises(ConfigError, match="expected the name of a folder inside"):
        run_openprompt(make_config(given(logging={**logs, "unique_string": "../data"})))
    assert (tmp_path / "logs" / "run" / "thesis.tex").exists()


def test_an_earlier_run_is_overwritten_only_if_allowed(given: Callable[..., dict[str, Any]]) -> None:
    run_openprompt(make_config(given()))
    run_openprompt(make_config(given()))
    with pytest.raises(ConfigError, match=r"logging\.overwrite is false"):
        run_openprompt(make_config(given(logging={**given()["logging"], "overwrite": False})))


# -- refusals ---------------------------------------------------------------------------------------------------------


def test_options_of_our_data_sets_are_refused_for_openprompts(given: Callable[..., dict[str, Any]]) -> None:
    with pytest.raises(ConfigError, match=r"dataset\.shots is for the data sets jsonl_folder, demo_intents"):
        run_openprompt(make_config(given(dataset={"name": "agnews", "path": "nowhere", "shots": 3})))


def test_a_data_set_of_openprompts_that_is_not_there_is_named(given: Callable[..., dict[str, Any]]) -> None:
    with pytest.raises(DataError, match="OpenPrompt finds no files of agnews"):
        run_openprompt(make_config(given(dataset={"name": "agnews", "path": "nowhere"})))


def test_a_class_without_training_texts_is_named_by_the_verbalizer(
    given: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    lines = (tmp_path / "data" / "train.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "data" / "train.jsonl").write_text("".join(lines))
    config = make_config(given(train={"num_training_steps": 1, "batch_size": 1, "num_epochs": 1}))
    with pytest.raises(VerbalizerError, match="No training example of class"):
        run_openprompt(config)


def test_the_stock_model_is_used(given: Callable[..., dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    init = runners.ClassificationRunner.__init__

    def spy(self: Any, model: Any, **others: Any) -> None:
        seen.append(type(model))
        init(self, model=model, **others)

    monkeypatch.setattr(runners.ClassificationRunner, "__init__", spy)
    run_openprompt(make_config(given()))
    assert seen == [PromptForClassification]
