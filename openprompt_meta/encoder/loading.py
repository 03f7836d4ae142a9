"""Loading a masked language model by name, folder, or as the packaged encoder."""

from __future__ import annotations

import hashlib
import inspect
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForMaskedLM, AutoTokenizer, BertModel, PretrainedConfig
from transformers.utils import logging as transformers_logging

from openprompt_meta.encoder.minilm import merged_model
from openprompt_meta.encoder.model_files import (
    check_description,
    check_size,
    first_line,
    model_folder,
    weight_options,
)
from openprompt_meta.encoder.packaged import MINILM, MINILM_MLM, PACKAGED
from openprompt_meta.encoder.wrapping import MaskedLMTokenizerWrapper
from openprompt_meta.errors import ModelError
from openprompt_meta.tensor_files import bytes_of


class LoadedMLM(NamedTuple):
    """What OpenPrompt's ``load_plm`` returns, in its order."""

    model: Any
    tokenizer: Any
    config: PretrainedConfig
    wrapper: type[MaskedLMTokenizerWrapper]


def load_mlm(
    model_path: str | os.PathLike[str] = MINILM, attn_implementation: str | None = None, allow_pickle: bool = False
) -> LoadedMLM:
    """Load a masked language model, its tokenizer, its configuration and OpenPrompt's tokenizer wrapper for it.

    Args:
        model_path: ``minilm`` (the packaged encoder, no hub needed, no vocabulary head), ``minilm-mlm`` (the same with
            a head, and brought back to predicting words), a folder, or a hub name of any masked language model that
            transformers knows: BERT, RoBERTa, DistilBERT, ALBERT, ELECTRA (generator), MPNet, DeBERTa-v2, …
        attn_implementation: transformers' choice of attention; ``"eager"`` for second-order gradients.
        allow_pickle: whether to take weights that there are no safetensors of, by PyTorch's restricted loader.

    Raises:
        ModelError: the model cannot be had, brings code along, has no [MASK], or cannot be given a soft prompt.
    """
    config = load_model_config(model_path, allow_pickle)
    tokenizer = load_tokenizer(model_path, allow_pickle)
    model = load_model(model_path, config, attn_implementation, allow_pickle)
    return LoadedMLM(model, tokenizer, model.config, MaskedLMTokenizerWrapper)


def load_model_config(model_path: str | os.PathLike[str], allow_pickle: bool = False) -> PretrainedConfig:
    """The configuration of a model that :func:`load_mlm` takes; a ModelError says why another is refused."""
    path = os.fspath(model_path)
    folder = model_folder(path, allow_pickle)
    check_description(folder)
    config: PretrainedConfig = _from_pretrained(AutoConfig, path, folder)
    if path in PACKAGED:
        return config
    if type(config) not in AutoModelForMaskedLM._model_mapping:
        raise ModelError(
            f"{path} is a {config.model_type!r} model, which transformers cannot use as a masked language model. "
            "Choose one that it can: bert-base-uncased, roberta-base, microsoft/mpnet-base, …, or minilm."
        )
    model_class: Any = AutoModelForMaskedLM._model_mapping[type(config)]
    if getattr(config, "is_encoder_decoder", False) or not _takes_embeddings(model_class):
        raise ModelError(
            f"{path} loads as {model_class.__name__}, which cannot be given a soft prompt through inputs_embeds. "
            "Choose an encoder such as BERT, RoBERTa, DistilBERT, ALBERT, ELECTRA, MPNet or DeBERTa-v2."
        )
    return config


def load_tokenizer(model_path: str | os.PathLike[str], allow_pickle: bool = False) -> Any:
    """The model's tokenizer; a ModelError if it has no [MASK]."""
    path = os.fspath(model_path)
    tokenizer = _from_pretrained(AutoTokenizer, path, model_folder(path, allow_pickle))
    if len(tokenizer) <= len(set(tokenizer.all_special_ids)):  # what transformers 5 gives if it finds no files
        raise ModelError(_cannot_load(path, "its tokenizer knows no words, only special tokens."))
    if tokenizer.mask_token_id is None:
        raise ModelError(
            f"{path} has no [MASK] token, so there is nothing to read a class from. Use a masked language model."
        )
    return tokenizer


def load_model(
    model_path: str | os.PathLike[str],
    config: PretrainedConfig,
    attn_implementation: str | None = None,
    allow_pickle: bool = False,
) -> Any:
    """The model itself, with a configuration from :func:`load_model_config`."""
    path = os.fspath(model_path)
    folder = model_folder(path, allow_pickle)
    options: dict[str, Any] = {} if attn_implementation is None else {"attn_implementation": attn_implementation}
    if path not in PACKAGED:
        options |= weight_options(folder, allow_pickle)
        check_size(folder, config)
        model = _from_pretrained(AutoModelForMaskedLM, path, folder, config=config, **options)
        model.config._name_or_path = path  # for artefacts: the name, not a path on one machine
        return model
    with _quiet():  # it would warn of the pooler, which sentence-transformers saved and nobody needs
        model = _from_pretrained(BertModel, path, folder, config=config, add_pooling_layer=False, **options)
    if path == MINILM_MLM:
        model = merged_model(model)
    model.config._name_or_path = path
    return model


def _from_pretrained(loader: Any, path: str, folder: Path, **options: Any) -> Any:
    try:
        # Without a word on code, transformers asks on standard input whether to run what a folder brings along.
        return loader.from_pretrained(folder, trust_remote_code=False, local_files_only=True, **options)
    except Exception as error:  # of transformers, tokenizers, safetensors and torch, by whatever is damaged
        reason = first_line(error)
        if "custom code" in str(error):
            reason = "it brings code of its own to be run, and none ever is; use a model that transformers knows."
        raise ModelError(_cannot_load(path, reason)) from error


@contextmanager
def _quiet() -> Iterator[None]:
    """No warnings and no progress bar inside; both as they were afterwards."""
    verbosity, bars = transformers_logging.get_verbosity(), transformers_logging.is_progress_bar_enabled()
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    try:
        yield
    finally:
        transformers_logging.set_verbosity(verbosity)
        if bars:
            transformers_logging.enable_progress_bar()


def _takes_embeddings(model_class: type) -> bool:
    return "inputs_embeds" in inspect.signature(model_class.forward).parameters  # type: ignore[attr-defined]


def _cannot_load(path: str, reason: str) -> str:
    return (
        f"{path} cannot be loaded: {reason} Its folder must hold what save_pretrained of a model and of its tokenizer "
        "write."
    )


# -- A model's weights as one number: another number, another model ---------------------------------------------------


def fingerprint(model: nn.Module) -> str:
    """sha256 over the types, shapes and bytes of a model's parameters.

    Sorted by content: names of tensors differ between versions of transformers, their values do not.
    """
    digests = sorted(_digest(value) for value in model.parameters())
    return hashlib.sha256("\n".join(digests).encode()).hexdigest()


def _digest(value: Tensor) -> str:
    return f"{tuple(value.shape)} {value.dtype} {hashlib.sha256(bytes_of(value)).hexdigest()}"
