"""The language model that a run's configuration asks for: loaded, copied to be tuned, and the engine that runs it."""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import torch
from torch import Tensor, nn

from openprompt_meta.config.schema import RunConfig
from openprompt_meta.encoder.classifier import MaskClassifier, MaskOnlyClassifier, vocabulary_head
from openprompt_meta.encoder.loading import LoadedMLM, load_mlm
from openprompt_meta.encoder.packed import PackedClassifier, packed_encoder
from openprompt_meta.encoder.texts import OpenPromptTexts, TokenizedTexts
from openprompt_meta.errors import ConfigError
from openprompt_meta.files import default_cache_folder
from openprompt_meta.prompts.pool_template import PromptPoolTemplate
from openprompt_meta.verbalizers.base import EpisodicVerbalizer

logger = logging.getLogger(__name__)

# -- The language model that a run's configuration asks for: where, how exact, how it attends -------------------------


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
    loaded = load_mlm(config.plm.model_path, attention, config.plm.allow_pickle)
    loaded.model.requires_grad_(False)
    loaded.model.to(device, torch.float32 if config.tunes_model else precision)
    return loaded


def product_precision(config: RunConfig) -> torch.dtype:
    """What the matrix products of a tuned language model are computed in."""
    if not config.tunes_model:
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


# -- A language model of a method's own, to be tuned ------------------------------------------------------------------


def own_copy(loaded: LoadedMLM) -> LoadedMLM:
    """The language model once more, free to be changed; one copy for a method, whatever the number of its tasks.

    In float32 at least: half precision would round away the small steps that tune it.
    """
    model = copy.deepcopy(loaded.model)
    model.to(torch.promote_types(model.dtype, torch.float32))
    return loaded._replace(model=model.requires_grad_(True))


class TunedParameters(nn.Module):
    """Parameters of several modules under one roof, for an optimiser and for checkpoints.

    It holds the parameters themselves, tied ones once, so that a checkpoint has every number once.

    Args:
        modules: by the names to save their parameters under.
        buffers: what is saved along and not learned.
        **parameters: single ones.
    """

    def __init__(
        self, modules: Mapping[str, nn.Module], buffers: Mapping[str, Tensor] | None = None, **parameters: nn.Parameter
    ) -> None:
        super().__init__()
        for name, parameter in parameters.items():
            self.register_parameter(name, parameter)
        for name, buffer in (buffers or {}).items():
            self.register_buffer(name, buffer)
        for owner, module in modules.items():
            for name, parameter in module.named_parameters():
                self.register_parameter(f"{owner}/{name}".replace(".", "/"), parameter)  # torch refuses dots


# -- `run.engine`: the same mathematics by OpenPrompt's own passes, or with less work ---------------------------------


def build_classifier(
    config: RunConfig,
    loaded: LoadedMLM,
    template: PromptPoolTemplate,
    verbalizer: EpisodicVerbalizer,
    tuned: bool = False,
) -> MaskClassifier:
    """The fastest classifier that takes the language model, frozen or ``tuned``, or the plain one."""
    dropout = config.plm.dropout
    kind: Callable[..., MaskClassifier] = MaskClassifier
    knows_head = not verbalizer.needs_vocabulary_head or vocabulary_head(loaded.model) is not None
    if config.run.engine == "fast" and knows_head:
        packs = not dropout and packed_encoder(loaded.model) is not None
        kind = partial(PackedClassifier, compiled=config.plm.compile) if packs else MaskOnlyClassifier
    classifier = kind(loaded.model, template, verbalizer, freeze_plm=not tuned, plm_eval_mode=not dropout)
    loaded.model.requires_grad_(tuned)  # OpenPrompt takes evaluation mode for a wish to freeze
    classifier.to(loaded.model.device)
    classifier.train(dropout)
    return classifier


def build_texts(
    config: RunConfig,
    loaded: LoadedMLM,
    texts: Sequence[str],
    template: PromptPoolTemplate,
    show_progress: bool = False,
    queries: bool = True,
) -> TokenizedTexts | OpenPromptTexts:
    """The texts of a split, to be batched; without ``queries`` if nobody asks for them, or the model is tuned."""
    wrapper = loaded.wrapper(tokenizer=loaded.tokenizer, max_seq_length=config.dataset.max_seq_length)
    if config.run.engine == "plain":
        return OpenPromptTexts(texts, template, wrapper, loaded.model.device)
    cache = default_cache_folder() if config.run.cache else None
    return TokenizedTexts(texts, template, wrapper, queries, loaded.model.device, cache, show_progress)


def tokens_at_once(config: RunConfig) -> int:
    """How many tokens of support texts go through the model side by side.

    One task at a time in the plain engine, and with dropout, whose random numbers belong to a task.
    """
    return 0 if config.run.engine == "plain" or config.plm.dropout else config.run.tokens_at_once
