"""What a run's configuration may hold: OpenPrompt's defaults, sections for our classes, and a few keys of ours."""

from __future__ import annotations

import inspect
from typing import Any

from openprompt.config import convert_cfg_to_dict
from openprompt.default_config import get_default_config
from openprompt.prompts import TEMPLATE_CLASS, VERBALIZER_CLASS

from openprompt_meta.prompts.config_keys import OPENPROMPT_KEYS, SUPPLIED

__all__ = ["PROMPT_TABLES", "Tree", "default_tree", "known_keys"]

Tree = dict[str, Any]

PROMPT_TABLES: dict[str, dict[str, type]] = {"template": TEMPLATE_CLASS, "verbalizer": VERBALIZER_CLASS}

# What OpenPrompt's runners read, or its own YAMLs have, in the `optimize` of a template or verbalizer.
_OPTIMIZE = ("name", "lr", "betas", "adam_epsilon", "weight_decay", "no_decay", "scheduler", "level")
_SCHEDULER = ("type", "num_warmup_steps")

_WORDS: Tree = {"parent_config": "verbalizer", "label_words": None, "file_path": None, "choice": None}
_WARP: Tree = {**_WORDS, "optimize": {"lr": 0.01, "scheduler": None}}

_SECTIONS: Tree = {
    "prompt_pool_template": {
        "parent_config": "template",
        "text": None,
        "file_path": None,
        "choice": 0,
        "optimize": {"name": "AdamW", "lr": 0.001, "adam_epsilon": 1.0e-8, "scheduler": None},
    },
    "rep_verbalizer": {**_WORDS, "optimize": None},
    "proto_verbalizer": {**_WORDS, "optimize": None},
    "warp_verbalizer": _WARP,
    "dart_verbalizer": _WARP,
}

_KEYS: Tree = {
    # OpenPrompt's freeze_para leaves dropout on; this also switches it off.
    "plm": {"eval_mode": False},
    # Read by OpenPrompt's runner for ProtoVerb, under this spelling, and in none of its defaults.
    "train": {"train_verblizer": "alternate"},
    # Arguments of our processors; see openprompt_meta.openprompt_runs.processor.
    "dataset": {"num_classes": None, "shots": None, "dev_shots": None, "seed": None},
}


def default_tree() -> Tree:
    """All sections with their defaults, as nested dictionaries that the caller may change."""
    tree: Tree = convert_cfg_to_dict(get_default_config())
    tree.update({name: _copied(section) for name, section in _SECTIONS.items()})
    for name, keys in _KEYS.items():
        tree[name].update(keys)
    return tree


def known_keys(path: tuple[str, ...]) -> tuple[str, ...] | None:
    """The keys that the section at ``path`` may have; ``None`` if it is a value, which may be any mapping too."""
    node: Any = default_tree()
    for key in path:
        node = node.get(key) if isinstance(node, dict) else None
    own = tuple(node) if isinstance(node, dict) else None
    if not path:
        return (*(own or ()), *TEMPLATE_CLASS, *VERBALIZER_CLASS)
    name, inner = path[0], path[1:]
    for table in PROMPT_TABLES.values():
        if name in table:
            of_class = {(): _arguments(table[name]), ("optimize",): _OPTIMIZE, ("optimize", "scheduler"): _SCHEDULER}
            return (*(own or ()), *of_class[inner]) if inner in of_class else None
    return own


def _arguments(prompt_class: type) -> tuple[str, ...]:
    parameters = inspect.signature(prompt_class).parameters.values()
    named = [p.name for p in parameters if p.kind is not p.VAR_KEYWORD and p.name not in SUPPLIED]
    return (*named, *OPENPROMPT_KEYS)


def _copied(section: Tree) -> Tree:
    return {key: _copied(value) if isinstance(value, dict) else value for key, value in section.items()}
