"""The files of a language model: found by its name, and looked through before transformers reads them.

transformers believes a model's folder: it offers to run code that the folder brings along, follows names of other
models in it, and builds whatever sizes it is told. A folder may come from anybody, so all of that is refused first.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForMaskedLM, PretrainedConfig

from openprompt_meta.encoder.packaged import MINILM, MINILM_MLM, PACKAGED, minilm_folder
from openprompt_meta.errors import DataError, ModelError
from openprompt_meta.files import read_json

# -- Where a model is: packaged, a folder, or a name on the model hub, of which the local cache is looked into first --

_HUB_NAME = re.compile(r"(?=.{1,96}\Z)[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?", re.ASCII)
_CONFIG = "config.json"
_TEXT_FILES = ("*.json", "*.txt", "*.model")
_SAFETENSORS = ("model.safetensors", "model.safetensors.index.json")
_PICKLES = ("pytorch_model.bin", "pytorch_model.bin.index.json")


def model_folder(model_path: str, allow_pickle: bool = False) -> Path:
    """The folder with a model's files; those of a hub name are fetched unless they are in the local cache.

    Raises:
        ModelError: it is neither packaged nor a folder nor a name that the hub knows.
    """
    local = _local_folder(model_path)
    if local is not None:
        return local
    if not _HUB_NAME.fullmatch(model_path):
        raise ModelError(
            f"{model_path[:200]!r} is not a model: expected {MINILM}, {MINILM_MLM}, a folder that is there, or a name "
            "on the model hub such as bert-base-uncased or org/name."
        )
    return _fetched_folder(model_path, allow_pickle)


def is_on_this_machine(model_path: str) -> bool:
    """Whether a model can be loaded without asking anybody else for it."""
    return _local_folder(model_path) is not None


def _local_folder(model_path: str) -> Path | None:
    if model_path in PACKAGED:
        return minilm_folder()
    if os.path.isdir(model_path):
        return Path(model_path)
    return _cached_folder(model_path) if _HUB_NAME.fullmatch(model_path) else None


def _cached_folder(name: str) -> Path | None:
    """The folder in the hub's cache, if it holds all that a model needs."""
    from huggingface_hub import snapshot_download

    try:
        folder = Path(snapshot_download(name, local_files_only=True))
    except (OSError, ValueError):  # not there, or no name that the hub could have
        return None
    has_tokenizer = any((folder / file).is_file() for file in ("tokenizer.json", "vocab.txt", "vocab.json"))
    weights = (*_SAFETENSORS, *_PICKLES)
    whole = (folder / _CONFIG).is_file() and any((folder / file).is_file() for file in weights)
    return folder if whole and (has_tokenizer or any(folder.glob("*.model"))) else None


def _fetched_folder(name: str, allow_pickle: bool) -> Path:
    from huggingface_hub import snapshot_download

    def fetch(*patterns: str) -> Path:
        try:
            return Path(snapshot_download(name, allow_patterns=list(patterns), ignore_patterns=["*/*"]))
        except Exception as error:  # the client raises whatever its HTTP library does
            raise ModelError(
                f"{name} cannot be loaded: {first_line(error)} It is not a folder here, so it must be a name on the "
                f"model hub that this machine can reach; without a hub use model_path: {MINILM} or {MINILM_MLM}."
            ) from error

    folder = fetch(*_TEXT_FILES, "model*.safetensors")
    if allow_pickle and not _has_any(folder, _SAFETENSORS):
        folder = fetch(*_TEXT_FILES, "pytorch_model*.bin")
    return folder


def first_line(error: BaseException) -> str:
    """The first line of an exception's message, or its name if it has none."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


# -- What a folder may hold -------------------------------------------------------------------------------------------

_MOST_PARTS = 4096
"""Of layers, heads, labels and the like, which transformers makes one by one, whatever number it is told."""
_SHARD = re.compile(r"[\w.-]+\.safetensors", re.ASCII)


def check_description(folder: Path) -> None:
    """Look through ``config.json`` before transformers does.

    Raises:
        ModelError: it cannot be read, asks for code or for other models, or counts parts that no model has.
    """
    where = folder / _CONFIG
    try:
        described = read_json(where)
    except FileNotFoundError:
        # transformers would guess the kind of model from the folder's name.
        raise ModelError(_unloadable(folder, f"it has no {_CONFIG}.")) from None
    except DataError as error:
        raise ModelError(_unloadable(folder, str(error))) from None
    if not isinstance(described, dict):
        raise ModelError(_unloadable(folder, f"its {_CONFIG} holds a {type(described).__name__}, not an object."))
    if (folder / "adapter_config.json").exists():
        raise ModelError(
            f"{folder} holds an adapter, which names another model to be loaded. Merge the two, and save the whole."
        )
    for key, value in described.items():
        # Attention by a kernel of the hub is code from there, and so are some ways to quantise.
        if (key.endswith("attn_implementation") and "/" in str(value)) or (key == "quantization_config" and value):
            raise ModelError(
                f"{where}: {key!r} is {value!r:.80}, which would need code from elsewhere. Take the key out, or use a "
                "model that is saved without it."
            )
    for key, number in _numbers(described):
        if _counts_parts(key) and number > _MOST_PARTS:
            raise ModelError(f"{where}: {key!r:.80} is {number:.3g}, but no model has more than {_MOST_PARTS}.")


def _numbers(value: Any, key: str = "") -> Iterator[tuple[str, float]]:
    if isinstance(value, dict):
        for name, entry in value.items():
            yield from _numbers(entry, name)
    elif isinstance(value, list):
        for entry in value:
            yield from _numbers(entry, key)
    elif isinstance(value, int | float):
        yield key, min(value, 2**63)  # a whole number of any length can be written


def _counts_parts(key: str) -> bool:
    return key.startswith(("num_", "n_")) or "layers" in key or "group" in key


def weight_options(folder: Path, allow_pickle: bool) -> Mapping[str, bool]:
    """How transformers has to read the folder's weights.

    Raises:
        ModelError: there are none, or only pickles and those are not allowed.
    """
    if _has_any(folder, _SAFETENSORS):
        _check_shards(folder)
        return {"use_safetensors": True}
    if not _has_any(folder, _PICKLES):
        raise ModelError(
            _unloadable(folder, f"it has no weights: {_SAFETENSORS[0]} is missing, and no pickle was asked for.")
        )
    if not allow_pickle:
        raise ModelError(
            f"{folder} has its weights as a pickle only, a format that can carry code. Save them once as safetensors, "
            "by save_pretrained of the loaded model, and name that folder; or, if you trust whoever made it, set "
            "plm.allow_pickle: true, allow_pickle=True in Python, --allow-pickle on the command line."
        )
    return {"use_safetensors": False}


def _check_shards(folder: Path) -> None:
    """Refuse an index that calls other files weights than safetensors beside it."""
    index = folder / _SAFETENSORS[1]
    if (folder / _SAFETENSORS[0]).is_file() or not index.is_file():
        return
    try:
        content = read_json(index)
    except DataError as error:
        raise ModelError(_unloadable(folder, str(error))) from None
    shards = content.get("weight_map") if isinstance(content, dict) else None
    if not isinstance(shards, dict) or not all(_SHARD.fullmatch(str(name)) for name in shards.values()):
        raise ModelError(f"{index} names other files as weights than safetensors beside it. Save the model again.")


def check_size(folder: Path, config: PretrainedConfig) -> None:
    """Refuse a configuration of another size than the weights, before memory is taken for it.

    Raises:
        ModelError: the model cannot be built, or would have many times the numbers that the files can hold.
    """
    stored = sum(file.stat().st_size for file in folder.iterdir() if file.suffix in (".safetensors", ".bin"))
    try:
        with torch.device("meta"):  # shapes without memory
            model = AutoModelForMaskedLM.from_config(config, trust_remote_code=False)
    except Exception as error:
        if "meta" in str(error):  # a model that computes while it is built: nothing can be said beforehand
            return
        raise ModelError(
            _unloadable(folder, f"its {_CONFIG} describes a model that cannot be built: {first_line(error)}.")
        ) from error
    numbers = sum(parameter.numel() for parameter in model.parameters())
    # A number takes a byte at least; a head that is not stored is made anew.
    if numbers > stored + 10_000_000:
        raise ModelError(
            _unloadable(
                folder, f"its {_CONFIG} describes a model of {numbers:,} numbers, its weights have {stored:,} bytes."
            )
        )


def _has_any(folder: Path, names: tuple[str, ...]) -> bool:
    return any((folder / name).is_file() for name in names)


def _unloadable(folder: Path, reason: str) -> str:
    return (
        f"{folder} cannot be loaded: {reason} The folder must hold what save_pretrained of a model and of its "
        "tokenizer write."
    )
