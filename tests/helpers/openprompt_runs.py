"""A small OpenPrompt-style configuration and data set for the tests of whole runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.helpers.tiny_models import LABEL_WORDS

CLASSES = ("weather", "sport", "food")
# Words that the tiny vocabularies know, so that texts of one class look alike to a random model.
_SUBJECTS = {
    "weather": ("rain", "storm", "wind", "sun", "cloud"),
    "sport": ("game", "player", "goal", "team", "score"),
    "food": ("soup", "dish", "cook", "eat", "food"),
}
_FORMS = ("tell me about the {0}", "{0} and {1}", "i like the {0} in the city", "what is the {1} with the {0}")


def write_folder(folder: Path, *, sizes: dict[str, int] | None = None) -> Path:
    """A folder with train, valid and test of the same three classes, four, two and four texts each by default."""
    folder.mkdir(parents=True, exist_ok=True)
    start = 0
    for part, size in (sizes or {"train": 4, "valid": 2, "test": 4}).items():
        rows = [{"text": _text(name, start + number), "label": name} for name in CLASSES for number in range(size)]
        (folder / f"{part}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        start += size
    return folder


def _text(name: str, number: int) -> str:
    words = _SUBJECTS[name]
    first, second = words[number % len(words)], words[(2 * number + 1) % len(words)]
    return _FORMS[number % len(_FORMS)].format(first, second)


def small_config(model: Path, data: Path, logs: Path, **top: Any) -> dict[str, Any]:
    """A run of two epochs on a tiny model; ``top`` replaces or adds top-level entries."""
    words = {name: LABEL_WORDS[name] for name in CLASSES}
    config: dict[str, Any] = {
        "template": "prompt_pool_template",
        "verbalizer": "rep_verbalizer",
        "learning_setting": "full",
        "dataset": {"name": "jsonl_folder", "path": str(data)},
        "plm": {
            "model_name": "mlm",
            "model_path": str(model),
            "eval_mode": True,
            "optimize": {"freeze_para": True},
        },
        "prompt_pool_template": {
            "text": '{"placeholder": "text_a"} {"pool"} topic is {"mask"}.',
            "num_prompts": 3,
            "prompt_length": 2,
            "optimize": {"lr": 0.05},
        },
        "manual_template": {"text": '{"placeholder": "text_a"} topic is {"mask"}.'},
        "proto_verbalizer": {"multi_verb": "proto", "lr": 0.05},
        "manual_verbalizer": {"label_words": words},
        "dart_verbalizer": {"label_words": words},
        "soft_verbalizer": {"optimize": {"lr": 0.05}},
        "one2one_verbalizer": {"label_words": [own[0] for own in words.values()]},
        "automatic_verbalizer": {"init_using_split": "train"},
        "dataloader": {"max_seq_length": 24},
        "train": {"num_epochs": 2, "batch_size": 4},
        "dev": {"batch_size": 6},
        "test": {"batch_size": 6},
        "classification": {"metric": ["accuracy", "macro-f1"]},
        "logging": {"path_base": str(logs), "unique_string": "run"},
        "reproduce": {"seed": 7},
    }
    return {**config, **top}


def predictions(folder: Path) -> list[str]:
    """What the runner wrote as its predictions on the test set."""
    return (folder / "test_preds.txt").read_text(encoding="utf-8").split()
