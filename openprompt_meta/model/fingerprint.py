"""A model's weights as one number: another number, another model."""

from __future__ import annotations

import hashlib

import torch
from torch import Tensor, nn

__all__ = ["bytes_of", "fingerprint"]


def fingerprint(model: nn.Module) -> str:
    """sha256 over the types, shapes and bytes of a model's parameters.

    Sorted by content: names of tensors differ between versions of transformers, their values do not.
    """
    digests = sorted(_digest(value) for value in model.parameters())
    return hashlib.sha256("\n".join(digests).encode()).hexdigest()


def bytes_of(value: Tensor) -> bytes | memoryview:
    """The bytes of a tensor, without a copy if it is contiguous and on the CPU."""
    flat = value.detach().cpu().contiguous().view(-1)
    return flat.view(torch.uint8).numpy().data if flat.numel() else b""


def _digest(value: Tensor) -> str:
    return f"{tuple(value.shape)} {value.dtype} {hashlib.sha256(bytes_of(value)).hexdigest()}"
