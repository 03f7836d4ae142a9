"""Scalars of the verbalizer learned across tasks: restored bit by bit, counted, and passed on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import safetensors.torch
import torch

from openprompt_meta import MetaPromptClassifier
from openprompt_meta.config.schema import RunConfig
from openprompt_meta.data.loading import open_dataset
from openprompt_meta.methods.language_model import load_language_model
from openprompt_meta.methods.method import build_method
from openprompt_meta.runs.checkpoint import read_scalars
from openprompt_meta.runs.run import Run
from tests.helpers.small_runs import assert_same_run, cut_after, small_config, write_data

pytestmark = pytest.mark.meta

KEYS = {
    "rep_verbalizer.name_weight": 1.5,
    "rep_verbalizer.mix_lambda": 0.7,
    "rep_verbalizer.words_read_by": "encoder",
    "rep_verbalizer.leave_one_out": True,
    "rep_verbalizer.learn": ["name_weight", "temperature", "mix_lambda"],
    "prompt_pool_template.features": "mean",
    "prompt_pool_template.attention": "cosine",
    "prompt_pool_template.keys": "kmeans",
    "meta.meta_batch": 2,
}


@pytest.fixture
def config(tiny_mlm_folder: Callable[[str], Path], tmp_path: Path) -> RunConfig:
    return small_config(tiny_mlm_folder("bert"), write_data(tmp_path / "data")).with_values(KEYS)


@pytest.mark.parametrize("method", ["metaprompter", "metaprompting"])
def test_they_are_learned_counted_and_resumed_to_the_same_bits(
    config: RunConfig, method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = config.with_values({"method": method})
    results = Run(config, tmp_path / "straight", show_progress=False).train()
    cut_after(3, config, tmp_path / "cut", monkeypatch)
    Run(config, tmp_path / "cut", show_progress=False).train()
    assert_same_run(tmp_path / "straight", tmp_path / "cut")

    saved = safetensors.torch.load_file(tmp_path / "straight/seed-0/checkpoints/last.safetensors")
    scalars = {name: value.item() for name, value in saved.items() if name.startswith("pool.verbalizer/")}
    assert sorted(scalars) == [f"pool.verbalizer/{name}" for name in ("mix_lambda", "name_weight", "temperature")]
    learned = read_scalars(tmp_path / "straight/seed-0/checkpoints/last.safetensors")
    for name, start in {"name_weight": 1.5, "temperature": 10.0, "mix_lambda": 0.7}.items():
        assert learned[name] == pytest.approx(start, rel=0.2)
        assert abs(learned[name] - start) > 1e-5
    fixed = Run(config.with_values({"rep_verbalizer.learn": []}), tmp_path / "fixed", show_progress=False).train()
    assert results is not None
    assert fixed is not None
    assert results["parameters"] == fixed["parameters"] + 3


def test_a_resumed_pool_does_not_start_from_the_texts_again(
    config: RunConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut_after(2, config, tmp_path / "run", monkeypatch)
    before = safetensors.torch.load_file(tmp_path / "run/seed-0/checkpoints/last.safetensors")["pool.query_mean"]
    monkeypatch.setattr("openprompt_meta.methods.metaprompter.start_from_texts", None)  # any call would fail
    Run(config, tmp_path / "run", show_progress=False).train()
    after = safetensors.torch.load_file(tmp_path / "run/seed-0/checkpoints/last.safetensors")["pool.query_mean"]
    assert before.abs().sum() > 0
    assert torch.equal(before, after)


def test_a_classifier_takes_them_as_they_were_learned(config: RunConfig, tmp_path: Path) -> None:
    Run(config, tmp_path / "run", show_progress=False).train()
    learned = read_scalars(tmp_path / "run/seed-0/checkpoints/best.safetensors")
    section = MetaPromptClassifier.from_run(tmp_path / "run").meta_learned.config.rep_verbalizer
    assert section.learn == []
    assert {name: getattr(section, name) for name in learned} == learned


@pytest.mark.parametrize("learner", ["reptile", "bmg"])
def test_other_meta_learners_take_them_along(config: RunConfig, learner: str, tmp_path: Path) -> None:
    config = config.with_values({"meta.learner": learner})
    assert Run(config, tmp_path / "run", show_progress=False).train() is not None
    learned = read_scalars(tmp_path / "run/seed-0/checkpoints/last.safetensors")
    moved = abs(learned["temperature"] - 10) > 1e-4
    assert moved == (learner == "bmg")  # Reptile learns by displacement, and scalars are not stepped inside a task


def test_a_task_leaves_them_to_the_next_as_they_were(config: RunConfig) -> None:
    config = config.with_values({"method": "verbalizer", "verbalizer_tuning.lr": 0.01})
    method = build_method(config, load_language_model(config), open_dataset(config.dataset), seed=0)
    task = method.sources["test"][0]
    first, again = (method.learner.evaluate(task, 3) for _ in range(2))
    assert first.loss == again.loss
