"""A model's weights as one number: another number, another model."""

from __future__ import annotations

import hashlib

from torch import Tensor, nn

from openprompt_meta.tensor_files import bytes_of

__all__ = ["fingerprint"]


def fingerprint(model: nn.Module) -> str:
    """sha256 over the types, shapes and bytes of a model's parameters.

    Sorted by content: names of tensors differ between versions of transformers, their values do not.
    """
    digests = sorted(_digest(value) for value in model.parameters())
    return hashlib.sha256("\n".join(digests).encode()).hexdigest()


def _digest(value: Tensor) -> str:
    return f"{tuple(value.shape)} {value.dtype} {hashlib.sha256(bytes_of(value)).hexdigest()}"
