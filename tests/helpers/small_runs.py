"""What the tests of runs share: a tiny model, small data, short runs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch

from openprompt_meta.config.schema import RunConfig
from openprompt_meta.config.validation import config_from_mapping
from openprompt_meta.runs.run import Run
from openprompt_meta.runs.training import Training

TOPICS = {
    "train": ["weather", "sport", "food", "travel", "music"],
    "valid": ["money", "science", "law"],
    "test": ["phone", "movie", "doctor"],
}
FILLERS = ("the", "a", "my", "we want", "tell me about", "what was", "i like")


def write_data(folder: Path, topics: dict[str, Sequence[str]] | None = None, each: int = 8) -> Path:
    """A data set in the layout of the package, each text with its class's name in it."""
    folder.mkdir(parents=True, exist_ok=True)
    topics = topics or TOPICS
    for split, classes in topics.items():
        lines = [
            json.dumps({"text": f"{FILLERS[i % len(FILLERS)]} {name} on day {i}", "label": name})
            for name in classes
            for i in range(each)
        ]
        (folder / f"{split}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (folder / "splits.json").write_text(json.dumps({"default": dict(topics)}), encoding="utf-8")
    words = {name: [name] for classes in topics.values() for name in classes}
    (folder / "labels.json").write_text(json.dumps(words), encoding="utf-8")
    return folder


def small_config(model: Path, data: Path, **meta: Any) -> RunConfig:
    """Three-way two-shot tasks on a tiny model, six iterations."""
    settings = {
        "way": 3,
        "shot": 2,
        "query": 2,
        "iterations": 6,
        "validate_every": 2,
        "valid_tasks": 3,
        "test_tasks": 4,
        "inner_steps": 2,
        "inner_steps_eval": 2,
        **meta,
    }
    return config_from_mapping(
        {
            "plm": {"model_path": str(model)},
            "dataset": {"name": "small", "path": str(data), "max_seq_length": 48},
            "prompt_pool_template": {"num_prompts": 3, "prompt_length": 2},
            "meta": settings,
            "run": {"checkpoint_every": 1},
        }
    )


def without_times(file: Path) -> list[dict[str, Any]]:
    """The records of a metrics file, but for how long things took."""
    records = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    return [{key: value for key, value in record.items() if key != "seconds"} for record in records]


def assert_same_run(one: Path, two: Path, keeps_state: bool = True) -> None:
    """Parameters, optimiser state if it has any, metrics and results, bit by bit."""
    for name in ("last", "best"):
        file = f"seed-0/checkpoints/{name}.safetensors"
        first, second = safetensors.torch.load_file(one / file), safetensors.torch.load_file(two / file)
        assert first.keys() == second.keys()
        assert any(key.startswith("optimizer.") for key in first) is keeps_state or name == "best"
        assert all(torch.equal(first[key], second[key]) for key in first)
    assert without_times(one / "seed-0/metrics.jsonl") == without_times(two / "seed-0/metrics.jsonl")
    assert (one / "seed-0/test.json").read_text() == (two / "seed-0/test.json").read_text()


def cut_after(iteration: int, config: RunConfig, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Start a run that dies after an iteration."""
    real = Training._step

    def crashing(self: Training, bar: Any) -> None:
        real(self, bar)
        if self.progress.iteration == iteration:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Training, "_step", crashing)
        with pytest.raises(KeyboardInterrupt):
            Run(config, folder, show_progress=False).train()
