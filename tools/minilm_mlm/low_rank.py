"""A masked language model from the packaged encoder, of which little is learned: low-rank updates and a head."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize
from transformers import BertForMaskedLM

from openprompt_meta.encoder.minilm import with_head


class LowRankUpdate(nn.Module):
    """For `torch.nn.utils.parametrize`: a weight is what it was plus ``up @ down``, which starts at zero."""

    def __init__(self, weight: Tensor, rank: int, random: torch.Generator) -> None:
        super().__init__()
        out_features, in_features = weight.shape
        self.up = nn.Parameter(torch.zeros(out_features, rank))
        self.down = nn.Parameter(torch.randn(rank, in_features, generator=random) / in_features**0.5)

    def forward(self, weight: Tensor) -> Tensor:
        """The weight that is computed with."""
        # In full precision whatever the pass around it computes in: the product is added to weights that matter.
        with torch.autocast(weight.device.type, enabled=False):
            return weight + self.up @ self.down


def learner_from(encoder: Any, rank: int, seed: int) -> BertForMaskedLM:
    """:func:`with_head`, with a low-rank update at every linear layer of the encoder, ready to be trained.

    The weights and the embeddings are frozen. What is one-dimensional (biases, LayerNorms) and the head are learned in
    full: together they are small.
    """
    model = with_head(encoder)
    random = torch.Generator().manual_seed(seed)
    model.requires_grad_(False)
    for module in model.bert.encoder.modules():
        if isinstance(module, nn.Linear):
            weight: Tensor = module.weight
            parametrize.register_parametrization(module, "weight", LowRankUpdate(weight, rank, random))
    for name, parameter in model.named_parameters():
        in_head = name.startswith("cls.") and "decoder.weight" not in name
        in_encoder = name.startswith("bert.encoder.") and not name.endswith("original")
        parameter.requires_grad_(in_head or in_encoder)
    return model


def learned_tensors(model: nn.Module) -> dict[str, nn.Parameter]:
    """What :func:`learner_from` lets be trained, by name."""
    return {name: value for name, value in model.named_parameters() if value.requires_grad}


def difference_of(model: nn.Module, encoder: Any, dtype: torch.dtype = torch.float16) -> dict[str, Tensor]:
    """What training has changed, for :func:`~openprompt_meta.encoder.minilm.add_difference`."""
    before = dict(with_head(encoder).named_parameters())
    difference: dict[str, Tensor] = {}
    for name, value in learned_tensors(model).items():
        if ".parametrizations." in name:
            layer, _, factor = name.partition(".parametrizations.weight.0.")
            difference[f"{layer}.weight.{factor}"] = value.detach().to(dtype)
        else:
            difference[name] = (value.detach().double() - before[name].detach().double()).to(dtype)
    return difference
