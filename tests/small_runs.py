"""What the tests of runs share: a tiny model, small data, short runs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from openprompt_meta.config import RunConfig, config_from_mapping

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
