"""A saved pool on disk: a JSON that describes it and a safetensors that holds it, without the language model.

Two files cannot take two others' places at once, so the weights carry a copy of the description that was saved with
them, and each names the other by a checksum: a save that was killed half-way is either the one before or the new one.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from openprompt_meta.errors import TemplateError
from openprompt_meta.files import read_limited, remove_leftovers, write_together
from openprompt_meta.prompts.pool import PromptPool
from openprompt_meta.tensor_files import (
    DamagedFile,
    digest,
    packed,
    read_tensors,
)

logger = logging.getLogger(__name__)

CONFIG_FILE = "prompt_pool.json"
WEIGHTS_FILE = "prompt_pool.safetensors"
FORMAT = "openprompt_meta.prompt_pool_template"
FORMAT_VERSION = 1
_MAX_BYTES = 1_000_000  # of the JSON
DESCRIBED = ("num_prompts", "prompt_length", "top_n", "attention", "attention_temperature")
"""Arguments of a pool that are saved with it."""
READ_AT_MASK: Mapping[str, Any] = {
    "features": "mask",
    "query": "features",
    "as_prefix": False,
    "prefix_strength": 1.0,
}
"""How texts are read with the pool, by a template's arguments of these names: here as in the paper."""
READ_BY = tuple(READ_AT_MASK)
_CHECKSUM = "weights_sha256"
_DESCRIPTION = "description"


def write_pool_files(
    folder: Path,
    pool: PromptPool,
    text: str | None,
    base_model: str,
    read_by: Mapping[str, Any] = READ_AT_MASK,
) -> None:
    """Write both files to ``folder``, which is made if need be.

    Args:
        folder: where.
        pool: what.
        text: of its template.
        base_model: whose input embeddings its prompts stand beside.
        read_by: the template's :data:`READ_BY`.

    Raises:
        TemplateError: they cannot be written; what was saved there before can still be loaded.
    """
    tensors = dict(pool.state_dict())
    config = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "base_model": base_model,
        "text": text,
        **read_by,
        "num_prompts": pool.num_prompts,
        "prompt_length": pool.prompt_length,
        "key_dim": pool.key_dim,
        "value_dim": pool.value_dim,
        "top_n": pool.top_n,
        "attention": pool.attention_kind,
        "attention_temperature": pool.attention_temperature,
        _CHECKSUM: digest(tensors),
    }
    description = json.dumps(config, indent=2, ensure_ascii=False)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        remove_leftovers(folder)
        weights = packed(tensors, {_DESCRIPTION: description})
        write_together([(folder / CONFIG_FILE, description + "\n"), (folder / WEIGHTS_FILE, weights)])
    except OSError as error:
        raise TemplateError(
            f"The template cannot be saved to {folder}: {error}. What was saved there before is as it was; "
            "make room, or choose another folder."
        ) from None


def read_pool_config(folder: Path) -> dict[str, Any]:
    """What the JSON says, after a check that it says enough. :class:`TemplateError` if it does not."""
    path = folder / CONFIG_FILE
    try:
        content = read_limited(path, _MAX_BYTES)
    except FileNotFoundError:
        raise TemplateError(f"{folder} holds no saved PromptPoolTemplate: {path.name} is missing.") from None
    except OSError as error:
        raise TemplateError(f"{path} cannot be read: {error}.") from None
    config = _checked(content, path)
    tensors, saved_with_them = _read_weights(folder)
    if saved_with_them is not None and config.get(_CHECKSUM) != saved_with_them.get(_CHECKSUM):
        logger.warning("%s is of another save than the weights beside it; the one saved with them is used.", path)
        config = saved_with_them
    # Here and not only when the pool is made: a size from an untrusted file may be more than there is memory.
    found = {name: tuple(value.shape) for name, value in tensors.items()}
    asked = config["num_prompts"], config["prompt_length"]
    if all(type(size) is int for size in asked) and found.get("prompts", ())[:2] != asked:
        raise TemplateError(
            f"{folder / WEIGHTS_FILE} holds tensors {found}; the saved configuration asks for "
            f"{asked[0]} prompts of {asked[1]} positions."
        )
    return config


def read_pool_weights(folder: Path, pool: PromptPool) -> dict[str, Tensor]:
    """The saved tensors, after a check that they fit ``pool``. :class:`TemplateError` if they do not."""
    path = folder / WEIGHTS_FILE
    tensors, _ = _read_weights(folder)
    expected = {name: tuple(value.shape) for name, value in pool.state_dict().items()}
    found = {name: tuple(value.shape) for name, value in tensors.items()}
    if found != expected:
        raise TemplateError(f"{path} holds tensors {found}; the saved configuration asks for {expected}.")
    if not all(value.is_floating_point() for value in tensors.values()):
        types = sorted({str(value.dtype) for value in tensors.values()})
        raise TemplateError(f"{path} holds numbers of type {', '.join(types)}; a pool is of floating-point numbers.")
    return tensors


def _read_weights(folder: Path) -> tuple[dict[str, Tensor], dict[str, Any] | None]:
    """The weights, and the description that was saved with them if there is one."""
    path = folder / WEIGHTS_FILE
    try:
        tensors, metadata = read_tensors(path)
    except (OSError, DamagedFile) as error:
        raise TemplateError(f"{path} cannot be read as safetensors: {error}.") from None
    description = metadata.get(_DESCRIPTION)
    return tensors, None if description is None else _checked(description.encode("utf-8", "surrogatepass"), path)


def _checked(content: bytes, path: Path) -> dict[str, Any]:
    try:
        config = json.loads(content.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise TemplateError(f"{path} cannot be read as JSON: {error}.") from None
    if not isinstance(config, dict) or config.get("format") != FORMAT:
        raise TemplateError(f"{path} does not describe a PromptPoolTemplate (format {FORMAT!r} expected).")
    if config.get("format_version") != FORMAT_VERSION:
        raise TemplateError(
            f"{path} has format version {config.get('format_version')!r}, this package reads "
            f"{FORMAT_VERSION}. Update openprompt_meta, or save the template again."
        )
    needed = ("base_model", "text", "features", "key_dim", "value_dim", *DESCRIBED)
    missing = [key for key in needed if key not in config]
    if missing:
        raise TemplateError(f"{path} lacks {', '.join(missing)}; it was changed or cut. Save the template again.")
    unknown = sorted(set(config) - {"format", "format_version", _CHECKSUM, *READ_BY, *needed})
    if unknown:  # which may say that texts are read in a way that is not known here
        raise TemplateError(
            f"{path} has {', '.join(unknown)[:200]}, which this package does not know. Use the version that saved it."
        )
    config = {**READ_AT_MASK, **config}  # templates that were saved before they could be read otherwise
    if type(config["as_prefix"]) is not bool:
        raise TemplateError(f"{path}: as_prefix should be true or false, found {config['as_prefix']!r:.80}.")
    return config
