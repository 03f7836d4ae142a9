"""Methods without an inner loop as they are put together: their tasks, their words, what they refuse."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from openprompt_meta.config.schema import RunConfig
from openprompt_meta.data.loading import open_dataset
from openprompt_meta.errors import ConfigError
from openprompt_meta.methods.language_model import load_language_model
from openprompt_meta.methods.method import Method, build_method
from openprompt_meta.runs.run import Run
from tests.helpers.small_runs import TOPICS, assert_same_run, cut_after, small_config, write_data

pytestmark = pytest.mark.meta


@pytest.fixture
def config(tiny_mlm_folder: Callable[[str], Path], tmp_path: Path) -> RunConfig:
    return small_config(tiny_mlm_folder("bert"), write_data(tmp_path / "data"))


def built(config: RunConfig) -> Method:
    return build_method(config, load_language_model(config), open_dataset(config.dataset), seed=0)


def words_of(method: Method, split: str, index: int) -> list[int]:
    rows: Any = method.sources[split].texts
    return [int(word) for word in rows.rows[index]]


def test_mladas_source_texts_are_of_other_training_classes(config: RunConfig) -> None:
    method = built(config.with_values({"method": "mlada"}))
    train = open_dataset(config.dataset).train
    learner: Any = method.learner
    seen = []
    for index in range(6):
        task = method.sources["train"][index]
        batch = learner.sources(task)
        assert len(batch["words"]) == len(task.query["label"])
        others = [words_of(method, "train", i) for i, name in enumerate(train.labels) if name not in task.classes]
        rows = [row[real].tolist() for row, real in zip(batch["words"], batch["is_word"], strict=True)]
        assert all(row in others for row in rows)
        seen.append(rows)
    assert len({str(rows) for rows in seen}) == 6, "drawn anew for each task"
    first: Any = built(config.with_values({"method": "mlada", "mlada.source": "first"})).learner
    rows = first.sources(method.sources["train"][2])["words"].tolist()
    assert [[word for word in row if word] for row in rows] == [words_of(method, "train", i) for i in range(6)]


def test_mlada_refuses_tasks_of_all_training_classes(config: RunConfig, tmp_path: Path) -> None:
    method = built(config.with_values({"method": "mlada"}))
    learner: Any = method.learner
    task = method.sources["train"][0]
    with pytest.raises(ConfigError, match=r"Lower meta\.way, or use mlada\.source: first"):
        learner.sources(type(task)(0, TOPICS["train"], {}, task.support, task.query))


@pytest.mark.parametrize(("asked", "way"), [(20, 5), (4, 4), (3, 3)])
def test_hatt_trains_on_as_many_classes_as_asked_for_or_there_are(config: RunConfig, asked: int, way: int) -> None:
    method = built(config.with_values({"method": "hatt", "hatt.train_way": asked}))
    for index in range(4):
        task = method.sources["train"][index]
        assert len(task.classes) == way
        assert task.support["label"].bincount().tolist() == [2] * way
        assert task.query["label"].bincount().tolist() == [2] * way
        assert len(method.sources["valid"][index].classes) == 3


def test_words_are_scaled_by_those_of_the_training_texts(config: RunConfig) -> None:
    for length in (2.0, None):
        method = built(config.with_values({"method": "ds", "ds.vector_length": length}))
        learner: Any = method.learner
        vectors = learner.meta_parameters.vectors
        rows: Any = method.sources["train"].texts
        used = torch.unique(torch.cat(list(rows.rows)))
        mean = vectors[used].norm(dim=-1).mean().item()
        assert (mean == pytest.approx(2.0, rel=1e-5)) is (length is not None)


def test_a_run_on_vectors_of_a_file_resumes_to_the_same_bits(
    config: RunConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = sorted({name for names in TOPICS.values() for name in names} | {"the", "my", "day", "on", "tell"})
    generator = torch.Generator().manual_seed(0)
    lines = [" ".join([word, *map(str, torch.randn(6, generator=generator).tolist())]) for word in words]
    file = tmp_path / "vectors.txt"
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    monkeypatch.setenv("OPENPROMPT_META_CACHE", str(tmp_path / "cache"))
    for method in ("ds", "hatt"):
        config = config.with_values({"method": method, f"{method}.word_vectors": str(file)})
        Run(config, tmp_path / method, show_progress=False).train()
        cut_after(3, config, tmp_path / f"{method}-cut", monkeypatch)
        Run(config, tmp_path / f"{method}-cut", show_progress=False).train()
        assert_same_run(tmp_path / method, tmp_path / f"{method}-cut")
    assert len(list((tmp_path / "cache").glob("word-vectors-*"))) == 1


def test_contrastnets_views_are_of_training_texts_and_belong_to_the_task(config: RunConfig) -> None:
    method = built(config.with_values({"method": "contrastnet", "contrastnet.texts": 4, "contrastnet.tasks": 3}))
    learner: Any = method.learner
    tasks = [method.sources["train"][index] for index in (0, 1)]
    first, again, other = (learner.views(task) for task in (tasks[0], tasks[0], tasks[1]))
    assert torch.equal(first.texts[0]["input_ids"], again.texts[0]["input_ids"])
    assert torch.equal(first.texts[1]["input_ids"], again.texts[1]["input_ids"])
    assert not torch.equal(first.texts[0]["input_ids"], other.texts[0]["input_ids"])
    assert len(first.texts[0]["input_ids"]) == len(first.texts[1]["input_ids"]) == 4
    assert [len(batch["input_ids"]) for pair in first.tasks for batch in pair] == [6] * 6
    tokenizer = load_language_model(config).tokenizer
    train = {
        " ".join(tokenizer.tokenize(text))
        for name in TOPICS["train"]
        for text in open_dataset(config.dataset).train.texts
        if name in text
    }
    for row, mask in zip(first.texts[0]["input_ids"], first.texts[0]["attention_mask"], strict=True):
        assert " ".join(tokenizer.convert_ids_to_tokens(row[mask > 0].tolist()[1:-1])) in train


@pytest.mark.parametrize("method", ["ds", "mlada", "hatt", "contrastnet"])
def test_they_learn_from_a_mixture_of_data_sets(config: RunConfig, method: str, tmp_path: Path) -> None:
    topics = {"train": ["red", "green", "blue"], "valid": ["one", "two", "three"], "test": ["cat", "dog", "cow"]}
    folders = [write_data(tmp_path / "data"), write_data(tmp_path / "more", topics)]
    keys = {"dataset.path": None, "dataset.name": "both", "dataset.mixture": list(map(str, folders))}
    mixed = built(config.with_values({**keys, "method": method}))
    learner: Any = mixed.learner
    for index in range(3):
        task = mixed.sources["train"][index]
        assert len({name.partition("/")[0] for name in task.classes}) == 1
        assert len(task.classes) == 3, "no data set has more than the smaller one"
        assert learner.meta_step([task]).gradient_norm > 0


@pytest.mark.parametrize(
    ("keys", "place"),
    [
        ({"method": "ds", "meta": {"learner": "reptile"}}, "meta.learner"),
        ({"method": "hatt", "meta": {"train_shots": [1, 2]}}, "meta.train_shots"),
        ({"method": "contrastnet", "contrastnet": {"augmentation": "file"}}, "contrastnet.augmentation_file"),
        ({"method": "contrastnet", "contrastnet": {"augmentation_file": "x"}}, "contrastnet.augmentation_file"),
    ],
)
def test_what_does_not_go_together_is_refused_before_anything_loads(keys: dict[str, Any], place: str) -> None:
    from openprompt_meta.config.validation import config_from_mapping

    with pytest.raises(ConfigError, match=place):
        config_from_mapping(keys)
