"""What a YAML of `tools/minilm_mlm` may say."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from openprompt_meta.config.loading import parse_overrides
from openprompt_meta.config.validation import config_error, read_section
from openprompt_meta.config.yaml_file import read_yaml
from openprompt_meta.errors import ConfigError, did_you_mean
from openprompt_meta.sections import (
    Count,
    LearningRate,
    NonNegative,
    Positive,
    Proportion,
    Section,
    Seed,
    Steps,
    show,
)


class FitSettings(Section):
    """How the model is made."""

    rank: Count = 64
    """Of the update of each linear layer."""
    steps: Count = 5000
    """Optimiser steps in all; the learning rate falls to zero over them."""
    tokens_per_step: Count = 2048
    """Tokens of text in each."""
    lengths: list[Count] = Field(default_factory=lambda: [128, 32])
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
        return self.model_dump()


def load_settings(path: str | os.PathLike[str], overrides: list[str]) -> FitSettings:
    """The settings in a YAML, changed by ``key=value``.

    Raises:
        ConfigError: listing every key that is unknown and every value that does not fit.
    """
    content = read_yaml(Path(path)).content or {}
    if not isinstance(content, dict):
        raise ConfigError(f"{path} holds {show(content)}, expected keys such as rank and steps.")
    changes, problems = parse_overrides(overrides)
    settings, found = read_section(FitSettings, {**content, **changes.content}, "", _meant)
    problems += [f"{problem.path}: {problem.text}" for problem in found]
    shortest = min(settings.lengths or [8])
    if shortest < 8:
        problems.append(f"lengths: got {shortest}, expected lengths of at least 8: two of them are [CLS] and [SEP].")
    if problems:
        raise config_error(str(path), problems)
    return settings


def _meant(section: str, name: str) -> str:
    return did_you_mean(name, FitSettings.model_fields)
