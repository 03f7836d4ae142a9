"""Matrix products in half precision while the weights stay in single: for language models that are tuned."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch

__all__ = ["products_in"]


def products_in(precision: torch.dtype, device: torch.device) -> AbstractContextManager[object]:
    """A context in which matrix products are computed in ``precision``; float32 leaves everything as it is.

    The steps that tune a model are far smaller than its weights, and half precision would round them away. Here only
    what goes through a product is rounded; the weights that are stepped, and what steps them, stay in float32.
    """
    if precision is torch.float32:
        return nullcontext()
    return torch.autocast(device.type, dtype=precision)
