"""Pools as tensors by name: a fresh one, that of a run, and the template around one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TypeAlias

from torch import Tensor, nn

from openprompt_meta.config import RunConfig
from openprompt_meta.errors import ModelError
from openprompt_meta.prompts import PromptPoolTemplate
from openprompt_meta.runs.checkpoint import Progress, load_pool
from openprompt_meta.use.base_model import BaseModel

__all__ = ["Tensors", "fresh_pool", "run_pool", "template_with", "tensors_of"]

Tensors: TypeAlias = Mapping[str, Tensor]


def fresh_pool(base: BaseModel, config: RunConfig, seed: int) -> dict[str, Tensor]:
    """A pool that has learned nothing yet, started from the vocabulary."""
    with base.tokenizing:
        return tensors_of(_new_template(base, config, init="vocab", seed=seed).pool)


def run_pool(base: BaseModel, config: RunConfig, checkpoint: Path) -> tuple[dict[str, Tensor], Progress]:
    """The pool of a run's checkpoint, and how far the run had come.

    Raises:
        CheckpointError: the file is missing, damaged, or of another pool.
    """
    with base.tokenizing:
        template = _new_template(base, config)
    progress = load_pool(checkpoint, template.pool)
    return tensors_of(template.pool), progress


def template_with(base: BaseModel, config: RunConfig, pool: Tensors) -> PromptPoolTemplate:
    """The template that a configuration describes, with a copy of ``pool``.

    Raises:
        ModelError: the pool is not of the language model's size.
    """
    template = _new_template(base, config)
    try:
        template.pool.load_state_dict(dict(pool))  # copies: the tensors given stay as they are
    except RuntimeError as error:
        raise ModelError(f"The pool does not fit the language model {config.plm.model_path}: {error}") from None
    return template


def _new_template(base: BaseModel, config: RunConfig, init: str = "random", seed: int = 0) -> PromptPoolTemplate:
    settings = {**asdict(config.prompt_pool_template), "init": init}
    template = PromptPoolTemplate(
        base.loaded.model, base.loaded.tokenizer, **settings, seed=seed, max_seq_length=config.dataset.max_seq_length
    )
    template.to(base.loaded.model.device)
    return template


def tensors_of(module: nn.Module) -> dict[str, Tensor]:
    """What a module's ``state_dict`` holds, copied to the CPU."""
    return {name: value.detach().cpu().clone() for name, value in module.state_dict().items()}
