"""For every key of a configuration a value that is not its default, with whatever other keys that value asks for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from openprompt_meta.config.schema import Key, RunConfig, describe
from openprompt_meta.config.validation import config_from_mapping
from openprompt_meta.config.writing import to_mapping
from openprompt_meta.sections import choices, mismatch

# Text and lists, for which no other value follows from the type.
_GIVEN: dict[str, Any] = {
    "plm.model_path": "bert-base-cased",
    "dataset.name": "hwu64",
    "dataset.splits": "random",
    "dataset.split_counts": [20, 8, 7],
    "dataset.drop": ["empty"],
    "dataset.path": "some/folder",
    "dataset.label_words": "words.json",
    "dataset.mixture": ["demo", "hwu64"],
    "dataset.max_samples": 500,
    "verbalizer": "warp_verbalizer",
    "dataset.apart_from": ["liu54"],
    "meta.train_ways": [2, 9],
    "meta.train_shots": [1, 4],
    "prompt_pool_template.text": '{"pool"} {"placeholder": "text_a"} is {"mask"}',
    "run.seeds": [3, 4],
    "run.device": "cpu",
    "run.loggers": ["tensorboard"],
    "rep_verbalizer.learn": ["temperature"],
    "adaptive_verbalizer.learn": ["temperature"],
    "adaptive_verbalizer.strengths": [0.5, 2.0],
    "warp_verbalizer.learn": ["mix_lambda"],
    "dart_verbalizer.learn": ["mix_lambda"],
    "proto_verbalizer.learn": ["mix_lambda"],
}

_COMPANIONS: dict[str, dict[str, Any]] = {
    "dataset.mixture": {"dataset.path": None, "dataset.name": "both"},
    "dataset.apart_from": {"dataset.path": None, "dataset.name": "both", "dataset.mixture": ["demo", "hwu64"]},
    "meta.train_names": {"rep_verbalizer.name_weight": 1.0},
    "prompt_pool_template.prefix_strength": {"prompt_pool_template.as_prefix": True},
    "dataset.splits": {"dataset.split_counts": [20, 8, 7]},
    **{
        f"{name}.learn": {f"{name}.mix_lambda": 0.5}
        for name in ("warp_verbalizer", "dart_verbalizer", "proto_verbalizer")
    },
}


def another_value(key: Key) -> Any:
    """A value that the key may take and that is not its default."""
    if key.path in _GIVEN:
        return _GIVEN[key.path]
    if isinstance(key.default, bool):
        return not key.default
    options: list[Any] = [*choices(key.hint), 0.25, 3, 16, 0, 512, f"another {key.name}"]
    return next(value for value in options if value != key.default and mismatch(value, key.hint) is None)


def configs_with_each_key_changed(base: RunConfig) -> Iterator[tuple[Key, RunConfig]]:
    """The base with one key after the other at another value, and what that value cannot do without."""
    for key in describe():
        value = another_value(key)
        config = base.with_values({**_COMPANIONS.get(key.path, {}), key.path: value})
        yield key, config_from_mapping(to_mapping(config))
