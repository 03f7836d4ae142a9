"""Checkpoints: one safetensors file with meta-parameters, optimiser and progress, written whole or not at all."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from openprompt_meta.errors import CheckpointError
from openprompt_meta.learners.task import MetaLearner
from openprompt_meta.tensor_files import DamagedFile, read_tensors, write_tensors
from openprompt_meta.verbalizers.mixed import scalar_value

# -- An optimiser's state as tensors for a file, and back: all that was kept, or nothing ------------------------------

_PREFIX = "optimizer."
_KEPT = "optimizer_parameters"
"""Which parameters have had a gradient; a tuned language model has some that never get one."""
_ADAM_KEEPS = {"step", "exp_avg", "exp_avg_sq"}


def state_tensors(optimizer: torch.optim.Optimizer) -> tuple[dict[str, Tensor], dict[str, str]]:
    """What the optimiser keeps of each parameter that has had a gradient, and metadata that says which those are."""
    states = optimizer.state_dict()["state"]
    tensors = {
        f"{_PREFIX}{index}.{name}": torch.as_tensor(value)
        for index, state in states.items()
        for name, value in state.items()
    }
    return tensors, {_KEPT: json.dumps(sorted(states))}


def checked_state(
    optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor], metadata: Mapping[str, str]
) -> dict[int, dict[str, Tensor]]:
    """The ``state`` for the optimiser's ``load_state_dict``.

    Raises:
        DamagedFile: it is that of another optimiser, or not all of it is there.
    """
    parameters = [value for group in optimizer.param_groups for value in group["params"]]
    state: dict[int, dict[str, Tensor]] = {}
    for name, value in tensors.items():
        if name.startswith(_PREFIX):
            index, _, key = name.removeprefix(_PREFIX).partition(".")
            state.setdefault(int(index) if index.isdecimal() else -1, {})[key] = value
    complete = json.dumps(sorted(state)) == metadata.get(_KEPT)
    fitting = (
        complete
        and state.keys() <= set(range(len(parameters)))
        and all(_fits(optimizer, parameters[index], kept) for index, kept in state.items())
    )
    if not fitting:
        raise DamagedFile("it holds the state of another optimiser, or only a part of it")
    return state


def _fits(optimizer: torch.optim.Optimizer, parameter: Tensor, kept: Mapping[str, Tensor]) -> bool:
    if isinstance(optimizer, (torch.optim.Adam, torch.optim.AdamW)) and kept.keys() != _ADAM_KEEPS:
        return False
    shapes = {name: () if name == "step" else tuple(parameter.shape) for name in kept}
    return all(tuple(value.shape) == shapes[name] and value.is_floating_point() for name, value in kept.items())


# -- Checkpoints: one safetensors file with pool, optimiser and progress, written whole or not at all -----------------

FORMAT = "openprompt_meta.checkpoint"
FORMAT_VERSION = "1"
_POOL = "pool."
SCALARS = "verbalizer/"


@dataclass
class Progress:
    """How far a run has come."""

    iteration: int = 0
    """Meta-iterations done."""
    validated: int = -1
    """Iteration of the last finished validation."""
    best_iteration: int = -1
    best_accuracy: float = -1.0
    """On validation tasks."""
    stale_validations: int = 0
    """Validations since the last gain."""


def write_checkpoint(path: Path, learner: MetaLearner, progress: Progress) -> None:
    """Save pool, optimiser state and progress.

    Raises:
        CheckpointError: the disk is full or the folder unwritable; the checkpoint before stays.
    """
    tensors = {_POOL + name: value for name, value in learner.meta_parameters.state_dict().items()}
    kept, which = state_tensors(learner.optimizer)
    metadata = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        **which,
        "progress": json.dumps(asdict(progress)),
    }
    try:
        write_tensors(path, tensors | kept, metadata)
    except OSError as error:
        raise CheckpointError(
            f"The checkpoint {path} cannot be written: {error}. The one before it is untouched."
        ) from None


def read_checkpoint(path: Path, learner: MetaLearner) -> Progress:
    """Restore pool and optimiser state from a checkpoint, bit by bit, and return the progress.

    Raises:
        CheckpointError: the file is missing, damaged, of another kind, or of another pool.
    """
    tensors, metadata = _read(path)
    progress = _progress(path, metadata)
    try:
        state = checked_state(learner.optimizer, tensors, metadata)
    except DamagedFile as error:
        raise CheckpointError(f"{path} cannot be resumed: {error}.") from None
    _load_pool_tensors(path, tensors, learner.meta_parameters)
    learner.optimizer.load_state_dict({**learner.optimizer.state_dict(), "state": state})
    return progress


def read_progress(path: Path) -> Progress:
    """How far the run of a checkpoint had come."""
    return _progress(path, _read(path)[1])


def load_pool(path: Path, pool: torch.nn.Module) -> Progress:
    """Restore what was learned without the optimiser, for testing and use; of a pool by itself, without scalars."""
    tensors, metadata = _read(path)
    known = pool.state_dict().keys()
    own = {
        name: value
        for name, value in tensors.items()
        if not name.startswith(_POOL + SCALARS) or name.removeprefix(_POOL) in known
    }
    _load_pool_tensors(path, own, pool)
    return _progress(path, metadata)


def _read(path: Path) -> tuple[dict[str, Tensor], Mapping[str, str]]:
    try:
        tensors, metadata = read_tensors(path)
    except FileNotFoundError:
        raise CheckpointError(
            f"There is no checkpoint {path}. Train first, or resume the run that was cut off."
        ) from None
    except (OSError, DamagedFile) as error:
        raise CheckpointError(
            f"The checkpoint {path} cannot be read: {error}. It is damaged or no checkpoint."
        ) from None
    if metadata.get("format") != FORMAT or metadata.get("format_version") != FORMAT_VERSION:
        raise CheckpointError(
            f"{path} is a {metadata.get('format', 'foreign file')!r}, version {metadata.get('format_version')!r}; "
            f"expected {FORMAT!r}, version {FORMAT_VERSION!r}."
        )
    return tensors, metadata


def read_scalars(path: Path) -> dict[str, float]:
    """The verbalizer's scalars as they were learned, by name; nothing if they are fixed."""
    start = _POOL + SCALARS
    saved = {name.removeprefix(start): value for name, value in _read(path)[0].items() if name.startswith(start)}
    return {name: scalar_value(name, value) for name, value in saved.items()}


def _load_pool_tensors(path: Path, tensors: Mapping[str, Tensor], pool: torch.nn.Module) -> None:
    saved = {name.removeprefix(_POOL): value for name, value in tensors.items() if name.startswith(_POOL)}
    expected = {name: tuple(value.shape) for name, value in pool.state_dict().items()}
    found = {name: tuple(value.shape) for name, value in saved.items()}
    if found != expected:
        raise CheckpointError(f"{path} holds a pool of shapes {found}; the configuration asks for {expected}.")
    pool.load_state_dict(saved)


def _progress(path: Path, metadata: Mapping[str, str]) -> Progress:
    try:
        values: dict[str, Any] = json.loads(metadata["progress"])
        known = {field.name: values[field.name] for field in fields(Progress)}
    except (KeyError, ValueError, TypeError, RecursionError):
        known = {}
    counts = [value for name, value in known.items() if name != "best_accuracy"]
    if not known or not all(type(value) is int for value in counts) or type(known["best_accuracy"]) is not float:
        raise CheckpointError(f"{path} does not say how far its run had come; it is damaged.")
    return Progress(**known)
