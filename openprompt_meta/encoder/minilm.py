"""`minilm-mlm`: the packaged encoder with a vocabulary head, made by adding a difference that ships here."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import BertForMaskedLM

from openprompt_meta.encoder.packaged import MINILM_MLM
from openprompt_meta.errors import ModelError
from openprompt_meta.tensor_files import DamagedFile, read_tensors

# The difference is of low rank and in half precision; `tools/minilm_mlm` makes it (:mod:`tools.minilm_mlm`). The sum
# is formed in float64 and rounded once, so that every load gives the same bits, whatever computes it.

SHIPPED = Path(__file__).parent / "minilm_mlm_files" / "difference.safetensors"
MADE = SHIPPED.with_name("made.json")
"""How the difference was made, and how good the result is."""

UP, DOWN = ".up", ".down"
"""The two factors of a weight's difference: ``up @ down``."""


def with_head(encoder: Any) -> BertForMaskedLM:
    """A masked language model with a copy of an encoder that has no head.

    The head starts as the identity, and its decoder is the encoder's own input embeddings.
    """
    config = copy.deepcopy(encoder.config)
    config.tie_word_embeddings = True
    config.architectures = [BertForMaskedLM.__name__]
    model = BertForMaskedLM(config)
    model.bert.load_state_dict(encoder.state_dict())
    model.tie_weights()
    head = model.cls.predictions
    nn.init.eye_(head.transform.dense.weight)
    for vector in (head.transform.dense.bias, head.bias, head.transform.LayerNorm.bias):
        nn.init.zeros_(vector)
    nn.init.ones_(head.transform.LayerNorm.weight)
    model.eval()
    return model


def merged_model(encoder: Any, path: Path = SHIPPED) -> BertForMaskedLM:
    """The encoder with the difference added and the head put on.

    Raises:
        ModelError: the file of the difference is missing or damaged.
    """
    try:
        difference, _ = read_tensors(path)
    except (OSError, DamagedFile) as error:
        raise ModelError(
            f"model_path: {MINILM_MLM} cannot be loaded: {path} cannot be read ({error}). Install openprompt_meta "
            "again."
        ) from None
    model = with_head(encoder)
    add_difference(model, difference)
    return model


@torch.no_grad()
def add_difference(model: nn.Module, difference: Mapping[str, Tensor]) -> None:
    """Add ``up @ down``, or a tensor of the parameter's shape, to each parameter that ``difference`` names.

    Raises:
        ModelError: it names a parameter that the model has not, or of another shape.
    """
    parameters = dict(model.named_parameters())
    for name, value in difference.items():
        if name.endswith(DOWN):
            continue
        target = name.removesuffix(UP)
        delta = value.double()
        if name.endswith(UP):
            delta = delta @ difference[target + DOWN].double()
        if target not in parameters or parameters[target].shape != delta.shape:
            raise ModelError(f"The difference is not of this model: {target} of shape {tuple(delta.shape)}.")
        parameter = parameters[target]
        parameter.copy_((parameter.double() + delta).to(parameter.dtype))
