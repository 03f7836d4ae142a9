"""`run.engine: fast` gives the numbers of `plain`; precision, device and threads are chosen as described."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from openprompt_meta.config.schema import RunConfig
from openprompt_meta.data.loading import open_dataset
from openprompt_meta.encoder.classifier import MaskClassifier, MaskOnlyClassifier
from openprompt_meta.encoder.packed import PackedClassifier
from openprompt_meta.methods import language_model
from openprompt_meta.methods.language_model import load_language_model, torch_precision
from openprompt_meta.methods.metaprompter import MetaPrompter, build_metaprompter
from openprompt_meta.runs.process import usable_processors
from tests.helpers.small_runs import small_config, write_data

pytestmark = pytest.mark.meta


def method_of(config: RunConfig, engine: str, **run: int) -> MetaPrompter:
    config = config.with_values({"run.engine": engine, **{f"run.{key}": value for key, value in run.items()}})
    loaded = load_language_model(config)
    loaded.model.double()
    method = build_metaprompter(config, loaded, open_dataset(config.dataset), seed=0)
    method.classifier.template.double()
    method.classifier.verbalizer.double()
    return method


# Hand-crafted words too, so that the head is looked at; and all that the paper has not.
SETTINGS: dict[str, dict[str, Any]] = {
    "RepVerb": {"verbalizer": "rep_verbalizer", "rep_verbalizer.mix_lambda": 0.5},
    "WARP": {"verbalizer": "warp_verbalizer"},
    "ProtoVerb": {"verbalizer": "proto_verbalizer"},
    "hand-crafted": {"verbalizer": "manual_verbalizer"},
    "names": {"verbalizer": "name_verbalizer", "prompt_pool_template.features": "mean"},
    "everything": {
        "rep_verbalizer.mix_lambda": 0.6,
        "rep_verbalizer.words_read_by": "encoder",
        "rep_verbalizer.name_weight": 1.5,
        "rep_verbalizer.leave_one_out": True,
        "rep_verbalizer.assignment_rounds": 1,
        "rep_verbalizer.learn": ["mix_lambda", "name_weight", "temperature"],
        "prompt_pool_template.features": "both",
        "prompt_pool_template.attention": "cosine",
        "prompt_pool_template.keys": "kmeans",
    },
    "the pool asked with embeddings": {"prompt_pool_template.query": "embeddings"},
    "the pool asked with the first layer's output": {
        "prompt_pool_template.query": "first_layer",
        "prompt_pool_template.features": "both",
        "prompt_pool_template.as_prefix": True,
    },
    "one prompt as a prefix": {
        "rep_verbalizer.name_weight": 1.5,
        "prompt_pool_template.features": "mean",
        "prompt_pool_template.num_prompts": 1,
        "prompt_pool_template.as_prefix": True,
    },
    "several prompts as weak prefixes": {
        "verbalizer": "warp_verbalizer",
        "prompt_pool_template.features": "both",
        "prompt_pool_template.as_prefix": True,
        "prompt_pool_template.prefix_strength": 0.3,
    },
    "a prefix and the words at the [MASK]": {
        "rep_verbalizer.mix_lambda": 0.5,
        "prompt_pool_template.as_prefix": True,
    },
    "names kept from the last inner step": {
        "rep_verbalizer.mix_lambda": 0.6,
        "rep_verbalizer.words_read_by": "encoder",
        "rep_verbalizer.name_weight": 1.5,
        "meta.label_embeddings": "last_inner_step",
    },
    "corrected class means": {
        "verbalizer": "adaptive_verbalizer",
        "adaptive_verbalizer.name_weight": 1.5,
        "prompt_pool_template.features": "mean",
    },
    "WARP of means": {
        "verbalizer": "warp_verbalizer",
        "warp_verbalizer.mix_lambda": 0.5,
        "warp_verbalizer.words_read_by": "encoder",
        "prompt_pool_template.features": "both",
    },
}


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("family", ["bert", "distilbert"])
def test_the_fast_engine_learns_and_evaluates_as_the_plain_one(
    family: str, setting: str, tiny_mlm_folder: Callable[[str], Path], tmp_path: Path
) -> None:
    if family == "distilbert" and SETTINGS[setting].get("prompt_pool_template.as_prefix"):
        pytest.skip("DistilBERT takes no positions, which a prefix needs")
    config = small_config(tiny_mlm_folder(family), write_data(tmp_path / "data"))
    config = config.with_values(SETTINGS[setting])
    plain, fast = method_of(config, "plain"), method_of(config, "fast", tokens_at_once=250)
    assert type(plain.classifier) is MaskClassifier
    assert type(fast.classifier) is (PackedClassifier if family == "bert" else MaskOnlyClassifier)
    for method in (plain, fast):
        method.start()
    steps = [m.learner.meta_step([m.sources["train"][i] for i in range(3)]) for m in (plain, fast)]
    assert steps[0].loss == pytest.approx(steps[1].loss, rel=1e-8)
    assert steps[0].inner_losses == pytest.approx(steps[1].inner_losses, rel=1e-8)
    assert steps[0].gradient_norm == pytest.approx(steps[1].gradient_norm, rel=1e-7)
    for one, two in zip(
        plain.learner.meta_parameters.parameters(), fast.learner.meta_parameters.parameters(), strict=True
    ):
        assert torch.allclose(one, two, rtol=1e-6, atol=1e-9)
    alone = [plain.learner.evaluate(plain.sources["test"][i], 2) for i in range(4)]
    groups = list(fast.learner.inner_loop.in_groups(fast.sources["test"][i] for i in range(4)))
    assert max(map(len, groups)) > 1
    together = [outcome for group in groups for outcome in fast.learner.evaluate_batch(group, 2)]
    for one, two in zip(alone, together, strict=True):
        assert one.index == two.index
        assert one.loss == pytest.approx(two.loss, rel=1e-6)
        assert one.inner_losses == pytest.approx(two.inner_losses, rel=1e-6)
        assert torch.allclose(one.log_probabilities, two.log_probabilities, rtol=1e-6, atol=1e-8)


def test_a_corrected_head_is_learned_for_as_class_means_and_evaluated_as_itself(
    tiny_mlm_folder: Callable[[str], Path], tmp_path: Path
) -> None:
    config = small_config(tiny_mlm_folder("bert"), write_data(tmp_path / "data"))
    config = config.with_values({"prompt_pool_template.features": "mean"})
    names = {"rep_verbalizer": {}, "adaptive_verbalizer": {"adaptive_verbalizer.strengths": []}}
    means, corrected = (
        method_of(config.with_values({"verbalizer": name, f"{name}.name_weight": 1.5, **keys}), "fast")
        for name, keys in names.items()
    )
    for method in (means, corrected):
        method.start()
    steps = [m.learner.meta_step([m.sources["train"][i] for i in range(2)]) for m in (means, corrected)]
    assert steps[0] == steps[1]
    pools = [dict(m.learner.meta_parameters.named_parameters()) for m in (means, corrected)]
    assert all(torch.equal(pools[0][name], pools[1][name]) for name in pools[0])
    for i in range(3):
        one, two = (m.learner.evaluate(m.sources["test"][i], 2) for m in (means, corrected))
        sharpness = corrected.classifier.verbalizer.sharpness  # the same head here, with its temperature
        assert sharpness != 1
        expected = (sharpness * one.log_probabilities).log_softmax(dim=-1)
        assert torch.allclose(two.log_probabilities, expected, rtol=1e-6, atol=1e-9)


def test_the_plain_engine_is_openprompts_own_padding_and_queries(
    tiny_mlm_folder: Callable[[str], Path], tmp_path: Path
) -> None:
    config = small_config(tiny_mlm_folder("bert"), write_data(tmp_path / "data"))
    task = method_of(config, "plain").sources["train"][0]
    assert task.support["input_ids"].shape[1] == config.dataset.max_seq_length
    assert "query" not in task.support
    fast = method_of(config, "fast")
    assert fast.sources["train"][0].support["input_ids"].shape[1] < config.dataset.max_seq_length
    plain = method_of(config, "plain")
    found, expected = (m.sources["train"].texts.queries([0, 1, 2]) for m in (fast, plain))
    assert torch.allclose(found.double(), expected.double(), rtol=1e-5, atol=1e-6)


def test_dropout_keeps_tasks_apart_and_texts_unpacked(tiny_mlm_folder: Callable[[str], Path], tmp_path: Path) -> None:
    config = small_config(tiny_mlm_folder("bert"), write_data(tmp_path / "data"))
    method = method_of(config.with_values({"plm.dropout": True}), "fast", tokens_at_once=10_000)
    assert type(method.classifier) is MaskOnlyClassifier
    groups = method.learner.inner_loop.in_groups(method.sources["test"][i] for i in range(3))
    assert [len(group) for group in groups] == [1, 1, 1]


def test_precision_is_detected_only_if_asked_for(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    cpu = torch.device("cpu")
    for has in (True, False):
        monkeypatch.setattr(language_model, "_has_bfloat16", lambda device, has=has: has)
        assert torch_precision("float32", cpu) is torch.float32
        assert torch_precision("auto", cpu) is (torch.bfloat16 if has else torch.float32)
    with caplog.at_level(logging.WARNING):
        assert torch_precision("bfloat16", cpu) is torch.bfloat16
        assert torch_precision("float16", cpu) is torch.float16
    assert caplog.text.count("float32 is faster") == 2


@pytest.mark.parametrize(
    ("quota", "most"), [("100000 100000", 1), ("max 100000", None), ("50000 100000", 1), ("?", None)]
)
def test_threads_are_no_more_than_a_container_may_use(quota: str, most: int | None, tmp_path: Path) -> None:
    file = tmp_path / "cpu.max"
    file.write_text(quota)
    everything = usable_processors(tmp_path / "none")
    assert usable_processors(file) == (everything if most is None else min(everything, most))
