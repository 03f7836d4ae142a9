"""Every key, at a value other than its default, is found again in the folder of a run that was really made with it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from openprompt_meta import MetaPromptClassifier
from openprompt_meta.config.schema import RunConfig, describe
from openprompt_meta.config.validation import config_from_mapping
from openprompt_meta.config.writing import to_mapping
from openprompt_meta.runs.checkpoint import read_scalars
from openprompt_meta.runs.run import Run, load_run_config
from tests.helpers.other_values import another_value
from tests.helpers.small_runs import TOPICS, cut_after, write_data

DEFAULTS = {key.path: key.default for key in describe()}
# No value of these goes with another method than metaprompter.
FOR_A_POOL = {"meta.inner_parameters", "meta.first_order"}
# These do not go with data of one path, or with a verbalizer that reads no names.
FOR_A_MIXTURE = {"dataset.mixture", "dataset.apart_from", "meta.train_names"}


@pytest.fixture
def other_values(tiny_mlm_folder: Callable[[str], Path], tmp_path: Path) -> dict[str, Any]:
    """For every key another value than its default, all of them together a run that can be made."""
    data, words = write_data(tmp_path / "data"), tmp_path / "words.json"
    words.write_text(json.dumps({name: [name] for names in TOPICS.values() for name in names}), encoding="utf-8")
    return {key.path: another_value(key) for key in describe()} | {
        "plm.model_path": str(tiny_mlm_folder("bert")),
        "dataset.name": "small",
        "dataset.path": str(data),
        "dataset.split_counts": [5, 3, 3],
        "dataset.label_words": str(words),
    }


def made_with(values: dict[str, Any]) -> RunConfig:
    return config_from_mapping(to_mapping(RunConfig().with_values(values)))


@pytest.mark.slow
def test_a_run_keeps_every_key(other_values: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    of_one = {path: value for path, value in other_values.items() if path not in FOR_A_MIXTURE}
    a_pool = {path: value for path, value in of_one.items() if path != "method"}
    a_model = {path: value for path, value in of_one.items() if path not in FOR_A_POOL}
    a_mixture = {
        "dataset.mixture": [str(write_data(tmp_path / name)) for name in ("one", "two")],
        "dataset.apart_from": [str(write_data(tmp_path / "three", {"train": ["war"], "test": ["sun"]}))],
        "dataset.name": "mixture",
        "meta.train_names": 0.25,
        "rep_verbalizer.name_weight": 1.0,
        **{path: other_values[path] for path in ("plm.model_path", "meta.iterations", "meta.way", "meta.shot")},
        **{path: other_values[path] for path in ("meta.query", "meta.valid_tasks", "meta.test_tasks", "run.seeds")},
    }
    assert a_pool.keys() | a_model.keys() | a_mixture.keys() == DEFAULTS.keys()
    for name, values in {"pool": a_pool, "model": a_model, "mixture": a_mixture}.items():
        folder = tmp_path / name
        cut_after(2, made_with(values), folder, monkeypatch)
        opened = load_run_config(folder)
        for path, value in values.items():
            assert opened.value_at(path) == value != DEFAULTS[path], path
        assert opened == made_with(values)
        # What was learned before the cut and after it, by the very same settings, is found again too.
        results = Run(opened, folder, show_progress=False).train()
        assert results is not None
        assert Run(load_run_config(folder), folder, show_progress=False).test() == results
    # A classifier reads texts to predict, never with dropout, and what was learned of the verbalizer is fixed for it.
    kept = MetaPromptClassifier.from_run(tmp_path / "pool").meta_learned.config
    assert a_pool["verbalizer"] == "warp_verbalizer"
    scalars = read_scalars(tmp_path / "pool/seed-3/checkpoints/best.safetensors")
    learned = {f"warp_verbalizer.{name}": value for name, value in scalars.items()}
    assert learned.keys() == {"warp_verbalizer.mix_lambda"}
    assert kept == made_with({**a_pool, "plm.dropout": False, **learned}).with_values({"warp_verbalizer.learn": []})
