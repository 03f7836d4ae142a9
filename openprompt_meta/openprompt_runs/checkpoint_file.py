"""Training state in one file, without pickle: tensors as safetensors, everything around them as JSON in its header."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import safetensors.torch
from safetensors import SafetensorError
from torch import Tensor

from openprompt_meta.errors import CheckpointError
from openprompt_meta.files import write_atomic

__all__ = ["pack", "read_checkpoint", "unpack", "write_checkpoint"]

_FORMAT = "openprompt_meta.checkpoint.1"


def pack(tree: Any) -> bytes:
    """A tree of mappings, sequences, numbers, strings and tensors as bytes.

    :func:`unpack` gives it back with tensors equal bit for bit and on the CPU, keys of mappings as they were, and
    tuples as lists.
    """
    tensors: dict[str, Tensor] = {}
    described = json.dumps(_describe(tree, tensors))
    content: bytes = safetensors.torch.save(tensors, metadata={"format": _FORMAT, "tree": described})
    return content


def unpack(content: bytes) -> Any:
    """The tree that :func:`pack` was given. ``ValueError`` if ``content`` is anything else."""
    try:
        tensors = safetensors.torch.load(content)
        length = int.from_bytes(content[:8], "little")
        header = json.loads(content[8 : 8 + length]).get("__metadata__", {})
    except SafetensorError as error:
        raise ValueError(str(error)) from None
    if header.get("format") != _FORMAT:
        raise ValueError(f"its format is {header.get('format')!r}, expected {_FORMAT!r}")
    return _rebuild(json.loads(header["tree"]), tensors)


def write_checkpoint(path: str | os.PathLike[str], tree: Any, *copies: str | os.PathLike[str]) -> None:
    """Write ``tree`` to ``path`` and the same to ``copies``, each whole or not at all."""
    content = pack(tree)
    for target in (path, *copies):
        write_atomic(target, content)


def read_checkpoint(path: str | os.PathLike[str]) -> Any:
    """The tree in ``path``.

    Raises:
        FileNotFoundError: there is no such file.
        CheckpointError: it is no checkpoint of this package. Nothing in it is executed either way.
    """
    content = Path(path).read_bytes()
    try:
        return unpack(content)
    except (ValueError, KeyError) as error:
        raise CheckpointError(
            f"{os.fspath(path)} is not a checkpoint of this package, or it is damaged ({error}). OpenPrompt's own "
            "checkpoints are pickles, which can run code when they are read, so they are not. Train again, or resume "
            "from a folder that this package wrote."
        ) from None


def _describe(value: Any, tensors: dict[str, Tensor]) -> Any:
    """JSON for ``value``; tensors go to ``tensors`` and leave their name behind."""
    if isinstance(value, Tensor):
        name = str(len(tensors))
        # A copy of its own: safetensors refuses two tensors in one memory, such as tied weights.
        tensors[name] = value.detach().to("cpu", copy=True).contiguous()
        return {"tensor": name}
    if isinstance(value, Mapping):
        return {"items": [[key, _describe(entry, tensors)] for key, entry in value.items()]}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_describe(entry, tensors) for entry in value]
    return value.item() if hasattr(value, "item") else value


def _rebuild(described: Any, tensors: Mapping[str, Tensor]) -> Any:
    if isinstance(described, list):
        return [_rebuild(entry, tensors) for entry in described]
    if not isinstance(described, dict):
        return described
    if "tensor" in described:
        return tensors[described["tensor"]]
    return {key: _rebuild(entry, tensors) for key, entry in described["items"]}
