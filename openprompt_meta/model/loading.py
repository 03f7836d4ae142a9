"""Loading a masked language model by name, folder, or as the packaged encoder."""

from __future__ import annotations

import inspect
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from torch import nn
from transformers import AutoConfig, AutoModelForMaskedLM, AutoTokenizer, BertModel, PretrainedConfig
from transformers.utils import logging as transformers_logging

from openprompt_meta.errors import ModelError
from openprompt_meta.model.minilm import MINILM, minilm_folder
from openprompt_meta.model.tokenizer_wrapper import MaskedLMTokenizerWrapper

__all__ = ["LoadedMLM", "has_vocabulary_head", "load_mlm"]


class LoadedMLM(NamedTuple):
    """What OpenPrompt's ``load_plm`` returns, in its order."""

    model: Any
    tokenizer: Any
    config: PretrainedConfig
    wrapper: type[MaskedLMTokenizerWrapper]


def load_mlm(model_path: str | os.PathLike[str] = MINILM, attn_implementation: str | None = None) -> LoadedMLM:
    """Load a masked language model, its tokenizer, its configuration and OpenPrompt's tokenizer wrapper for it.

    Args:
        model_path: ``minilm`` (the packaged encoder, no hub needed, no vocabulary head), a folder, or a hub name
            of any masked language model that transformers knows: BERT, RoBERTa, DistilBERT, ALBERT, ELECTRA
            (generator), MPNet, DeBERTa-v2, …
        attn_implementation: transformers' choice of attention; ``"eager"`` for second-order gradients.

    Raises:
        ModelError: the model cannot be had, has no [MASK], or cannot be given a soft prompt.
    """
    path = os.fspath(model_path)
    if path == MINILM:
        config, tokenizer, model = _load_minilm(attn_implementation)
    else:
        config, tokenizer, model = _load_auto(path, attn_implementation)
    if tokenizer.mask_token_id is None:
        raise ModelError(
            f"{path} has no [MASK] token, so there is nothing to read a class from. Use a masked language model."
        )
    return LoadedMLM(model, tokenizer, config, MaskedLMTokenizerWrapper)


def has_vocabulary_head(model: nn.Module) -> bool:
    """Whether the model predicts words; the packaged encoder does not."""
    return getattr(model, "get_output_embeddings", lambda: None)() is not None


def _load_minilm(attn_implementation: str | None) -> tuple[PretrainedConfig, Any, Any]:
    folder = minilm_folder()
    options = _attention(attn_implementation)
    config = AutoConfig.from_pretrained(folder, **options)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    with _only_errors():  # it would warn of the pooler, which sentence-transformers saved and nobody needs
        model = BertModel.from_pretrained(folder, config=config, add_pooling_layer=False, **options)
    model.config._name_or_path = MINILM  # for artefacts: the name, not a path on one machine
    return model.config, tokenizer, model


@contextmanager
def _only_errors() -> Iterator[None]:
    before = transformers_logging.get_verbosity()
    transformers_logging.set_verbosity_error()
    try:
        yield
    finally:
        transformers_logging.set_verbosity(before)


def _load_auto(path: str, attn_implementation: str | None) -> tuple[PretrainedConfig, Any, Any]:
    options = _attention(attn_implementation)
    try:
        config = AutoConfig.from_pretrained(path)
    except (OSError, ValueError) as error:
        raise ModelError(_cannot_load(path, error)) from error
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
    try:
        tokenizer = AutoTokenizer.from_pretrained(path)
        model = AutoModelForMaskedLM.from_pretrained(path, config=config, **options)
    except (OSError, ValueError, ImportError) as error:
        raise ModelError(_cannot_load(path, error)) from error
    return model.config, tokenizer, model


def _takes_embeddings(model_class: type) -> bool:
    return "inputs_embeds" in inspect.signature(model_class.forward).parameters  # type: ignore[attr-defined]


def _attention(attn_implementation: str | None) -> dict[str, Any]:
    return {} if attn_implementation is None else {"attn_implementation": attn_implementation}


def _cannot_load(path: str, error: Exception) -> str:
    if Path(path).is_dir():
        remedy = "The folder must hold what save_pretrained of a model and of its tokenizer write."
    else:
        remedy = (
            "It is not a folder here, so it must be a name on the model hub that this machine can reach; "
            f"without a hub use model_path: {MINILM}."
        )
    reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    return f"{path} cannot be loaded: {reason} {remedy}"
