"""Writing a classifier: all files into a folder of their own, read back, then put in place in one step."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from openprompt_meta import __version__
from openprompt_meta.config import RunConfig
from openprompt_meta.errors import ArtefactError, TemplateError
from openprompt_meta.files import read_limited, write_whole
from openprompt_meta.prompts.pool import PromptPool
from openprompt_meta.prompts.pool_files import write_pool_files
from openprompt_meta.tensor_files import write_tensors
from openprompt_meta.use.artefact.layout import (
    CARD,
    DESCRIPTION,
    FEATURES,
    FILES,
    FORMAT,
    FORMAT_VERSION,
    META_POOL,
    POOL_TENSORS,
    SUPPORT,
    TENSORS,
    VERBALIZER,
    Stored,
    settings_of,
)
from openprompt_meta.use.artefact.model_card import model_card
from openprompt_meta.use.artefact.reading import read_artefact
from openprompt_meta.use.artefact.whole_folder import folder_writer
from openprompt_meta.use.fitted import FittedTask
from openprompt_meta.use.inputs import kind_of

__all__ = ["write_artefact"]


def write_artefact(folder: str | os.PathLike[str], stored: Stored) -> None:
    """Write a classifier to ``folder``. One that is there is replaced when the new one is complete and read back.

    Raises:
        ArtefactError: the folder holds something else, or cannot be written; what is in it stays as it was.
    """
    _require_ours(Path(folder))
    try:
        with folder_writer(folder) as temporary:
            _write_files(temporary, stored)
            if not _same(read_artefact(temporary), stored):
                raise ArtefactError(
                    f"What was written for {os.fspath(folder)} reads back as something else. Nothing was replaced."
                )
    except (OSError, TemplateError) as error:  # the latter from the pool's own files
        raise ArtefactError(
            f"The classifier cannot be saved to {os.fspath(folder)}: {error}. What was there before is as it was; "
            "make room, or choose another folder."
        ) from error


def _require_ours(folder: Path) -> None:
    """Refuse to replace what no classifier wrote."""
    try:
        found = sorted(entry.name for entry in folder.iterdir())
    except FileNotFoundError:
        return
    except OSError as error:
        raise ArtefactError(
            f"A classifier cannot be saved to {folder}: {error.strerror}. Name a folder of its own."
        ) from None
    strange = [name for name in found if name not in FILES]
    if strange or (found and DESCRIPTION not in found):
        named = ", ".join((strange or found)[:5])
        raise ArtefactError(
            f"{folder} holds what is not a classifier's ({named}), and saving would replace the folder. Name a new or "
            "an empty one."
        )


def _write_files(folder: Path, stored: Stored) -> None:
    meta, task = stored.meta, stored.task
    tensors = {META_POOL + name: value for name, value in meta.pool.items()}
    if task is not None:
        tensors |= {VERBALIZER + name: value for name, value in task.adapted.verbalizer.items()}
        tensors[FEATURES] = task.adapted.features
        write_whole(folder / SUPPORT, _json({"texts": task.texts, "labels": task.labels}))
    write_tensors(folder / TENSORS, tensors, {"format": FORMAT, "format_version": str(FORMAT_VERSION)})
    pool = _pool(meta.config, meta.pool if task is None else task.adapted.pool)
    write_pool_files(folder, pool, meta.config.prompt_pool_template.text, meta.config.plm.model_path)
    write_whole(folder / CARD, model_card(meta, task, stored.metrics))
    sealed = [name for name in (TENSORS, SUPPORT, POOL_TENSORS) if (folder / name).exists()]
    description = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "written_by": f"openprompt_meta {__version__}",
        "base_model": {
            "name": meta.config.plm.model_path,
            "weights_sha256": meta.fingerprint,
            "vocabulary_sha256": meta.tokenizer_fingerprint,
        },
        "settings": settings_of(meta.config),
        "seed": meta.seed,
        "origin": meta.origin,
        "metrics": dict(stored.metrics),
        "task": None if task is None else _task_entry(task),
        "files": {name: hashlib.sha256(read_limited(folder / name)).hexdigest() for name in sealed},
    }
    write_whole(folder / DESCRIPTION, _json(description))


def _task_entry(task: FittedTask) -> dict[str, Any]:
    return {
        "label_kind": kind_of(task.classes[0]),
        "classes": task.classes,
        "label_words": task.label_words,
        "inner_losses": list(task.adapted.inner_losses),
    }


def _pool(config: RunConfig, tensors: Mapping[str, Tensor]) -> PromptPool:
    (number, length, value_dim), key_dim = tensors["prompts"].shape, tensors["keys"].shape[1]
    pool = PromptPool(number, length, key_dim, value_dim, config.prompt_pool_template.top_n)
    pool.load_state_dict(dict(tensors), assign=True)
    return pool


def _json(content: object) -> str:
    return json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def _same(one: Stored, other: Stored) -> bool:
    """Whether two are equal, to the bit, in everything that predictions depend on."""
    return (
        settings_of(one.meta.config) == settings_of(other.meta.config)
        and one.meta.seed == other.meta.seed
        and _equal(one.meta.pool, other.meta.pool)
        and _same_task(one.task, other.task)
    )


def _same_task(one: FittedTask | None, other: FittedTask | None) -> bool:
    if one is None or other is None:
        return one is other
    return (
        (one.classes, one.labels, one.texts, one.words) == (other.classes, other.labels, other.texts, other.words)
        and _equal(one.adapted.pool, other.adapted.pool)
        and _equal(one.adapted.verbalizer, other.adapted.verbalizer)
        and torch.equal(one.adapted.features, other.adapted.features)
    )


def _equal(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(value, other[name]) for name, value in one.items())
