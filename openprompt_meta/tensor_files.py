"""Tensors with a few strings in one safetensors file that knows its own checksum; trees of tensors as such."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

import safetensors.torch
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from openprompt_meta.files import read_limited, write_atomic

_DIGEST = "sha256"


class DamagedFile(Exception):  # noqa: N818 - never leaves this package; it carries the reason to the caller's message
    """A file that is no safetensors file, or whose content is not what its checksum is of."""


def packed(tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> bytes:
    """``tensors`` and ``metadata`` as the bytes of a file, the same bytes for the same content."""
    plain = {name: value.detach().cpu().contiguous() for name, value in tensors.items()}
    content: bytes = safetensors.torch.save(plain, {**metadata, _DIGEST: digest(plain, metadata)})
    return _with_sorted_metadata(content)


def _with_sorted_metadata(content: bytes) -> bytes:
    """The file with its metadata sorted by key: safetensors has them in an order that changes from call to call."""
    end = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:end])
    header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
    encoded = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    encoded += b" " * (-len(encoded) % 8)  # tensors begin where a multiple of eight bytes ends
    return b"".join([len(encoded).to_bytes(8, "little"), encoded, memoryview(content)[end:]])


def write_tensors(path: str | os.PathLike[str], tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> None:
    """Write ``tensors`` and ``metadata`` to ``path``. ``OSError`` if that fails; what was there then stays."""
    write_atomic(path, packed(tensors, metadata))


def read_tensors(path: str | os.PathLike[str]) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors and the metadata in ``path``, as they were written. Nothing in a file is executed.

    A file without a checksum, from elsewhere, is taken at its word.

    Raises:
        OSError: the file cannot be read.
        DamagedFile: it is cut, altered or something else.
    """
    content = read_limited(path)
    try:
        tensors: dict[str, Tensor] = safetensors.torch.load(content)
        header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    except (SafetensorError, ValueError, KeyError, RecursionError) as error:
        # KeyError: a type of number that this torch does not know.
        raise DamagedFile(str(error)) from None
    metadata: dict[str, str] = header.get("__metadata__", {})
    expected = metadata.pop(_DIGEST, None)
    if expected is not None and expected != digest(tensors, metadata):
        raise DamagedFile("its content does not match its checksum")
    return tensors, metadata


def map_tensors(path: str | os.PathLike[str]) -> tuple[dict[str, Tensor], dict[str, str]]:
    """What :func:`read_tensors` gives, with the tensors mapped from the disk instead of read into memory.

    For large files that are read again and again; one without a checksum is refused.
    """
    try:
        with safe_open(path, framework="pt") as file:
            metadata = dict(file.metadata() or {})
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - no mapping
    except (SafetensorError, KeyError) as error:
        raise DamagedFile(str(error)) from None
    if metadata.pop(_DIGEST, None) != digest(tensors, metadata):
        raise DamagedFile("its content does not match its checksum")
    return tensors, metadata


def digest(tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None) -> str:
    """SHA-256 of names, types, shapes and bytes, whatever their order."""
    found = hashlib.sha256(json.dumps(dict(metadata or {}), sort_keys=True).encode())
    for name in sorted(tensors):
        value = tensors[name]
        found.update(json.dumps([name, str(value.dtype), list(value.shape)]).encode())
        found.update(bytes_of(value))
    return found.hexdigest()


def bytes_of(value: Tensor) -> bytes | memoryview:
    """The bytes of a tensor, without a copy if it is contiguous and on the CPU."""
    flat = value.detach().cpu().contiguous().reshape(-1)
    return flat.view(torch.uint8).numpy().data if flat.numel() else b""


# -- trees ------------------------------------------------------------------------------------------------------------


def flatten_tree(tree: Any) -> tuple[dict[str, Tensor], str]:
    """The tensors in a tree of mappings, sequences, numbers, strings and tensors, and the rest of it as JSON.

    :func:`rebuild_tree` gives it back with tensors equal bit for bit and on the CPU, keys of mappings as they were,
    and tuples as lists.
    """
    tensors: dict[str, Tensor] = {}
    return tensors, json.dumps(_without_tensors(tree, tensors))


def rebuild_tree(tensors: Mapping[str, Tensor], rest: str) -> Any:
    """The tree that :func:`flatten_tree` was given. ``DamagedFile`` if these are not of one."""
    try:
        return _with_tensors(json.loads(rest), tensors)
    except (KeyError, ValueError, TypeError, RecursionError) as error:
        raise DamagedFile(f"it holds no tree of tensors: {error}") from None


def _without_tensors(value: Any, tensors: dict[str, Tensor]) -> Any:
    """JSON for ``value``; tensors go to ``tensors`` and leave their name behind."""
    if isinstance(value, Tensor):
        name = str(len(tensors))
        # A copy of its own: safetensors refuses two tensors in one memory, such as tied weights.
        tensors[name] = value.detach().to("cpu", copy=True).contiguous()
        return {"tensor": name}
    if isinstance(value, Mapping):
        return {"items": [[key, _without_tensors(entry, tensors)] for key, entry in value.items()]}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_without_tensors(entry, tensors) for entry in value]
    return value.item() if hasattr(value, "item") else value


def _with_tensors(described: Any, tensors: Mapping[str, Tensor]) -> Any:
    if isinstance(described, list):
        return [_with_tensors(entry, tensors) for entry in described]
    if not isinstance(described, dict):
        return described
    if "tensor" in described:
        return tensors[described["tensor"]]
    return {key: _with_tensors(entry, tensors) for key, entry in described["items"]}
