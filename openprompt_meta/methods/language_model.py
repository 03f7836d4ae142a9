"""The language model that a run's configuration asks for: where, how exact, how it attends."""

from __future__ import annotations

import logging

import torch

from openprompt_meta.config import RunConfig
from openprompt_meta.errors import ConfigError
from openprompt_meta.model import LoadedMLM, load_mlm

__all__ = ["load_language_model", "product_precision", "torch_device", "torch_precision"]

logger = logging.getLogger(__name__)


def load_language_model(config: RunConfig) -> LoadedMLM:
    """The language model, frozen, on its device, in its precision; in float32 if a method will tune a copy of it.

    Attention is eager for second-order gradients, which torch's fused attention does not have on a CPU, and for
    bfloat16 there, whose fused backward pass is slow.
    """
    device = torch_device(config.run.device)
    precision = torch_precision(config.plm.precision, device)
    attention = config.plm.attn_implementation
    if attention is None and (not config.meta.first_order or (device.type == "cpu" and precision is torch.bfloat16)):
        attention = "eager"
    loaded = load_mlm(config.plm.model_path, attention)
    loaded.model.requires_grad_(False)
    loaded.model.to(device, torch.float32 if config.tunes_the_model else precision)
    return loaded


def product_precision(config: RunConfig) -> torch.dtype:
    """What the matrix products of a tuned language model are computed in."""
    if not config.tunes_the_model:
        return torch.float32  # a frozen model is in its precision itself
    return torch_precision(config.plm.precision, torch_device(config.run.device))


def torch_device(name: str) -> torch.device:
    """The device of that name; ``auto`` is CUDA if there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    device = torch.device(name)
    try:
        torch.empty(0, device=device)
    except (AssertionError, RuntimeError) as error:
        raise ConfigError(
            f"run.device: {name} cannot be used here ({str(error).splitlines()[0]}). Use auto or cpu."
        ) from None
    return device


def torch_precision(name: str, device: torch.device) -> torch.dtype:
    """The precision of that name; ``auto`` is bfloat16 where the hardware has instructions for it, else float32."""
    has_bfloat16 = _has_bfloat16(device)
    if name == "auto":
        return torch.bfloat16 if has_bfloat16 else torch.float32
    if device.type == "cpu" and (name == "float16" or (name == "bfloat16" and not has_bfloat16)):
        logger.warning("This processor has no instructions for %s: float32 is faster and more exact on it.", name)
    precision: torch.dtype = getattr(torch, name)
    return precision


def _has_bfloat16(device: torch.device) -> bool:
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    # torch has no public question for this; without the private one the answer is the careful one.
    asks = ("_is_avx512_bf16_supported", "_is_amx_tile_supported")
    return device.type == "cpu" and any(getattr(torch.cpu, name, bool)() for name in asks)
