"""Without inner steps the pool is the same for all tasks: each text is read once, and nothing else changes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from openprompt_meta.config.schema import RunConfig
from openprompt_meta.data.loading import open_dataset
from openprompt_meta.learners.meta import AdaptingLearner
from openprompt_meta.methods.language_model import load_language_model
from openprompt_meta.methods.method import Method, build_method
from openprompt_meta.runs.evaluation import evaluate_tasks
from tests.helpers.small_runs import small_config, write_data

pytestmark = pytest.mark.meta
TASKS = 12


@pytest.fixture
def config(tiny_mlm_folder: Callable[[str], Path], tmp_path: Path) -> RunConfig:
    config = small_config(tiny_mlm_folder("bert"), write_data(tmp_path / "data"), inner_steps_eval=0)
    return config.with_values({"prompt_pool_template.features": "mean", "rep_verbalizer.name_weight": 1.5})


def _built(config: RunConfig) -> Method:
    dataset = open_dataset(config.dataset)
    return build_method(config, load_language_model(config), dataset, seed=0)


def _rows_read(method: Method, monkeypatch: pytest.MonkeyPatch, count: int, steps: int = 0) -> int:
    """How many rows go through the language model while tasks are evaluated."""
    assert isinstance(method.learner, AdaptingLearner)
    rows = 0
    inner = method.learner.inner_loop
    real = inner.classifier.prepare

    def counting(batches: Any) -> Any:
        nonlocal rows
        rows += sum(len(batch["input_ids"]) for batch in batches)
        return real(batches)

    with monkeypatch.context() as patch:
        patch.setattr(inner.classifier, "prepare", counting)
        evaluate_tasks(method.learner, method.sources["test"], count, steps)
    return rows


@pytest.mark.parametrize(
    "verbalizer", ["rep_verbalizer", "adaptive_verbalizer", "name_verbalizer", "proto_verbalizer"]
)
def test_tasks_are_evaluated_as_each_by_itself(config: RunConfig, verbalizer: str) -> None:
    method = _built(config.with_values({"verbalizer": verbalizer}))
    source = method.sources["test"]
    together = evaluate_tasks(method.learner, source, TASKS, 0)
    for outcome in together:
        alone = method.learner.evaluate(source[outcome.index], 0)
        torch.testing.assert_close(outcome.log_probabilities, alone.log_probabilities, rtol=1e-4, atol=1e-5)
        assert outcome.accuracy == alone.accuracy
    assert [outcome.index for outcome in together] == list(range(TASKS))


def test_each_text_and_name_is_read_once(config: RunConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    method = _built(config)
    episodes = [method.sources["test"].episodes[i] for i in range(TASKS)]
    texts = {text for episode in episodes for text in (*episode.support, *episode.query)}
    classes = {name for episode in episodes for name in episode.classes}
    assert _rows_read(method, monkeypatch, TASKS) == len(texts) + len(classes)


def test_what_was_read_is_forgotten_when_the_pool_may_have_changed(config: RunConfig) -> None:
    method = _built(config)
    before = evaluate_tasks(method.learner, method.sources["test"], 2, 0)
    with torch.no_grad():
        method.learner.meta_parameters.prompts.add_(1.0)  # type: ignore[attr-defined]
    after = evaluate_tasks(method.learner, method.sources["test"], 2, 0)
    assert not torch.equal(before[0].log_probabilities, after[0].log_probabilities)


@pytest.mark.parametrize("keys", [{"run.engine": "plain"}, {"rep_verbalizer.mix_lambda": 0.5}, {}])
def test_everything_is_read_where_tasks_differ(
    config: RunConfig, keys: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the plain engine, where words' logits are needed, and with inner steps."""
    method = _built(config.with_values(keys))
    rows = 3 * (2 + 2) + 3  # ways x (shots + queries) and the names
    assert _rows_read(method, monkeypatch, 4, steps=0 if keys else 1) >= 4 * rows
