"""A model's weights as one number: another number, another model."""

from __future__ import annotations

import hashlib

import torch
from torch import Tensor, nn

__all__ = ["bytes_of", "fingerprint"]


def fingerprint(model: nn.Module) -> str:
    """sha256 over names, types, shapes and bytes of everything that ``state_dict`` holds.

    Weights that are tied count once, under their first name, so that a model saved and loaded stays the same.
    """
    digest = hashlib.sha256()
    seen: set[int] = set()
    for name, value in model.state_dict().items():
        if value.data_ptr() in seen:
            continue
        seen.add(value.data_ptr())
        digest.update(f"{name}|{value.dtype}|{tuple(value.shape)}|".encode())
        digest.update(bytes_of(value))
    return digest.hexdigest()


def bytes_of(value: Tensor) -> bytes | memoryview:
    """The bytes of a tensor, without a copy if it is contiguous and on the CPU."""
    flat = value.detach().cpu().contiguous().view(-1)
    return flat.view(torch.uint8).numpy().data if flat.numel() else b""
