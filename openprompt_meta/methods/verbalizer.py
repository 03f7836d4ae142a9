"""The verbalizer that a run's configuration asks for."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import torch

from openprompt_meta.config import RunConfig
from openprompt_meta.model import LoadedMLM
from openprompt_meta.prompts import EpisodicVerbalizer
from openprompt_meta.prompts.registry import VERBALIZERS

__all__ = ["build_verbalizer"]


def build_verbalizer(config: RunConfig, loaded: LoadedMLM, seed: int) -> EpisodicVerbalizer:
    """The verbalizer, without classes yet: those and their words come with each task.

    Args:
        config: the whole run.
        loaded: the language model.
        seed: for one that starts at random.
    """
    settings: dict[str, Any] = asdict(getattr(config, config.verbalizer))
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        verbalizer: EpisodicVerbalizer = VERBALIZERS[config.verbalizer](
            tokenizer=loaded.tokenizer, model=loaded.model, **settings
        )
    return verbalizer
