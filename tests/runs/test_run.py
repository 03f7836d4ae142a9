"""A whole run: what is in the folder, resuming to the same bits, stopping well."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch

from openprompt_meta.config.loading import load_config
from openprompt_meta.config.schema import RunConfig
from openprompt_meta.config.writing import to_yaml
from openprompt_meta.errors import (
    ConfigError,
    DataError,
    NotFiniteError,
    RunError,
)
from openprompt_meta.runs.run import Run
from openprompt_meta.runs.training import Training
from tests.helpers.small_runs import assert_same_run, cut_after, small_config, without_times, write_data

pytestmark = pytest.mark.meta


@pytest.fixture
def config(tiny_mlm_folder: Callable[[str], Path], tmp_path: Path) -> RunConfig:
    return small_config(tiny_mlm_folder("bert"), write_data(tmp_path / "data"))


def test_a_run_leaves_everything_one_needs_in_its_folder(config: RunConfig, tmp_path: Path) -> None:
    results = Run(config, tmp_path / "run", show_progress=False).train()
    assert results is not None
    assert load_config(tmp_path / "run" / "config.yaml") == config
    assert json.loads((tmp_path / "run" / "results.json").read_text()) == results
    assert results["test_accuracy"]["inductive"]["tasks"] == 4
    assert json.loads((tmp_path / "run" / "versions.json").read_text())["openprompt"] == "1.0.1"
    records = without_times(tmp_path / "run" / "seed-0" / "metrics.jsonl")
    assert [r["iteration"] for r in records if r["kind"] == "step"] == [1, 2, 3, 4, 5, 6]
    assert [r["iteration"] for r in records if r["kind"] == "validation"] == [0, 2, 4, 6]
    assert all(len(r["inner_losses"]) == 2 for r in records if r["kind"] == "step")


def test_the_tested_pool_is_the_best_on_validation_tasks(config: RunConfig, tmp_path: Path) -> None:
    Run(config, tmp_path / "run", show_progress=False).train()
    records = without_times(tmp_path / "run" / "seed-0" / "metrics.jsonl")
    validations = [r for r in records if r["kind"] == "validation"]
    best = max(validations, key=lambda r: (r["accuracy"], -r["iteration"]))
    test = json.loads((tmp_path / "run" / "seed-0" / "test.json").read_text())
    assert test["best_iteration"] == best["iteration"]
    again = Run(config, tmp_path / "run", show_progress=False).test()
    assert again["test_accuracy"] == json.loads((tmp_path / "run" / "results.json").read_text())["test_accuracy"]


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_run_stopped_anywhere_resumes_to_the_same_bits(
    config: RunConfig, tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A crash between checkpoints: the exception comes from inside an iteration chosen at random.
    Run(config, tmp_path / "straight", show_progress=False).train()
    config = config.with_values({"run.checkpoint_every": random.Random(seed).choice([1, 2, 5])})
    victim = random.Random(seed).randrange(1, 6)
    real = Training._step

    def crashing(self: Training, bar: Any) -> None:
        real(self, bar)
        if self.progress.iteration == victim:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Training, "_step", crashing)
        with pytest.raises(KeyboardInterrupt):
            Run(config, tmp_path / "cut", show_progress=False).train()
    Run(config, tmp_path / "cut", show_progress=False).train()
    assert_same_run(tmp_path / "straight", tmp_path / "cut")


SCRIPT = """
import sys
from openprompt_meta.config.loading import load_config
from openprompt_meta.runs.run import Run
from openprompt_meta.runs.process import log_to_screen
with log_to_screen(30):
    sys.exit(0 if Run(load_config(sys.argv[1]), sys.argv[2], show_progress=False).train() else 130)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
@pytest.mark.slow
def test_a_killed_process_resumes_to_the_same_bits(config: RunConfig, tmp_path: Path, number: signal.Signals) -> None:
    config = config.with_values(
        {"meta.iterations": 40, "meta.validate_every": 10, "meta.valid_tasks": 2, "meta.test_tasks": 2}
    )
    yaml = tmp_path / "run.yaml"
    yaml.write_text(to_yaml(config), encoding="utf-8")
    Run(config, tmp_path / "straight", show_progress=False).train()
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(yaml), str(tmp_path / "cut")],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    metrics = tmp_path / "cut" / "seed-0" / "metrics.jsonl"
    deadline = time.monotonic() + 600  # a busy machine takes its time to load everything
    while not (metrics.exists() and len(metrics.read_text().splitlines()) >= 6):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline, "it does not come to its first iterations"
        time.sleep(0.01)
    process.send_signal(number)
    _, errors = process.communicate(timeout=120)
    assert not (tmp_path / "cut" / "results.json").exists(), "the run ended before it could be killed"
    if number == signal.SIGTERM:
        assert process.returncode == 130
        assert "openprompt-meta resume" in errors
    Run(config, tmp_path / "cut", show_progress=False).train()
    assert_same_run(tmp_path / "straight", tmp_path / "cut")


def test_a_finished_run_is_not_done_again(config: RunConfig, tmp_path: Path) -> None:
    first = Run(config, tmp_path / "run", show_progress=False).train()
    stamp = (tmp_path / "run" / "seed-0" / "test.json").stat().st_mtime_ns
    assert Run(config, tmp_path / "run", show_progress=False).train() == first
    assert (tmp_path / "run" / "seed-0" / "test.json").stat().st_mtime_ns == stamp


def test_a_folder_of_another_configuration_is_refused(config: RunConfig, tmp_path: Path) -> None:
    Run(config, tmp_path / "run", show_progress=False).train()
    other = config.with_values({"meta.inner_lr": 0.5})
    with pytest.raises(RunError, match="another configuration"):
        Run(other, tmp_path / "run", show_progress=False).train()


def test_two_runs_cannot_write_one_folder(config: RunConfig, tmp_path: Path) -> None:
    run = Run(config, tmp_path / "run", show_progress=False)
    with run.folder.locked(), pytest.raises(RunError, match="Another process"):
        Run(config, tmp_path / "run", show_progress=False).train()


def test_several_seeds_give_a_deviation_and_different_tasks(config: RunConfig, tmp_path: Path) -> None:
    config = config.with_values({"run.seeds": [0, 1, 2]})
    results = Run(config, tmp_path / "run", show_progress=False).train()
    assert results is not None
    means = [
        sum(values) / len(values)
        for values in (
            json.loads((tmp_path / "run" / f"seed-{seed}" / "test.json").read_text())["accuracies"]
            for seed in (0, 1, 2)
        )
    ]
    summary = results["test_accuracy"]["inductive"]
    assert summary["mean"] == pytest.approx(sum(means) / 3)
    assert summary["deviation"] == pytest.approx(torch.tensor(means, dtype=torch.float64).std().item())


def test_transductive_figures_never_stand_in_the_inductive_column(config: RunConfig, tmp_path: Path) -> None:
    config = config.with_values({"rep_verbalizer.centring": "transductive"})
    results = Run(config, tmp_path / "run", show_progress=False).train()
    assert results is not None
    assert list(results["test_accuracy"]) == ["transductive"]
    # Class means look at nothing of the query set, whatever a verbalizer that they do not use would do.
    without = Run(
        config.model_copy(update={"method": "mask_prototypes"}), tmp_path / "without", show_progress=False
    ).train()
    assert without is not None
    assert list(without["test_accuracy"]) == ["inductive"]


def test_a_loss_that_is_not_a_number_leaves_the_last_checkpoint(
    config: RunConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Training._step

    def poisoned(self: Training, bar: Any) -> None:
        if self.progress.iteration == 3:
            with torch.no_grad():
                self.method.learner.meta_parameters.prompts.fill_(float("nan"))
        real(self, bar)

    monkeypatch.setattr(Training, "_step", poisoned)
    with pytest.raises(NotFiniteError, match="Task 3"):
        Run(config, tmp_path / "run", show_progress=False).train()
    saved = safetensors.torch.load_file(tmp_path / "run/seed-0/checkpoints/last.safetensors")
    assert all(torch.isfinite(value).all() for value in saved.values())
    assert [r["iteration"] for r in without_times(tmp_path / "run/seed-0/metrics.jsonl") if r["kind"] == "step"] == [
        1,
        2,
        3,
    ]


def test_patience_ends_training_early(config: RunConfig, tmp_path: Path) -> None:
    meta = config.meta.model_copy(update={"iterations": 40, "outer_lr": 1e-12, "patience": 2})
    Run(config.model_copy(update={"meta": meta}), tmp_path / "run", show_progress=False).train()
    records = without_times(tmp_path / "run" / "seed-0" / "metrics.jsonl")
    assert max(r["iteration"] for r in records) == 4  # validated at 0, then twice without a gain


def test_damaged_checkpoints_are_refused_with_the_reason(config: RunConfig, tmp_path: Path) -> None:
    Run(config, tmp_path / "run", show_progress=False).train()
    best = tmp_path / "run/seed-0/checkpoints/best.safetensors"
    content = best.read_bytes()
    for damaged, reason in (
        (content[: len(content) // 2], "damaged"),
        (b"\x80\x04pickle", "damaged"),
        (None, "no checkpoint"),
    ):
        best.unlink() if damaged is None else best.write_bytes(damaged)
        with pytest.raises(RunError, match=reason):
            Run(config, tmp_path / "run", show_progress=False).test()


def test_training_touches_nothing_of_the_language_model(config: RunConfig, tmp_path: Path) -> None:
    from openprompt_meta.data.loading import open_dataset
    from openprompt_meta.methods.language_model import load_language_model
    from openprompt_meta.methods.metaprompter import build_metaprompter

    loaded = load_language_model(config)
    before = {name: value.clone() for name, value in loaded.model.state_dict().items()}
    method = build_metaprompter(config, loaded, open_dataset(config.dataset), seed=0)
    for index in range(3):
        method.learner.meta_step([method.sources["train"][index]])
    assert all(torch.equal(value, before[name]) for name, value in loaded.model.state_dict().items())


def test_meta_parameters_number_55296_at_the_papers_setting(tmp_path: Path) -> None:
    import transformers

    from openprompt_meta.prompts.pool_template import PromptPoolTemplate

    config = transformers.BertConfig(vocab_size=40, num_hidden_layers=1, max_position_embeddings=64)  # 768 wide
    tokenizer = transformers.BertTokenizerFast(_vocabulary(tmp_path))
    template = PromptPoolTemplate(transformers.BertForMaskedLM(config), tokenizer)
    assert sum(parameter.numel() for parameter in template.parameters()) == 55_296


def _vocabulary(folder: Path) -> str:
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"word{i}" for i in range(30))]
    (folder / "vocab.txt").write_text("\n".join(words), encoding="utf-8")
    return str(folder / "vocab.txt")


@pytest.mark.parametrize("verbalizer", ["warp_verbalizer", "proto_verbalizer"])
def test_a_verbalizer_that_starts_at_random_resumes_to_the_same_bits(
    config: RunConfig, tmp_path: Path, verbalizer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = config.model_copy(update={"verbalizer": verbalizer})
    Run(config, tmp_path / "straight", show_progress=False).train()
    torch.manual_seed(99)  # what else a program draws must not matter
    cut_after(3, config, tmp_path / "cut", monkeypatch)
    torch.manual_seed(7)
    Run(config, tmp_path / "cut", show_progress=False).train()
    assert_same_run(tmp_path / "straight", tmp_path / "cut")


def test_dropout_is_on_in_training_only_and_resumes_to_the_same_bits(
    config: RunConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = Run(config, tmp_path / "plain", show_progress=False).train()
    config = config.with_values({"plm.dropout": True})
    Run(config, tmp_path / "straight", show_progress=False).train()
    records = [without_times(tmp_path / name / "seed-0/metrics.jsonl") for name in ("plain", "straight")]
    assert records[0][0] == records[1][0], "the first validation must not know of dropout"
    assert records[0][1]["loss"] != records[1][1]["loss"], "the first iteration must"
    cut_after(3, config, tmp_path / "cut", monkeypatch)
    Run(config, tmp_path / "cut", show_progress=False).train()
    assert_same_run(tmp_path / "straight", tmp_path / "cut")
    assert plain is not None


def test_data_without_validation_classes_is_refused_by_name(config: RunConfig, tmp_path: Path) -> None:
    topics = {"train": ["weather", "sport", "food"], "test": ["phone", "movie", "doctor"]}
    data = write_data(tmp_path / "two", topics)
    config = config.with_values({"dataset.path": str(data)})
    with pytest.raises(DataError, match="no split 'valid'"):
        Run(config, tmp_path / "run", show_progress=False).train()


def test_a_folder_that_cannot_be_written_is_refused_with_the_reason(config: RunConfig, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(RunError, match="cannot be made"):
        Run(config, tmp_path / "file", show_progress=False).train()


def test_a_full_disk_leaves_what_was_saved(config: RunConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from openprompt_meta.runs import folder

    def full(self: Any, record: dict[str, Any]) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(folder.SeedFolder, "log", full)
        with pytest.raises(RunError, match="No space left"):
            Run(config, tmp_path / "run", show_progress=False).train()
    assert Run(config, tmp_path / "run", show_progress=False).train() is not None


def test_a_device_that_is_not_there_is_refused(config: RunConfig, tmp_path: Path) -> None:
    config = config.with_values({"run.device": "cuda:63"})
    with pytest.raises(ConfigError, match="cuda:63 cannot be used here"):
        Run(config, tmp_path / "run", show_progress=False).train()


def test_what_was_done_is_in_the_log(config: RunConfig, tmp_path: Path) -> None:
    Run(config, tmp_path / "run", show_progress=False).train()
    assert "Iteration 6: validation accuracy" in (tmp_path / "run" / "log.txt").read_text(encoding="utf-8")


@pytest.mark.real_encoder
@pytest.mark.slow
def test_meta_training_on_the_demo_data_helps_on_unseen_classes() -> None:
    # The method itself: a dozen small iterations lift accuracy on classes they never saw, on the real encoder.
    from openprompt_meta.config.validation import config_from_mapping
    from openprompt_meta.data.loading import open_dataset
    from openprompt_meta.methods.language_model import load_language_model
    from openprompt_meta.methods.metaprompter import build_metaprompter

    meta = {"shot": 3, "query": 5, "inner_steps": 1, "outer_lr": 0.005}
    config = config_from_mapping({"dataset": {"name": "demo"}, "meta": meta})
    method = build_metaprompter(config, load_language_model(config), open_dataset(config.dataset), seed=0)

    def accuracy() -> float:
        return sum(method.learner.evaluate(method.sources["test"][i], 1).accuracy for i in range(8)) / 8

    before = accuracy()
    for index in range(14):
        method.learner.meta_step([method.sources["train"][index]])
    assert accuracy() > before + 0.2


def test_what_cannot_be_put_together_does_not_occupy_the_folder(config: RunConfig, tmp_path: Path) -> None:
    impossible = config.with_values({"meta.way": 40})
    with pytest.raises(DataError, match="40-way"):
        Run(impossible, tmp_path / "run", show_progress=False).train()
    assert Run(config, tmp_path / "run", show_progress=False).train() is not None
