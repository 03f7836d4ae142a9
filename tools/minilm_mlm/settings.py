"""What a YAML of `tools/minilm_mlm` may say."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, get_type_hints

from openprompt_meta.config.overrides import parse_overrides
from openprompt_meta.config.ranges import (
    Count,
    LearningRate,
    NonNegative,
    Positive,
    Proportion,
    Seed,
    Steps,
)
from openprompt_meta.config.validation import config_error
from openprompt_meta.config.values import Mismatch, convert, show
from openprompt_meta.config.yaml_file import read_yaml
from openprompt_meta.errors import ConfigError, did_you_mean

__all__ = ["FitSettings", "load_settings"]


@dataclass(frozen=True)
class FitSettings:
    """How the model is made."""

    rank: Count = 64
    """Of the update of each linear layer."""
    steps: Count = 5000
    """Optimiser steps in all; the learning rate falls to zero over them."""
    tokens_per_step: Count = 2048
    """Tokens of text in each."""
    lengths: list[Count] = field(default_factory=lambda: [128, 32])
    """Texts of one step have one of these lengths, in turn."""
    mask_rate: Proportion = 0.2
    """Share of the words that is hidden in training; in judging it is 0.15, as in BERT."""
    learning_rate: LearningRate = 0.001
    """Of AdamW at its highest."""
    warmup: Steps = 100
    """Steps in which the learning rate rises from zero."""
    weight_decay: NonNegative = 0.01
    """On matrices."""
    clip: Positive = 1.0
    """Longest gradient."""
    precision: Literal["float32", "bfloat16"] = "float32"
    """Of matrix products; what is learned is float32 in any case."""
    seed: Seed = 0
    """Of the update's start, the texts and the hidden words."""
    judge_every: Count = 500
    """Steps between two looks at held-out text."""
    judge_tokens: Count = 32768
    """How much of it; all of it in the end."""
    checkpoint_every: Count = 100
    """Steps between checkpoints."""

    def to_mapping(self) -> dict[str, Any]:
        """As it would stand in a YAML."""
        return asdict(self)


def load_settings(path: str | os.PathLike[str], overrides: list[str]) -> FitSettings:
    """The settings in a YAML, changed by ``key=value``.

    Raises:
        ConfigError: listing every key that is unknown and every value that does not fit.
    """
    content = read_yaml(Path(path)).content or {}
    if not isinstance(content, dict):
        raise ConfigError(f"{path} holds {show(content)}, expected keys such as rank and steps.")
    changes, problems = parse_overrides(overrides)
    settings, found = _read({**content, **changes.content})
    if problems + found:
        raise config_error(str(path), problems + found)
    return settings


def _read(mapping: Mapping[Any, object]) -> tuple[FitSettings, list[str]]:
    hints = get_type_hints(FitSettings, include_extras=True)
    known = [key.name for key in dataclasses.fields(FitSettings)]
    values: dict[str, Any] = {}
    problems = []
    for name, value in mapping.items():
        if name not in known:
            problems.append(f"{name}: unknown key.{did_you_mean(str(name), known)}")
            continue
        try:
            values[name] = convert(value, hints[name])
        except Mismatch as mismatch:
            problems.append(f"{name}: {mismatch}")
    shortest = min(values.get("lengths") or [8])
    if shortest < 8:
        problems.append(f"lengths: got {shortest}, expected lengths of at least 8: two of them are [CLS] and [SEP].")
    return FitSettings(**values), problems
