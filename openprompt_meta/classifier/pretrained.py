"""What a classifier starts from: a pool, meta-learned or new, with its settings and its language model."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias

from torch import Tensor, nn

from openprompt_meta.components import verbalizers
from openprompt_meta.config.schema import RunConfig, key_at
from openprompt_meta.encoder.loading import LoadedMLM, fingerprint
from openprompt_meta.encoder.model_files import is_on_this_machine
from openprompt_meta.encoder.packaged import MINILM
from openprompt_meta.errors import CheckpointError, ConfigError, ModelError, RunError
from openprompt_meta.methods.language_model import load_language_model
from openprompt_meta.prompts.pool_template import PromptPoolTemplate
from openprompt_meta.prompts.pooling import suited_features
from openprompt_meta.runs.checkpoint import load_pool, read_scalars
from openprompt_meta.runs.folder import RunFolder
from openprompt_meta.runs.run import load_run_config
from openprompt_meta.sections import mismatch

logger = logging.getLogger(__name__)

# -- The frozen language model: loaded once, shared, and known by its fingerprint -------------------------------------


@dataclass(frozen=True)
class BaseModel:
    """A frozen language model and what identifies it.

    Attributes:
        loaded: model, tokenizer and OpenPrompt's wrapper; shared by every classifier on it, changed by none.
        fingerprint: sha256 over the model's tensors, whatever they are called.
        tokenizer_fingerprint: sha256 over the vocabulary.
        wordless_ids: tokens that tell a reader nothing: special ones, and places that a vocabulary keeps free.
        tokenizing: held while the tokenizer is used: a fast tokenizer may not be entered twice.
    """

    loaded: LoadedMLM
    fingerprint: str
    tokenizer_fingerprint: str
    wordless_ids: Sequence[int]
    tokenizing: threading.Lock = field(default_factory=threading.Lock)


_KEPT = 2
_loaded: dict[tuple[object, ...], BaseModel] = {}
_loading = threading.Lock()


def load_base_model(config: RunConfig) -> BaseModel:
    """The language model that a configuration asks for, frozen; the last few are kept and shared.

    Raises:
        ModelError: it cannot be loaded.
    """
    plm = config.plm
    state = _state_of(Path(plm.model_path))
    key = (plm.model_path, plm.attn_implementation, plm.precision, plm.allow_pickle, config.run.device, state)
    with _loading:
        if key not in _loaded:
            loaded = load_language_model(config)
            loaded.model.eval()
            vocabulary: dict[str, int] = loaded.tokenizer.get_vocab()
            unused = [number for token, number in vocabulary.items() if re.fullmatch(r"[\[<]unused\d+[\]>]", token)]
            found = BaseModel(
                loaded,
                fingerprint(loaded.model),
                hashlib.sha256(json.dumps(sorted(vocabulary.items())).encode()).hexdigest(),
                [*loaded.tokenizer.all_special_ids, *unused],
            )
            while len(_loaded) >= _KEPT:
                del _loaded[next(iter(_loaded))]
            _loaded[key] = found
        return _loaded[key]


def _state_of(folder: Path) -> tuple[tuple[str, int, int], ...]:
    """Names, sizes and times of a folder's files, so that a model which changes on disk is read anew."""
    if not os.path.isdir(folder):
        return ()
    files = sorted(file for file in folder.iterdir() if file.is_file())
    return tuple((file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in files)


# -- Pools as tensors by name, and the template around one ------------------------------------------------------------

Tensors: TypeAlias = Mapping[str, Tensor]


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


# -- A pool with its settings: from a run, or new ---------------------------------------------------------------------


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
    pool: Tensors
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
    allow_pickle: bool | None = None


_ARGUMENTS = {"meta.inner_steps_eval": "inner_steps", "plm.model_path": "base_model"}
"""Arguments of the classifier that are not called as their key is."""


def changed(config: RunConfig, changes: Changes) -> RunConfig:
    """``config`` with ``changes``, and fit for texts that come one by one.

    Raises:
        ConfigError: a change is out of its range, or the verbalizer has no λ.
    """
    model, mix_key = changes.base_model, f"{config.verbalizer}.mix_lambda"
    given = {
        "plm.model_path": None if model is None else os.fspath(model),
        "run.device": changes.device,
        "meta.inner_steps_eval": changes.inner_steps,
        "meta.inner_lr": changes.inner_lr,
        mix_key: changes.mix_lambda,
        "plm.allow_pickle": changes.allow_pickle,
    }
    values: dict[str, Any] = {path: value for path, value in given.items() if value is not None}
    for path, value in values.items():
        key = key_at(path)
        if key is None:
            raise ConfigError(
                f"mix_lambda is {value!r}, but {config.verbalizer} has label words alone and mixes nothing."
            )
        problem = mismatch(value, key.hint)
        if problem is not None:
            raise ConfigError(f"{_ARGUMENTS.get(path, key.name)}: {problem} None leaves it as the run has it.")
    if config.transductive:
        logger.warning(
            "The run looked at all texts under prediction together (transductive). A classifier sees them one by one, "
            "so it centres over the support set, if at all, and assigns no texts to classes."
        )
        section = config.verbalizer_section.model_dump()
        if section.get("centring") == "transductive":
            values[f"{config.verbalizer}.centring"] = "support"
        if section.get("assignment_rounds"):
            values[f"{config.verbalizer}.assignment_rounds"] = 0
    return config.with_values({**values, "plm.dropout": False})


def of_run(folder: str | os.PathLike[str], seed: int | None, changes: Changes) -> MetaLearned:
    """The best pool of a trained run.

    Args:
        folder: the run's.
        seed: which of its seeds; the first if ``None``.
        changes: settings to replace.

    Raises:
        RunError: there is no such run, it has no such seed, or its method learns no prompts.
        CheckpointError: its best checkpoint is missing or damaged.
    """
    config = load_run_config(os.fspath(folder))
    chosen = config.run.seeds[0] if seed is None else seed
    if chosen not in config.run.seeds:
        raise RunError(f"The run {os.fspath(folder)} has no seed {seed!r}; it has {config.run.seeds}.")
    if not config.method_declaration.uses_verbalizer:
        raise RunError(
            f"The run {os.fspath(folder)} is of method: {config.method}, which learns no prompts to start a "
            "classifier from. Use a run of method: metaprompter."
        )
    run = RunFolder(folder)
    checkpoint = run.seed(chosen).best_checkpoint
    if not checkpoint.is_file():
        raise CheckpointError(
            f"The run {os.fspath(folder)} has no best checkpoint for seed {chosen} yet. Go on with: "
            f"openprompt-meta resume {os.fspath(folder)}"
        )
    config = changed(with_learned_scalars(config, checkpoint), changes)
    base = load_base_model(config)
    config = _with_known_features(config, base)
    with base.tokenizing:
        pool = _new_template(base, config).pool
    progress = load_pool(checkpoint, pool)
    versions = _for_people(run.versions_file)
    origin = {
        "dataset": config.dataset.name,
        "way": config.meta.way,
        "shot": config.meta.shot,
        "iteration": progress.best_iteration,
        "validation_accuracy": progress.best_accuracy,
        "test_accuracy": _for_people(run.results_file).get("test_accuracy"),
        # Versions of software; the machine it ran on is nobody's business.
        "versions": {name: version for name, version in versions.items() if name not in ("platform", "threads")},
    }
    return MetaLearned(config, tensors_of(pool), chosen, base.fingerprint, base.tokenizer_fingerprint, origin)


def _with_known_features(config: RunConfig, base: BaseModel) -> RunConfig:
    """``features: auto`` as the language model has it, for a file that is read without one to say it."""
    key = "prompt_pool_template.features"
    return config.with_values({key: suited_features(config.value_at(key), base.loaded.model)})


def with_learned_scalars(config: RunConfig, checkpoint: Path) -> RunConfig:
    """The configuration with the scalars of the verbalizer as they were learned, and fixed from here on."""
    learned = config.verbalizer_section.learned
    values = {
        f"{config.verbalizer}.{name}": value for name, value in read_scalars(checkpoint).items() if name in learned
    }
    return config.with_values({**values, f"{config.verbalizer}.learn": []}) if learned else config


def takes_shipped_pool(base_model: str | os.PathLike[str] | None) -> bool:
    """Whether the language model is the one that the pool which ships was learned on."""
    return base_model is None or os.fspath(base_model) == MINILM


SERVING: Mapping[str, Any] = {
    "plm.precision": "float32",
    "verbalizer": "adaptive_verbalizer",
    "run.folder": None,  # where it lay is of no use to others
    "run.threads": None,
}
"""What a pool is used with, in place of what it was learned with."""

SERVING_STRENGTH = 0.4
"""What a position of a prefix counts for in use. It is learned at full strength; weaker, it keeps most of what it is
worth on texts of the kind that it was learned on, and is worth more on others (docs/results.md)."""


def serving(meta: MetaLearned, precision: str = "float32") -> MetaLearned:
    """The same pool with the settings that serve whoever fits it.

    Its verbalizer takes over what the settings of the one before have in common with its own.

    Args:
        meta: the pool.
        precision: of the language model.
    """
    config = meta.config
    values = {**SERVING, "plm.precision": precision}
    if config.prompt_pool_template.as_prefix:
        values["prompt_pool_template.prefix_strength"] = SERVING_STRENGTH
    chosen = values["verbalizer"]
    if chosen != config.verbalizer:
        given = config.verbalizer_section.model_dump()
        known = verbalizers()[chosen].config.model_fields
        values |= {f"{chosen}.{key}": value for key, value in given.items() if key in known}
    config = config.with_values(values)
    base = load_base_model(config)
    return replace(meta, config=config, fingerprint=base.fingerprint, tokenizer_fingerprint=base.tokenizer_fingerprint)


def fresh(seed: int | None, changes: Changes) -> MetaLearned:
    """A pool that has learned nothing, for a language model that no pool ships for."""
    chosen = 0 if seed is None else seed
    config = changed(RunConfig(), changes)
    base = load_base_model(config)
    config = _with_known_features(config, base)
    with base.tokenizing:
        pool = tensors_of(_new_template(base, config, init="vocab", seed=chosen).pool)
    return MetaLearned(config, pool, chosen, base.fingerprint, base.tokenizer_fingerprint, {})


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


def require_on_this_machine(model_path: str) -> None:
    """Refuse to ask the hub for a model that only a saved classifier has named: it may be anybody's.

    Raises:
        ModelError: with the name to give, if it is to be fetched.
    """
    if not is_on_this_machine(model_path):
        raise ModelError(
            f"The classifier's base model, {model_path[:200]!r}, is not on this machine. A saved classifier may be "
            "anybody's, so what it names is not fetched by itself: if it is a model on the hub that you trust, name "
            "it (base_model= in Python, --base-model on the command line), or name the folder where it is."
        )


def _for_people(path: os.PathLike[str]) -> dict[str, Any]:
    """The object in a JSON file that may be missing or damaged: nothing but a model card depends on it."""
    try:
        with open(path, encoding="utf-8") as file:
            found = json.load(file)
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
