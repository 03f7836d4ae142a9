"""Tasks of many sizes: without names, without an example, of unequal classes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from openprompt_meta.config.schema import RunConfig
from openprompt_meta.config.validation import config_from_mapping
from openprompt_meta.config.writing import to_mapping
from openprompt_meta.data.loading import open_dataset
from openprompt_meta.errors import ConfigError
from openprompt_meta.learners.meta import GradientLearner
from openprompt_meta.learners.task import Task
from openprompt_meta.methods.language_model import load_language_model
from openprompt_meta.methods.method import Method, build_method
from openprompt_meta.runs.run import Run
from tests.helpers.small_runs import assert_same_run, small_config, write_data

pytestmark = pytest.mark.meta


@pytest.fixture
def config(tiny_mlm_folder: Callable[[str], Path], tmp_path: Path) -> RunConfig:
    config = small_config(tiny_mlm_folder("bert"), write_data(tmp_path / "data"), inner_steps=0, inner_steps_eval=0)
    return config.with_values(
        {
            "prompt_pool_template.features": "mean",
            "rep_verbalizer.name_weight": 1.5,
            "rep_verbalizer.learn": ["name_weight"],
            "meta.train_ways": [2, 5],
            "meta.train_shots": [0, 4],
            "meta.train_texts": 12,
            "meta.train_names": 0.5,
        }
    )


def _built(config: RunConfig) -> Method:
    return build_method(config, load_language_model(config), open_dataset(config.dataset), seed=0)


def _features(method: Method, batch: dict[str, Tensor]) -> Tensor:
    assert method.classifier is not None
    with torch.no_grad():
        found: Tensor = method.classifier.read(batch)[0]
    return found.double()


def _by_hand(method: Method, task: Task) -> Tensor:
    """The softmax of ten times the cosine with sums of examples and names, by loops."""
    support = _features(method, dict(task.support)) if len(task.support["label"]) else []
    names = None if task.names is None else _features(method, dict(task.names))
    rows = []
    for query in _features(method, dict(task.query)):
        scores = []
        for label in range(len(task.classes)):
            own = [x for x, y in zip(support, task.support["label"].tolist(), strict=True) if y == label]
            total = sum(own) if own else torch.zeros_like(query)
            if names is not None:
                total = total + 1.5 * names[label]
            scores.append(10 * torch.nn.functional.cosine_similarity(query, total, dim=0))
        rows.append(torch.stack(scores).log_softmax(dim=0))
    return torch.stack(rows)


def test_tasks_come_with_and_without_examples_and_names(config: RunConfig) -> None:
    source = _built(config).sources["train"]
    tasks = [source[i] for i in range(60)]
    assert any(len(task.support["label"]) == 0 for task in tasks)
    assert all(task.names is not None for task in tasks if len(task.support["label"]) == 0)
    share = sum(task.names is not None for task in tasks if len(task.support["label"])) / len(tasks)
    assert 0.1 < share < 0.6
    assert all(task.names is not None for task in (_built(config).sources["valid"][i] for i in range(9)))


@pytest.mark.parametrize("engine", ["fast", "plain"])
def test_each_is_evaluated_as_by_hand_and_side_by_side(config: RunConfig, engine: str) -> None:
    method = _built(config.with_values({"run.engine": engine}))
    source = method.sources["train"]
    tasks = [source[i] for i in range(24)]
    kinds = {(len(task.support["label"]) > 0, task.names is not None) for task in tasks}
    assert kinds == {(True, True), (True, False), (False, True)}
    for task, outcome in zip(tasks, method.learner.evaluate_batch(tasks, 0), strict=True):
        torch.testing.assert_close(outcome.log_probabilities.double(), _by_hand(method, task), rtol=1e-4, atol=1e-4)


def test_a_class_of_one_text_is_known_by_its_name(config: RunConfig) -> None:
    data = Path(str(config.dataset.path))
    lines = (data / "train.jsonl").read_text("utf-8").splitlines()
    kept = [line for line in lines if "weather" not in line]
    kept.append(next(line for line in lines if "weather" in line))
    (data / "train.jsonl").write_text("\n".join(kept) + "\n", encoding="utf-8")
    source = _built(config).sources["train"]
    for task in (source[i] for i in range(40)):
        without = set(range(len(task.classes))) - set(task.support["label"].tolist())
        assert not without or task.names is not None


def test_both_engines_learn_the_same_from_them(config: RunConfig) -> None:
    gradients = []
    for engine in ("fast", "plain"):
        method = _built(config.with_values({"run.engine": engine}))
        learner, source = method.learner, method.sources["train"]
        assert isinstance(learner, GradientLearner)
        learner.meta_step([source[i] for i in range(8)])
        gradients.append([p.grad for p in learner.meta_parameters.parameters() if p.grad is not None])
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-5)


def test_a_run_on_a_mixture_resumes_bit_by_bit(config: RunConfig, tmp_path: Path) -> None:
    second = write_data(tmp_path / "second", {"train": ["sun", "rain", "snow"], "valid": ["a", "b", "c"]})
    test = str(config.dataset.path)
    config = config.with_values(
        {
            "dataset.path": None,
            "dataset.name": "both",
            "dataset.mixture": [test, str(second)],
            "meta.outer_decay": "linear",
        }
    )
    assert Run(config, tmp_path / "whole", show_progress=False).train() is not None
    run = Run(config, tmp_path / "parts", show_progress=False)
    part = Run(config.with_values({"meta.test_tasks": 4}), tmp_path / "parts", show_progress=False)
    assert part.config == config
    stopped_after(run, 3)
    assert run.train() is not None
    assert_same_run(tmp_path / "whole", tmp_path / "parts")


def stopped_after(run: Run, iterations: int) -> None:
    """Train for some iterations and be interrupted."""
    from openprompt_meta.runs.training import Training

    real = Training._step

    def step(self: Training, bar: object) -> None:
        if self.progress.iteration >= iterations:
            raise KeyboardInterrupt
        real(self, bar)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Training, "_step", step)
        with pytest.raises(KeyboardInterrupt):
            run.train()


def test_the_step_size_falls_in_a_straight_line(config: RunConfig, tmp_path: Path) -> None:
    from openprompt_meta.runs.training import Training

    seen = []
    real = Training._step

    def step(self: Training, bar: object) -> None:
        real(self, bar)
        seen.append([group["lr"] for group in self.learner.optimizer.param_groups])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Training, "_step", step)
        Run(config.with_values({"meta.outer_decay": "linear"}), tmp_path / "run", show_progress=False).train()
    shares = [1 - i / 6 for i in range(6)]
    expected = [[share * config.meta.outer_lr, share * config.meta.scalar_lr] for share in shares]
    assert seen == [pytest.approx(row) for row in expected]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"meta.train_ways": [5]}, "meta.train_ways: got [5], expected two rising numbers from 2"),
        ({"meta.train_shots": [3, 1]}, "meta.train_shots: got [3, 1]"),
        ({"meta.train_shots": [0, 1], "rep_verbalizer.name_weight": 0.0}, "reads the words of the classes"),
        ({"meta.train_shots": [0, 1], "meta.inner_steps": 1}, "nothing to learn from without an example"),
        ({"meta.train_names": 0.5, "verbalizer": "name_verbalizer"}, "knows nothing of a class without its words"),
        ({"dataset.mixture": ["demo", "demo"], "dataset.path": None}, "expected none of them twice"),
        ({"dataset.mixture": ["demo", "hwu64"]}, "dataset.path: is given beside dataset.mixture"),
        ({"dataset.apart_from": ["hwu64"]}, "dataset.apart_from: is for a mixture"),
        (
            {"dataset.mixture": ["demo"], "dataset.path": None, "dataset.label_words": "words.json"},
            "dataset.label_words: is given beside dataset.mixture",
        ),
        ({"dataset.mixture": ["demo"], "dataset.path": None, "dataset.name": "demo"}, "Name the mixture"),
    ],
)
def test_what_cannot_be_is_refused_by_its_key(config: RunConfig, values: dict[str, object], message: str) -> None:
    changed = to_mapping(config.with_values({"rep_verbalizer.learn": [], **values}))
    with pytest.raises(ConfigError) as refused:
        config_from_mapping(changed)
    assert message in str(refused.value)
