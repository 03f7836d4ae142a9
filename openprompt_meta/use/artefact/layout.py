"""What is where in a saved classifier.

``classifier.json`` describes it, ``classifier.safetensors`` holds the meta-learned pool, the fitted verbalizer and the
support examples' features, ``support.json`` the examples, ``README.md`` tells people. ``prompt_pool.json`` and
``prompt_pool.safetensors`` are what :meth:`~openprompt_meta.PromptPoolTemplate.from_pretrained` reads: the pool as it
was adapted, so that any OpenPrompt project prompts as the classifier does (the meta-learned one if nothing is fitted).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from openprompt_meta.config import RunConfig
from openprompt_meta.use.fitted import FittedTask
from openprompt_meta.use.meta_learned import MetaLearned

__all__ = [
    "CARD",
    "DESCRIPTION",
    "FEATURES",
    "FILES",
    "FORMAT",
    "FORMAT_VERSION",
    "META_POOL",
    "POOL",
    "POOL_TENSORS",
    "SUPPORT",
    "TENSORS",
    "VERBALIZER",
    "Stored",
    "is_artefact",
    "settings_of",
]

FORMAT = "openprompt_meta.classifier"
FORMAT_VERSION = 1

DESCRIPTION, TENSORS, SUPPORT, CARD = "classifier.json", "classifier.safetensors", "support.json", "README.md"
POOL, POOL_TENSORS = "prompt_pool.json", "prompt_pool.safetensors"
FILES = (DESCRIPTION, TENSORS, SUPPORT, POOL, POOL_TENSORS, CARD)

# Names of the tensors in TENSORS.
META_POOL, VERBALIZER, FEATURES = "meta_pool.", "verbalizer.", "features"

_META_KEYS = ("inner_lr", "inner_steps_eval", "loss", "label_embeddings", "first_order")


@dataclass(frozen=True)
class Stored:
    """What a folder holds.

    Attributes:
        meta: what was meta-learned.
        task: what was fitted, if anything was.
        metrics: how well it does, by the user's own measure.
    """

    meta: MetaLearned
    task: FittedTask | None
    metrics: Mapping[str, float]


def is_artefact(folder: str | os.PathLike[str]) -> bool:
    """Whether a folder has a classifier's description in it."""
    return (Path(folder) / DESCRIPTION).is_file()


def settings_of(config: RunConfig) -> dict[str, Any]:
    """What a classifier needs of a run's configuration; the device is not in it, being a matter of the machine."""
    return {
        "plm": asdict(config.plm),
        "dataset": {"max_seq_length": config.dataset.max_seq_length},
        "template": config.template,
        config.template: asdict(getattr(config, config.template)),
        "verbalizer": config.verbalizer,
        config.verbalizer: asdict(getattr(config, config.verbalizer)),
        "meta": {name: getattr(config.meta, name) for name in _META_KEYS},
    }
