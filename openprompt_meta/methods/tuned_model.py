"""A language model of a method's own, to be tuned."""

from __future__ import annotations

import copy
from collections.abc import Mapping

import torch
from torch import nn

from openprompt_meta.model import LoadedMLM

__all__ = ["TunedParameters", "own_copy", "parameters_of"]


def own_copy(loaded: LoadedMLM) -> LoadedMLM:
    """The language model once more, free to be changed; one copy for a method, whatever the number of its tasks.

    In float32 at least: half precision would round away the small steps that tune it.
    """
    model = copy.deepcopy(loaded.model)
    model.to(torch.promote_types(model.dtype, torch.float32))
    return loaded._replace(model=model.requires_grad_(True))


def parameters_of(model: nn.Module) -> list[nn.Parameter]:
    """All of a model's parameters, tied ones once: 109.5 million for BERT with its vocabulary head."""
    return list(model.parameters())


class TunedParameters(nn.Module):
    """Parameters of several modules under one roof, for an optimiser and for checkpoints.

    It holds the parameters themselves, tied ones once, so that a checkpoint has every number once.

    Args:
        modules: by the names to save their parameters under.
        **parameters: single ones.
    """

    def __init__(self, modules: Mapping[str, nn.Module], **parameters: nn.Parameter) -> None:
        super().__init__()
        for name, parameter in parameters.items():
            self.register_parameter(name, parameter)
        for owner, module in modules.items():
            for name, parameter in module.named_parameters():
                self.register_parameter(f"{owner}/{name}".replace(".", "/"), parameter)  # torch refuses dots
