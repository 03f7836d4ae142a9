"""What a classifier starts from: a pool, meta-learned or new, with the settings and the model it belongs to."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from torch import Tensor, nn

from openprompt_meta.classifier.base_model import BaseModel, load_base_model
from openprompt_meta.config.schema import RunConfig, key_at
from openprompt_meta.errors import (
    CheckpointError,
    ConfigError,
    ModelError,
    RunError,
)
from openprompt_meta.prompts.pool_template import PromptPoolTemplate
from openprompt_meta.runs.checkpoint import Progress, load_pool
from openprompt_meta.runs.folder import RunFolder
from openprompt_meta.runs.run import load_run_config
from openprompt_meta.sections import mismatch

__all__ = [
    "Changes",
    "MetaLearned",
    "Tensors",
    "base_model_of",
    "changed",
    "fresh",
    "fresh_pool",
    "of_run",
    "run_pool",
    "template_with",
    "tensors_of",
]

logger = logging.getLogger(__name__)

_ARGUMENTS = {"meta.inner_steps_eval": "inner_steps", "plm.model_path": "base_model"}
"""Arguments of the classifier that are not called as their key is."""

# -- Pools as tensors by name: a fresh one, that of a run, and the template around one --------------------------------

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
    settings = {**config.prompt_pool_template.model_dump(), "init": init}
    template = PromptPoolTemplate(
        base.loaded.model, base.loaded.tokenizer, **settings, seed=seed, max_seq_length=config.dataset.max_seq_length
    )
    template.to(base.loaded.model.device)
    return template


def tensors_of(module: nn.Module) -> dict[str, Tensor]:
    """What a module's ``state_dict`` holds, copied to the CPU."""
    return {name: value.detach().cpu().clone() for name, value in module.state_dict().items()}


@dataclass(frozen=True)
class MetaLearned:
    """Plain data, without the language model.

    Attributes:
        config: of the run it comes from; of it, model, template, verbalizer, length budget and inner loop are used.
        pool: the tensors of the pool, by name.
        seed: of whatever is random in adapting it.
        fingerprint: of the language model's weights.
        tokenizer_fingerprint: of its tokenizer's vocabulary.
        origin: data, metrics and versions of the run, for people.
    """

    config: RunConfig
    pool: Mapping[str, Tensor]
    seed: int
    fingerprint: str
    tokenizer_fingerprint: str
    origin: Mapping[str, Any]


@dataclass(frozen=True)
class Changes:
    """Settings that replace those of the run; ``None`` leaves one as it is."""

    base_model: str | os.PathLike[str] | None = None
    device: str | None = None
    inner_steps: int | None = None
    inner_lr: float | None = None
    mix_lambda: float | None = None


def changed(config: RunConfig, changes: Changes) -> RunConfig:
    """``config`` with ``changes``, and fit for texts that come one by one.

    Raises:
        ConfigError: a change is out of its range, or the verbalizer has no λ.
    """
    steps, rate, mix = changes.inner_steps, changes.inner_lr, changes.mix_lambda
    values: dict[str, Any] = {"plm.dropout": False}
    if changes.base_model is not None:
        values["plm.model_path"] = os.fspath(changes.base_model)
    if changes.device is not None:
        values["run.device"] = changes.device
    if steps is not None:
        values["meta.inner_steps_eval"] = steps
    if rate is not None:
        values["meta.inner_lr"] = rate
    if mix is not None:
        if key_at(f"{config.verbalizer}.mix_lambda") is None:
            raise ConfigError(
                f"mix_lambda is {mix!r}, but {config.verbalizer} has label words alone and mixes nothing."
            )
        values[f"{config.verbalizer}.mix_lambda"] = mix
    if config.transductive:
        logger.warning(
            "The run centred features over the texts under prediction (transductive). A classifier sees them one by "
            "one, so it centres over the support set instead."
        )
        values[f"{config.verbalizer}.centring"] = "support"
    _require_fitting(values)
    return config.with_values(values)


def _require_fitting(values: Mapping[str, Any]) -> None:
    """Refuse values that a YAML could not have at these keys."""
    for path, value in values.items():
        key = key_at(path)
        problem = None if key is None else mismatch(value, key.hint)
        if key is not None and problem is not None:
            raise ConfigError(f"{_ARGUMENTS.get(path, key.name)}: {problem} None leaves it as the run has it.")


def of_run(folder: str | os.PathLike[str], seed: int | None, changes: Changes) -> MetaLearned:
    """The best pool of a trained run.

    Args:
        folder: the run's.
        seed: which of its seeds; the first if ``None``.
        changes: settings to replace.

    Raises:
        RunError: there is no such run, or it has no such seed.
        CheckpointError: its best checkpoint is missing or damaged.
    """
    config = load_run_config(os.fspath(folder))
    chosen = config.run.seeds[0] if seed is None else seed
    if chosen not in config.run.seeds:
        raise RunError(f"The run {os.fspath(folder)} has no seed {seed!r}; it has {config.run.seeds}.")
    run = RunFolder(folder)
    checkpoint = run.seed(chosen).best_checkpoint
    if not checkpoint.is_file():
        raise CheckpointError(
            f"The run {os.fspath(folder)} has no best checkpoint for seed {chosen} yet. Go on with: "
            f"openprompt-meta resume {os.fspath(folder)}"
        )
    config = changed(config, changes)
    base = load_base_model(config)
    pool, progress = run_pool(base, config, checkpoint)
    origin = {
        "dataset": config.dataset.name,
        "way": config.meta.way,
        "shot": config.meta.shot,
        "iteration": progress.best_iteration,
        "validation_accuracy": progress.best_accuracy,
        "test_accuracy": (_json(run.results_file) or {}).get("test_accuracy"),
        "versions": _versions(_json(run.versions_file)),
    }
    return MetaLearned(config, pool, chosen, base.fingerprint, base.tokenizer_fingerprint, origin)


def fresh(seed: int | None, changes: Changes) -> MetaLearned:
    """A pool that has learned nothing, on ``minilm`` unless ``changes`` name another model."""
    chosen = 0 if seed is None else seed
    config = changed(RunConfig(), changes)
    base = load_base_model(config)
    return MetaLearned(
        config, fresh_pool(base, config, chosen), chosen, base.fingerprint, base.tokenizer_fingerprint, {}
    )


def base_model_of(meta: MetaLearned) -> BaseModel:
    """The language model that the pool was learned on.

    Raises:
        ModelError: it cannot be loaded, or it is another than the pool was learned on.
    """
    base = load_base_model(meta.config)
    path = meta.config.plm.model_path
    for what, found, expected in (
        ("weights", base.fingerprint, meta.fingerprint),
        ("vocabulary", base.tokenizer_fingerprint, meta.tokenizer_fingerprint),
    ):
        if found != expected:
            raise ModelError(
                f"The base model {path} has changed: its {what} have sha256 {found[:16]}…, the pool was learned on "
                f"{expected[:16]}…, and would give nonsense on another model. Get the model as it was (base_model= "
                "names another folder or hub name), or train and fit again on this one."
            )
    return base


def _versions(found: Any) -> dict[str, Any]:
    """Versions of software; the machine it ran on is nobody's business."""
    known = found if isinstance(found, dict) else {}
    return {name: version for name, version in known.items() if name not in ("platform", "threads")}


def _json(path: os.PathLike[str]) -> Any:
    """The content of a file that may be missing or damaged: it is for people only."""
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    except (OSError, ValueError):
        return None
