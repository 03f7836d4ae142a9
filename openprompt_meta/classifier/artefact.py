"""A classifier on disk: JSON and safetensors, nothing that runs, written whole or not at all, checked on reading."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor

from openprompt_meta.classifier.adaptation import Adapted
from openprompt_meta.classifier.fitted import FittedTask
from openprompt_meta.classifier.inputs import (
    Label,
    checked_label_words,
    checked_labels,
    checked_texts,
    kind_of,
)
from openprompt_meta.classifier.model_card import model_card
from openprompt_meta.classifier.pretrained import MetaLearned
from openprompt_meta.config.schema import RunConfig
from openprompt_meta.config.validation import config_from_mapping
from openprompt_meta.config.writing import to_mapping
from openprompt_meta.errors import ArtefactError, OpenPromptMetaError, TemplateError
from openprompt_meta.files import folder_writer, leftovers_beside, read_limited, write_atomic
from openprompt_meta.prompts.pool import PromptPool
from openprompt_meta.prompts.pool_files import write_pool_files
from openprompt_meta.tensor_files import DamagedFile, read_tensors, write_tensors
from openprompt_meta.version import __version__

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
    "read_artefact",
    "settings_of",
    "write_artefact",
]

# -- layout -----------------------------------------------------------------------------------------------------------
# What is where in a saved classifier.
#
# ``classifier.json`` describes it, ``classifier.safetensors`` holds the meta-learned pool, the fitted verbalizer and
# the support examples' features, ``support.json`` the examples, ``README.md`` tells people. ``prompt_pool.json`` and
# ``prompt_pool.safetensors`` are what :meth:`~openprompt_meta.PromptPoolTemplate.from_pretrained` reads: the pool as
# it was adapted, so that any OpenPrompt project prompts as the classifier does (the meta-learned one if nothing is
# fitted).

FORMAT = "openprompt_meta.classifier"
FORMAT_VERSION = 1

DESCRIPTION, TENSORS, SUPPORT, CARD = "classifier.json", "classifier.safetensors", "support.json", "README.md"
POOL, POOL_TENSORS = "prompt_pool.json", "prompt_pool.safetensors"
FILES = (DESCRIPTION, TENSORS, SUPPORT, POOL, POOL_TENSORS, CARD)

# Names of the tensors in TENSORS.
META_POOL, VERBALIZER, FEATURES = "meta_pool.", "verbalizer.", "features"


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
    """The whole configuration but for the device, which is a matter of the machine."""
    settings = to_mapping(config)
    return {**settings, "run": {key: value for key, value in settings["run"].items() if key != "device"}}


# -- Reading a classifier: everything is checked, nothing is executed, no language model is loaded --------------------

_PICKLES = (".bin", ".pt", ".pth", ".pkl", ".pickle", ".joblib", ".ckpt", ".npy")
_MAX_JSON = 64_000_000

T = TypeVar("T")


def read_artefact(folder: str | os.PathLike[str]) -> Stored:
    """What :func:`~openprompt_meta.classifier.artefact.write_artefact` wrote.

    Raises:
        ArtefactError: it is missing, damaged, of another kind or of a later version, with the reason.
    """
    path = Path(folder)
    description = _description(path)
    try:
        return _stored(path, description)
    except ArtefactError:
        raise
    except OpenPromptMetaError as error:  # of the configuration, the labels or the texts
        raise ArtefactError(f"The classifier in {path} cannot be used: {error}") from None


# -- what it says it is -----------------------------------------------------------------------------------------------


def _description(folder: Path) -> dict[str, Any]:
    path = folder / DESCRIPTION
    if not path.is_file():
        raise ArtefactError(_nothing_in(folder))
    content = _read_json(path)
    if content.get("format") != FORMAT:
        raise ArtefactError(
            f"{path} has the format {_cut(content.get('format'))}; a classifier's is {FORMAT!r}: it is something else."
        )
    version = content.get("format_version")
    if version != FORMAT_VERSION:
        newer = isinstance(version, int) and version > FORMAT_VERSION
        raise ArtefactError(
            f"{path} has format version {_cut(version)} (written by {_cut(content.get('written_by'))}); this "
            f"openprompt_meta {__version__} reads version {FORMAT_VERSION}. "
            + ("Update openprompt_meta." if newer else "Save the classifier again.")
        )
    return content


def _nothing_in(folder: Path) -> str:
    if folder.is_file():
        return f"{folder} is a file{_pickle([folder])}; a saved classifier is a folder with {DESCRIPTION} in it."
    if not folder.is_dir():
        beside = [path for path in leftovers_beside(folder) if is_artefact(path)]
        lost = f" {beside[0]} is what an interrupted save left: rename it to get it back." if beside else ""
        return f"There is no folder {folder}.{lost}"
    if (folder / "config.yaml").is_file():
        return f"{folder} is a run folder, not a saved classifier: use from_run, or openprompt-meta fit."
    return f"{folder} holds no saved classifier: {DESCRIPTION} is missing{_pickle(sorted(folder.iterdir()))}."


def _pickle(files: Sequence[Path]) -> str:
    for file in files:
        if file.suffix.lower() in _PICKLES:
            return f" ({file.name} looks like a pickle, which runs code when it is read, so it never is)"
    return ""


# -- what is in it ----------------------------------------------------------------------------------------------------


def _stored(folder: Path, description: dict[str, Any]) -> Stored:
    where = folder / DESCRIPTION
    _require_unchanged(folder, _entry(where, description, "files", dict))
    base = _entry(where, description, "base_model", dict)
    config = config_from_mapping(_entry(where, description, "settings", dict), source=f"'settings' in {where}")
    tensors = _read_tensors(folder / TENSORS)
    meta = MetaLearned(
        config=config.with_values({"plm.model_path": _entry(where, base, "name", str)}),
        pool=_pool(folder / TENSORS, _with_prefix(tensors, META_POOL), config),
        seed=_entry(where, description, "seed", int),
        fingerprint=_entry(where, base, "weights_sha256", str),
        tokenizer_fingerprint=_entry(where, base, "vocabulary_sha256", str),
        origin=_entry(where, description, "origin", dict),
    )
    task = None
    if description.get("task") is not None:
        task = _task(folder, _entry(where, description, "task", dict), meta, tensors)
    return Stored(meta, task, _entry(where, description, "metrics", dict))


def _require_unchanged(folder: Path, files: Mapping[str, Any]) -> None:
    for name in (TENSORS, POOL_TENSORS, *(name for name in (SUPPORT,) if name in files)):
        if hashlib.sha256(_read(folder / name)).hexdigest() != files.get(name):
            raise ArtefactError(
                f"{folder / name} is not the file that was saved with this classifier: it was cut, changed or mixed "
                "up with another's. Copy the whole folder again, or save the classifier again."
            )


def _task(folder: Path, entry: Mapping[str, Any], meta: MetaLearned, tensors: Mapping[str, Tensor]) -> FittedTask:
    where = folder / DESCRIPTION
    classes = _classes(where, entry)
    support = _read_json(folder / SUPPORT)
    labels = tuple(_entry(folder / SUPPORT, support, "labels", list))
    if not all(type(label) is int for label in labels) or set(labels) != set(range(len(classes))):
        raise ArtefactError(
            f"{folder / SUPPORT}: 'labels' should number the examples' classes from 0 to {len(classes) - 1}, each at "
            f"least once; found {_cut(labels)}."
        )
    texts: tuple[str, ...] | None = None
    if support.get("texts") is not None:
        texts = tuple(checked_texts(_entry(folder / SUPPORT, support, "texts", list)))
        if len(texts) != len(labels):
            raise ArtefactError(f"{folder / SUPPORT} has {len(texts)} texts and {len(labels)} labels.")
    words = entry.get("label_words")
    return FittedTask(
        meta=meta,
        classes=classes,
        labels=labels,
        texts=texts,
        label_words=None if words is None else checked_label_words(words, classes),
        adapted=Adapted(
            pool=_pool(folder / POOL_TENSORS, _read_tensors(folder / POOL_TENSORS), meta.config),
            verbalizer=_with_prefix(tensors, VERBALIZER),
            features=_features(folder / TENSORS, tensors, meta, 0 if texts is None else len(labels)),
            inner_losses=[float(loss) for loss in _numbers(where, entry, "inner_losses")],
        ),
    )


def _classes(where: Path, entry: Mapping[str, Any]) -> tuple[Label, ...]:
    classes = tuple(checked_labels(_entry(where, entry, "classes", list)))
    kind = _entry(where, entry, "label_kind", str)
    if len(classes) < 2 or list(classes) != sorted(set(classes)) or kind != kind_of(classes[0]):
        raise ArtefactError(f"{where}: 'classes' should be two or more of kind {kind}, sorted; found {_cut(classes)}.")
    return classes


def _pool(path: Path, tensors: Mapping[str, Tensor], config: RunConfig) -> dict[str, Tensor]:
    section = config.prompt_pool_template
    shapes = {name: tuple(value.shape) for name, value in tensors.items()}
    expected = section.num_prompts, section.prompt_length
    prompts, keys = shapes.get("prompts", ()), shapes.get("keys", ())
    if set(shapes) != {"prompts", "keys"} or prompts[:2] != expected or len(prompts) != 3 or keys[:1] != prompts[:1]:
        raise ArtefactError(
            f"{path} holds a pool of shapes {shapes}; the settings ask for {expected[0]} prompts of {expected[1]} "
            "positions."
        )
    _require_finite(path, tensors)
    return dict(tensors)


def _features(path: Path, tensors: Mapping[str, Tensor], meta: MetaLearned, rows: int) -> Tensor:
    features = tensors.get(FEATURES)
    expected = (rows, meta.pool["keys"].shape[1])
    if features is None or tuple(features.shape) != expected:
        found = None if features is None else tuple(features.shape)
        raise ArtefactError(f"{path} holds features of shape {found}; the examples ask for {expected}.")
    _require_finite(path, {FEATURES: features})
    return features


def _require_finite(path: Path, tensors: Mapping[str, Tensor]) -> None:
    for name, value in tensors.items():
        if not value.is_floating_point() or not bool(torch.isfinite(value).all()):
            raise ArtefactError(f"{path}: the tensor {name} holds what is not a finite floating-point number.")


def _with_prefix(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}


# -- files ------------------------------------------------------------------------------------------------------------


def _read(path: Path) -> bytes:
    try:
        return read_limited(path)
    except FileNotFoundError:
        raise ArtefactError(f"{path} is missing. Copy the whole folder again, or save the classifier again.") from None
    except OSError as error:
        raise ArtefactError(f"{path} cannot be read: {error}.") from None


def _read_json(path: Path) -> dict[str, Any]:
    content = _read(path)
    if len(content) > _MAX_JSON:
        raise ArtefactError(f"{path} has {len(content):,} bytes, more than the {_MAX_JSON:,} that are read.")
    try:
        found = json.loads(content.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise ArtefactError(f"{path} cannot be read as JSON: {error}. It was cut, or is something else.") from None
    if not isinstance(found, dict):
        raise ArtefactError(f"{path} should hold a JSON object, found {type(found).__name__}.")
    return found


def _read_tensors(path: Path) -> dict[str, Tensor]:
    try:
        return read_tensors(path)[0]
    except (OSError, DamagedFile) as error:
        raise ArtefactError(f"{path} cannot be read as safetensors: {error}.") from None


def _entry(path: Path, mapping: Mapping[str, Any], key: str, kind: type[T]) -> T:
    value = mapping.get(key)
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise ArtefactError(
            f"{path}: {key!r} should be {_KINDS[kind]}, found {_cut(value)}. The file was changed; save the "
            "classifier again."
        )
    return value


def _numbers(path: Path, mapping: Mapping[str, Any], key: str) -> list[float]:
    values = _entry(path, mapping, key, list)
    if not all(isinstance(value, int | float) for value in values):
        raise ArtefactError(f"{path}: {key!r} should be a list of numbers, found {_cut(values)}.")
    return values


_KINDS: Mapping[type, str] = {dict: "an object", list: "a list", str: "a string", int: "a whole number"}


def _cut(value: object) -> str:
    return f"{value!r:.80}"


# -- Writing a classifier: all files into a folder of their own, read back, then put in place in one step -------------


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
        write_atomic(folder / SUPPORT, _json({"texts": task.texts, "labels": task.labels}))
    write_tensors(folder / TENSORS, tensors, {"format": FORMAT, "format_version": str(FORMAT_VERSION)})
    pool = _pool_writing(meta.config, meta.pool if task is None else task.adapted.pool)
    section = meta.config.prompt_pool_template
    write_pool_files(folder, pool, section.text, meta.config.plm.model_path, section.features)
    write_atomic(folder / CARD, model_card(meta, task, stored.metrics))
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
    write_atomic(folder / DESCRIPTION, _json(description))


def _task_entry(task: FittedTask) -> dict[str, Any]:
    return {
        "label_kind": kind_of(task.classes[0]),
        "classes": task.classes,
        "label_words": task.label_words,
        "inner_losses": list(task.adapted.inner_losses),
    }


def _pool_writing(config: RunConfig, tensors: Mapping[str, Tensor]) -> PromptPool:
    (number, length, value_dim), key_dim = tensors["prompts"].shape, tensors["keys"].shape[1]
    pool = PromptPool(number, length, key_dim, value_dim, config.prompt_pool_template.top_n)
    pool.load_state_dict(dict(tensors), assign=True)
    return pool


def _json(content: object) -> str:
    return json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def _same(one: Stored, other: Stored) -> bool:
    """Whether two are equal, to the bit, in everything that predictions depend on."""
    device = {"run.device": "auto"}
    return (
        one.meta.config.with_values(device) == other.meta.config.with_values(device)
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
