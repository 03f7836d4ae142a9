"""Named sets of values: ``preset: authors``.

A preset counts as one more inherited file, read after the others: what the file itself says, and what the command line
says, wins over it.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

__all__ = ["AUTHORS", "PRESETS", "authors", "preset"]

_TEXT = '{{"placeholder": "text_a"}} {{"special": "<sep>"}} {{"pool"}} {{"special": "<cls>"}} {prefix} {{"mask"}}.'
_INTENTS = ("hwu64", "liu54", "demo")

AUTHORS: Mapping[str, Any] = {
    "plm": {"dropout": True},
    "dataset": {"max_seq_length": 220},
    "prompt_pool_template": {
        "text": _TEXT.format(prefix="Topic is"),
        "num_prompts": 8,
        "prompt_length": 8,
        "top_n": None,
        "init": "label_words",
    },
    "verbalizer": "rep_verbalizer",
    "rep_verbalizer": {
        "aggregation": "logits",
        "similarity": "cosine",
        "temperature": 10.0,
        "inner_temperature": 1.0,
        "centring": "transductive",
    },
    "meta": {
        "inner_lr": 0.1,
        "inner_steps": 5,
        "inner_steps_eval": 5,
        "loss": "mean",
        "first_order": True,
        "label_embeddings": "adapted",
        "outer_lr": 1e-3,
        "optimizer": "adamw",
        "iterations": 4000,
        "patience": 3,
        "min_gain": 0.0005,
        "valid_tasks": 200,
        "test_tasks": 300,
    },
}
"""The authors' settings for news and products; see :func:`authors`."""


def authors(dataset: str, shot: int) -> dict[str, Any]:
    """What the authors' code does (``ws-jiang/MetaPrompter_public``), as far as keys can say it.

    It differs from the paper, and from our defaults, in these points: features are centred by the mean over support
    and query (so results are transductive and reported apart), ρ is 1 in the inner loop, J is 5 in validation and
    test too (15 for HuffPost 1-shot), the outer optimiser is AdamW, dropout stays on while meta-training, training
    runs for at most 4000 iterations and stops after 3 validations without a gain of 0.0005, and the text reads
    ``[CLS] x [SEP] θ [CLS] Topic is [MASK] . [SEP]`` ("Topic is about" for intents).

    What no key can say, and what we therefore do our way: their embedding layer is applied twice; their prompts start
    from label words of all classes, those of the test included; and their text is padded before the template is added,
    so that the position of the [MASK] depends on the batch. λ is left alone: theirs, 0.5, needs a vocabulary head, and
    stands in the YAMLs of the models that have one.

    Args:
        dataset: the data set's name, for the words of the template and for J.
        shot: support examples a class, for J.
    """
    values: dict[str, Any] = deepcopy(dict(AUTHORS))
    if dataset in _INTENTS:
        values["prompt_pool_template"]["text"] = _TEXT.format(prefix="Topic is about")
    if dataset == "huffpost" and shot == 1:
        values["meta"]["inner_steps_eval"] = 15
    return values


PRESETS = {"authors": authors}


def preset(name: str, mapping: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a preset for the data set and shots that ``mapping``, not yet validated, asks for."""
    return PRESETS[name](_entry(mapping, "dataset", "name", "demo"), _entry(mapping, "meta", "shot", 5))


def _entry(mapping: Mapping[str, Any], section: str, key: str, default: Any) -> Any:
    values = mapping.get(section)
    value = values.get(key, default) if isinstance(values, Mapping) else default
    return value if isinstance(value, type(default)) else default
