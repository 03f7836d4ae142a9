"""A saved classifier: a folder of JSON and safetensors, nothing that runs, with a model card; and the model hub.

``classifier.json`` describes it, ``classifier.safetensors`` holds the meta-learned pool, the fitted verbalizer and the
support examples' features, ``support.json`` the examples, ``README.md`` tells people. ``prompt_pool.json`` and
``prompt_pool.safetensors`` are what :meth:`~openprompt_meta.PromptPoolTemplate.from_pretrained` reads: the pool as it
was adapted, so that any OpenPrompt project prompts as the classifier does (the meta-learned one if nothing is fitted).
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch
from jinja2 import Environment, PackageLoader, StrictUndefined
from torch import Tensor

from openprompt_meta.classifier.adaptation import Adapted, FittedTask
from openprompt_meta.classifier.inputs import (
    Label,
    checked_label_words,
    checked_labels,
    checked_metrics,
    checked_texts,
    kind_of,
)
from openprompt_meta.classifier.pretrained import MetaLearned, Tensors
from openprompt_meta.compat.versions import installed_versions
from openprompt_meta.config.schema import RunConfig
from openprompt_meta.config.validation import config_from_mapping
from openprompt_meta.config.writing import to_mapping
from openprompt_meta.errors import ArtefactError, OpenPromptMetaError, TemplateError
from openprompt_meta.files import folder_writer, leftovers_beside, read_json, read_limited, write_atomic
from openprompt_meta.prompts.pool import PromptPool
from openprompt_meta.prompts.pool_files import READ_BY, write_pool_files
from openprompt_meta.tensor_files import DamagedFile, read_tensors, write_tensors
from openprompt_meta.version import __version__

_FORMAT = "openprompt_meta.classifier"
_FORMAT_VERSION = 1

_DESCRIPTION, _TENSORS, _SUPPORT, _CARD = "classifier.json", "classifier.safetensors", "support.json", "README.md"
_POOL, _POOL_TENSORS = "prompt_pool.json", "prompt_pool.safetensors"
FILES = (_DESCRIPTION, _TENSORS, _SUPPORT, _POOL, _POOL_TENSORS, _CARD)

# Names of the tensors in _TENSORS.
_META_POOL, _VERBALIZER, _FEATURES = "meta_pool.", "verbalizer.", "features"

# A hundred thousand examples with features of 1,024 numbers have half of it.
_MOST_BYTES = 1_000_000_000
_MOST_SEED = 2**63 - 1

T = TypeVar("T")


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


# -- Reading a classifier: everything is checked, nothing is executed, no language model is loaded --------------------

_PICKLES = (".bin", ".pt", ".pth", ".pkl", ".pickle", ".joblib", ".ckpt", ".npy")


def is_artefact(folder: str | os.PathLike[str]) -> bool:
    """Whether a folder claims to be a saved classifier, whatever else lies in it."""
    return os.path.isfile(os.path.join(folder, _DESCRIPTION))


def read_artefact(folder: str | os.PathLike[str]) -> Stored:
    """What :func:`write_artefact` wrote.

    Raises:
        ArtefactError: it is missing, damaged, of another kind or of a later version, with the reason.
    """
    path = Path(folder)
    if not is_artefact(path):
        raise ArtefactError(_nothing_in(path))
    try:
        return _stored(path)
    except ArtefactError:
        raise
    except OpenPromptMetaError as error:  # of the JSON, the configuration, the labels or the texts
        raise ArtefactError(f"The classifier in {path} cannot be used: {error}") from None


def _nothing_in(folder: Path) -> str:
    # By os.path, for which a name that no folder can have is one that is not there.
    if os.path.isfile(folder):
        return f"{folder} is a file{_pickle([folder])}; a saved classifier is a folder with {_DESCRIPTION} in it."
    if not os.path.isdir(folder):
        beside = [path for path in leftovers_beside(folder) if is_artefact(path)] if folder.name.isprintable() else []
        lost = f" {beside[0]} is what an interrupted save left: rename it to get it back." if beside else ""
        return f"There is no folder {str(folder)[:300]}.{lost}"
    if (folder / "config.yaml").is_file():
        return f"{folder} is a run folder, not a saved classifier: use from_run, or openprompt-meta fit."
    return f"{folder} holds no saved classifier: {_DESCRIPTION} is missing{_pickle(sorted(folder.iterdir()))}."


def _pickle(files: Sequence[Path]) -> str:
    for file in files:
        if file.suffix.lower() in _PICKLES:
            return f" ({file.name} looks like a pickle, which runs code when it is read, so it never is)"
    return ""


def _stored(folder: Path) -> Stored:
    where = folder / _DESCRIPTION
    description = _read_object(where)
    _require_readable(where, description)
    entry = None if description.get("task") is None else _entry(where, description, "task", dict)
    files = _entry(where, description, "files", dict)
    for name in (_TENSORS, _POOL_TENSORS, *(() if entry is None else (_SUPPORT,))):
        if _sha256(folder / name) != files.get(name):
            raise ArtefactError(
                f"{folder / name} is not the file that was saved with this classifier: it was cut, changed or mixed "
                "up with another's. Copy the whole folder again, or save the classifier again."
            )
    base = _entry(where, description, "base_model", dict)
    config = config_from_mapping(_entry(where, description, "settings", dict), source=f"'settings' in {where}")
    tensors = _read_tensors(folder / _TENSORS)
    meta = MetaLearned(
        # Whether to take a pickle is for the reader to say, never for the file.
        config=config.with_values({"plm.model_path": _entry(where, base, "name", str), "plm.allow_pickle": False}),
        pool=_pool(folder / _TENSORS, _with_prefix(tensors, _META_POOL), config),
        seed=_seed(where, description),
        fingerprint=_entry(where, base, "weights_sha256", str),
        tokenizer_fingerprint=_entry(where, base, "vocabulary_sha256", str),
        origin=_entry(where, description, "origin", dict),
    )
    task = None if entry is None else _task(folder, entry, meta, tensors)
    return Stored(meta, task, checked_metrics(_entry(where, description, "metrics", dict)))


def _seed(where: Path, description: Mapping[str, Any]) -> int:
    seed = _entry(where, description, "seed", int)
    if not 0 <= seed <= _MOST_SEED:
        raise ArtefactError(f"{where}: 'seed' should be from 0 to {_MOST_SEED}, found {_cut(seed)}.")
    return seed


def _require_readable(where: Path, description: Mapping[str, Any]) -> None:
    if description.get("format") != _FORMAT:
        raise ArtefactError(
            f"{where} has the format {_cut(description.get('format'))}; a classifier's is {_FORMAT!r}: it is "
            "something else."
        )
    version = description.get("format_version")
    if type(version) is not int or version != _FORMAT_VERSION:  # True is equal to 1
        newer = isinstance(version, int) and version > _FORMAT_VERSION
        raise ArtefactError(
            f"{where} has format version {_cut(version)} (written by {_cut(description.get('written_by'))}); this "
            f"openprompt_meta {__version__} reads version {_FORMAT_VERSION}. "
            + ("Update openprompt_meta." if newer else "Save the classifier again.")
        )


def _task(folder: Path, entry: Mapping[str, Any], meta: MetaLearned, tensors: Tensors) -> FittedTask:
    where, examples = folder / _DESCRIPTION, folder / _SUPPORT
    classes = _classes(where, entry)
    support = _read_object(examples)
    labels = tuple(_entry(examples, support, "labels", list))
    known = set(range(len(classes)))
    complete = meta.config.knows_classes_by_words or set(labels) == known
    if not all(type(label) is int for label in labels) or not set(labels) <= known or not complete:
        least = "" if meta.config.knows_classes_by_words else ", each at least once"
        raise ArtefactError(
            f"{examples}: 'labels' should number the examples' classes from 0 to {len(classes) - 1}{least}; found "
            f"{_cut(labels)}."
        )
    texts: tuple[str, ...] | None = None
    if support.get("texts") is not None:
        given = _entry(examples, support, "texts", list)
        texts = tuple(checked_texts(given)) if given else ()
        if len(texts) != len(labels):
            raise ArtefactError(f"{examples} has {len(texts)} texts and {len(labels)} labels.")
    losses = _entry(where, entry, "inner_losses", list)
    if not all(isinstance(loss, float) or (type(loss) is int and abs(loss) < 2**63) for loss in losses):
        raise ArtefactError(f"{where}: 'inner_losses' should be a list of numbers, found {_cut(losses)}.")
    words = entry.get("label_words")
    return FittedTask(
        meta=meta,
        classes=classes,
        labels=labels,
        texts=texts,
        label_words=None if words is None else checked_label_words(words, classes, some=True),
        adapted=Adapted(
            pool=_pool(folder / _POOL_TENSORS, _read_tensors(folder / _POOL_TENSORS), meta.config),
            verbalizer=_with_prefix(tensors, _VERBALIZER),
            features=_features(folder / _TENSORS, tensors, meta, 0 if texts is None else len(labels)),
            inner_losses=[float(loss) for loss in losses],
        ),
    )


def _classes(where: Path, entry: Mapping[str, Any]) -> tuple[Label, ...]:
    classes = tuple(checked_labels(_entry(where, entry, "classes", list)))
    kind = _entry(where, entry, "label_kind", str)
    if len(classes) < 2 or list(classes) != sorted(set(classes)) or kind != kind_of(classes[0]):
        raise ArtefactError(f"{where}: 'classes' should be two or more of kind {kind}, sorted; found {_cut(classes)}.")
    return classes


def _pool(path: Path, tensors: Tensors, config: RunConfig) -> Tensors:
    section = config.prompt_pool_template
    shapes = {name: tuple(value.shape) for name, value in tensors.items()}
    expected = section.num_prompts, section.prompt_length
    prompts, keys = shapes.get("prompts", ()), shapes.get("keys", ())
    names = {"prompts", "keys", *(["query_mean"] if section.attention == "cosine" else [])}
    fitting = set(shapes) == names and prompts[:2] == expected and len(prompts) == 3 and keys[:1] == prompts[:1]
    if not fitting or shapes.get("query_mean", keys[1:]) != keys[1:]:
        raise ArtefactError(
            f"{path} holds a pool of shapes {shapes}; the settings ask for {expected[0]} prompts of {expected[1]} "
            "positions."
        )
    _require_finite(path, tensors)
    return tensors


def _features(path: Path, tensors: Tensors, meta: MetaLearned, rows: int) -> Tensor:
    features = tensors.get(_FEATURES)
    template = meta.config.prompt_pool_template
    size = meta.pool["keys"].shape[1]
    if template.query != "features" and features is not None and features.dim() == 2:
        size = features.shape[1]  # keys are of another size then; the language model will know
    expected = (rows, size)
    if features is None or tuple(features.shape) != expected:
        found = None if features is None else tuple(features.shape)
        raise ArtefactError(f"{path} holds features of shape {found}; the examples ask for {expected}.")
    _require_finite(path, {_FEATURES: features})
    return features


def _require_finite(path: Path, tensors: Tensors) -> None:
    for name, value in tensors.items():
        if not value.is_floating_point() or not bool(torch.isfinite(value).all()):
            raise ArtefactError(f"{path}: the tensor {name} holds what is not a finite floating-point number.")


def _with_prefix(tensors: Tensors, prefix: str) -> Tensors:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}


def _sha256(path: Path) -> str:
    try:
        size = os.stat(path).st_size
        if size > _MOST_BYTES:
            raise ArtefactError(f"{path} has {size:,} bytes, but a classifier's file has at most {_MOST_BYTES:,}.")
        return hashlib.sha256(read_limited(path)).hexdigest()
    except FileNotFoundError:
        raise ArtefactError(f"{path} is missing. Copy the whole folder again, or save the classifier again.") from None
    except OSError as error:
        raise ArtefactError(f"{path} cannot be read: {error}.") from None


def _read_object(path: Path) -> dict[str, Any]:
    found = read_json(path)
    if not isinstance(found, dict):
        raise ArtefactError(f"{path} should hold a JSON object, found {type(found).__name__}.")
    return found


def _read_tensors(path: Path) -> dict[str, Tensor]:
    try:
        return read_tensors(path)[0]
    except (OSError, DamagedFile) as error:
        raise ArtefactError(f"{path} cannot be read as safetensors: {error}.") from None


_KINDS: Mapping[type, str] = {dict: "an object", list: "a list", str: "a string", int: "a whole number"}


def _entry(path: Path, mapping: Mapping[str, Any], key: str, kind: type[T]) -> T:
    value = mapping.get(key)
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise ArtefactError(
            f"{path}: {key!r} should be {_KINDS[kind]}, found {_cut(value)}. The file was changed; save the "
            "classifier again."
        )
    return value


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
    if strange or (found and _DESCRIPTION not in found):
        named = ", ".join((strange or found)[:5])
        raise ArtefactError(
            f"{folder} holds what is not a classifier's ({named}), and saving would replace the folder. Name a new or "
            "an empty one."
        )


def _write_files(folder: Path, stored: Stored) -> None:
    meta, task = stored.meta, stored.task
    if task is not None:
        write_atomic(folder / _SUPPORT, _json({"texts": task.texts, "labels": task.labels}))
    write_tensors(folder / _TENSORS, _tensors(stored), {"format": _FORMAT, "format_version": str(_FORMAT_VERSION)})
    pool = _pool_module(meta.config, meta.pool if task is None else task.adapted.pool)
    section = meta.config.prompt_pool_template
    read_by = {name: getattr(section, name) for name in READ_BY}
    write_pool_files(folder, pool, section.text, meta.config.plm.model_path, read_by)
    write_atomic(folder / _CARD, model_card(stored))
    sealed = [name for name in (_TENSORS, _SUPPORT, _POOL_TENSORS) if (folder / name).exists()]
    description = {
        "format": _FORMAT,
        "format_version": _FORMAT_VERSION,
        "written_by": f"openprompt_meta {__version__}",
        "base_model": {
            "name": meta.config.plm.model_path,
            "weights_sha256": meta.fingerprint,
            "vocabulary_sha256": meta.tokenizer_fingerprint,
        },
        "settings": _settings(meta.config),
        "seed": meta.seed,
        "origin": meta.origin,
        "metrics": dict(stored.metrics),
        "task": None
        if task is None
        else {
            "label_kind": kind_of(task.classes[0]),
            "classes": task.classes,
            "label_words": task.label_words,
            "inner_losses": list(task.adapted.inner_losses),
        },
        "files": {name: _sha256(folder / name) for name in sealed},
    }
    write_atomic(folder / _DESCRIPTION, _json(description))


def _tensors(stored: Stored) -> dict[str, Tensor]:
    tensors = {_META_POOL + name: value for name, value in stored.meta.pool.items()}
    if stored.task is not None:
        adapted = stored.task.adapted
        tensors |= {_VERBALIZER + name: value for name, value in adapted.verbalizer.items()}
        tensors[_FEATURES] = adapted.features
    return tensors


def _settings(config: RunConfig) -> dict[str, Any]:
    """The whole configuration but for what the machine and its user decide, and where files lay on it."""
    settings = to_mapping(config)
    for section, key in (("run", "device"), ("run", "folder"), ("plm", "allow_pickle")):
        del settings[section][key]
    # What the pool was learned from may be known, by its last part: a configuration does not go without.
    dataset = settings["dataset"]
    for key in ("path", "splits", "label_words"):
        dataset[key] = dataset[key] and _last_part(dataset[key])
    for key in ("mixture", "apart_from"):
        dataset[key] = list(dict.fromkeys(map(_last_part, dataset[key])))
    return settings


def _last_part(path: str) -> str:
    return re.split(r"[\\/]", path.rstrip("\\/"))[-1] or "data"


def _pool_module(config: RunConfig, tensors: Tensors) -> PromptPool:
    (number, length, value_dim), key_dim = tensors["prompts"].shape, tensors["keys"].shape[1]
    section = config.prompt_pool_template
    pool = PromptPool(
        number,
        length,
        key_dim,
        value_dim,
        section.top_n,
        attention=section.attention,
        attention_temperature=section.attention_temperature,
    )
    pool.load_state_dict(dict(tensors), assign=True)
    return pool


def _json(content: object) -> str:
    return json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def _same(one: Stored, other: Stored) -> bool:
    """Whether two are equal, to the bit, in everything that predictions depend on."""
    return (
        _settings(one.meta.config) == _settings(other.meta.config)
        and one.meta.seed == other.meta.seed
        and _equal(_tensors(one), _tensors(other))
        and _same_task(one.task, other.task)
    )


def _same_task(one: FittedTask | None, other: FittedTask | None) -> bool:
    if one is None or other is None:
        return one is other
    values = [(task.classes, task.labels, task.texts, task.words) for task in (one, other)]
    return values[0] == values[1] and _equal(one.adapted.pool, other.adapted.pool)


def _equal(one: Tensors, other: Tensors) -> bool:
    return one.keys() == other.keys() and all(torch.equal(value, other[name]) for name, value in one.items())


# -- The model card: what a classifier is, for whoever finds the folder, in the form that hubs read -------------------

_HUB_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")


def model_card(stored: Stored) -> str:
    """The card as Markdown with a YAML head. Names and texts of users are quoted, so that none is taken for markup."""
    meta, task, model = stored.meta, stored.task, stored.meta.config.plm.model_path
    hub_name = "sentence-transformers/all-MiniLM-L6-v2" if model in ("minilm", "minilm-mlm") else json.dumps(model)
    template_text = meta.config.prompt_pool_template.text
    longest = max(map(len, re.findall(r"`+", template_text)), default=0)
    now = {"openprompt_meta": __version__, **installed_versions()}
    before = _object(meta.origin.get("versions"))
    # Of Markdown, not HTML: the filter ``code`` is what quotes.
    environment = Environment(  # noqa: S701
        loader=PackageLoader(__package__, ""),
        undefined=StrictUndefined,
        trim_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["code"] = _as_code
    return environment.get_template("model_card.md.jinja").render(
        meta=meta,
        config=meta.config,
        task=task,
        base_model=hub_name if _HUB_NAME.fullmatch(model) else None,
        fence="`" * max(3, longest + 1),
        classes=[] if task is None else list(zip(task.class_names, task.counts, strict=True)),
        measured=_measured(stored),
        versions=sorted(now.items()),
        versions_before=[(name, _plain(version)) for name, version in sorted(before.items())],
    )


def _measured(stored: Stored) -> list[tuple[str, str]]:
    origin = stored.meta.origin
    rows = [(name, f"{value:.4f}") for name, value in stored.metrics.items()]
    found = origin.get("validation_accuracy")
    if isinstance(found, int | float):
        rows.append(("accuracy on validation tasks of the meta-learning run", f"{found:.4f}"))
    for kind, values in _object(origin.get("test_accuracy")).items():
        mean, interval = _object(values).get("mean"), _object(values).get("interval")
        if isinstance(mean, int | float):
            width = f" ± {interval:.4f}" if isinstance(interval, int | float) else ""
            rows.append((f"{kind} accuracy on test tasks of that run", f"{mean:.4f}{width}"))
    return rows


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _plain(value: object) -> str:
    """On one line and without markup."""
    return re.sub(r"[^\w.+-]+", " ", str(value)).strip()


def _as_code(text: object) -> str:
    """Text as code inside a line or a cell of a table, whatever is in it."""
    line = " ".join(str(text).split())[:200].replace("|", "¦").replace("`", "'")
    return f"`{line}`"


# -- The model hub, by `huggingface_hub`: fetching a classifier's files and no others, uploading them and no others ---

_REPOSITORY = re.compile(r"(?=.{1,96}\Z)[A-Za-z0-9][\w.-]*/[\w.-]+")


def local_folder(
    artefact: str | os.PathLike[str], revision: str | None = None, token: str | None = None
) -> str | os.PathLike[str]:
    """The folder itself if there is one, else that of the hub's repository of that name, fetched if need be.

    Raises:
        ArtefactError: it cannot be fetched.
    """
    name = os.fspath(artefact)
    if os.path.exists(name) or not _REPOSITORY.fullmatch(name):
        return artefact
    from huggingface_hub import snapshot_download

    try:
        return snapshot_download(name, revision=revision, token=token, allow_patterns=list(FILES))
    except Exception as error:  # the client raises whatever its HTTP library does
        raise ArtefactError(
            f"There is no folder {name}, and no classifier of that name could be fetched from the model hub: "
            f"{_first_line(error)}"
        ) from error


def upload(stored: Stored, repo_id: str, *, token: str | None, private: bool | None, **commit: Any) -> str:
    """Write a classifier to a temporary folder and upload that; where it then is.

    Args:
        stored: the classifier.
        repo_id: ``user/name``; made if need be.
        token: for the hub.
        private: whether a new repository is private.
        commit: ``revision``, ``commit_message`` and ``create_pr`` of the upload.

    Raises:
        ArtefactError: the hub cannot be reached or refuses.
    """
    from huggingface_hub import HfApi

    api = HfApi(token=token)
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "classifier"
        write_artefact(target, stored)
        try:
            repo_id = api.create_repo(repo_id, private=private, exist_ok=True).repo_id
            uploaded = api.upload_folder(repo_id=repo_id, folder_path=target, allow_patterns=list(FILES), **commit)
        except Exception as error:
            raise ArtefactError(
                f"The classifier could not be uploaded to {repo_id}: {_first_line(error)} Log in with "
                "`huggingface-cli login` or give token=; save_pretrained keeps it here."
            ) from error
    return str(uploaded.commit_url)


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
