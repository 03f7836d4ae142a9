"""A saved pool on disk: a JSON that describes it and a safetensors that holds it, without the language model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import safetensors.torch
from safetensors import SafetensorError
from torch import Tensor

from openprompt_meta.errors import TemplateError
from openprompt_meta.files import write_whole
from openprompt_meta.prompts.pool import PromptPool

__all__ = ["read_pool_config", "read_pool_weights", "write_pool_files"]

CONFIG_FILE = "prompt_pool.json"
WEIGHTS_FILE = "prompt_pool.safetensors"
FORMAT = "openprompt_meta.prompt_pool_template"
FORMAT_VERSION = 1


def write_pool_files(folder: Path, pool: PromptPool, text: str | None, base_model: str) -> None:
    """Write both files to ``folder``, which is made if need be."""
    folder.mkdir(parents=True, exist_ok=True)
    config = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "base_model": base_model,
        "text": text,
        "num_prompts": pool.num_prompts,
        "prompt_length": pool.prompt_length,
        "key_dim": pool.key_dim,
        "value_dim": pool.value_dim,
        "top_n": pool.top_n,
    }
    tensors = {name: value.detach().cpu().contiguous() for name, value in pool.state_dict().items()}
    write_whole(folder / WEIGHTS_FILE, safetensors.torch.save(tensors))
    write_whole(folder / CONFIG_FILE, json.dumps(config, indent=2, ensure_ascii=False) + "\n")


def read_pool_config(folder: Path) -> dict[str, Any]:
    """What the JSON says, after a check that it says enough. :class:`TemplateError` if it does not."""
    path = folder / CONFIG_FILE
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise TemplateError(f"{folder} holds no saved PromptPoolTemplate: {path.name} is missing.") from None
    except (OSError, ValueError) as error:
        raise TemplateError(f"{path} cannot be read as JSON: {error}.") from None
    if not isinstance(config, dict) or config.get("format") != FORMAT:
        raise TemplateError(f"{path} does not describe a PromptPoolTemplate (format {FORMAT!r} expected).")
    if config.get("format_version") != FORMAT_VERSION:
        raise TemplateError(
            f"{path} has format version {config.get('format_version')!r}, this package reads "
            f"{FORMAT_VERSION}. Update openprompt_meta, or save the template again."
        )
    needed = ("base_model", "text", "num_prompts", "prompt_length", "key_dim", "value_dim", "top_n")
    missing = [key for key in needed if key not in config]
    if missing:
        raise TemplateError(f"{path} lacks {', '.join(missing)}; it was changed or cut. Save the template again.")
    return config


def read_pool_weights(folder: Path, pool: PromptPool) -> dict[str, Tensor]:
    """The saved tensors, after a check that they fit ``pool``. :class:`TemplateError` if they do not."""
    path = folder / WEIGHTS_FILE
    try:
        tensors: dict[str, Tensor] = safetensors.torch.load_file(path)
    except (OSError, SafetensorError) as error:
        raise TemplateError(f"{path} cannot be read as safetensors: {error}.") from None
    expected = {name: tuple(value.shape) for name, value in pool.state_dict().items()}
    found = {name: tuple(value.shape) for name, value in tensors.items()}
    if found != expected:
        raise TemplateError(f"{path} holds tensors {found}; the saved configuration asks for {expected}.")
    return tensors
