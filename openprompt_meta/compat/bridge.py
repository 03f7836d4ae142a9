"""Gives OpenPrompt 1.0.1 what it needs of transformers and the installed version lacks: names, and special tokens."""

from __future__ import annotations

import functools
import importlib
import inspect
import logging
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any
from weakref import WeakKeyDictionary

from openprompt_meta.compat.versions import require
from openprompt_meta.errors import ConfigError, did_you_mean

logger = logging.getLogger(__name__)

_bridged: list[str] = []


def _attribute(module: str, name: str) -> Callable[[], Any]:
    return lambda: getattr(importlib.import_module(module), name)


@functools.cache
def _adamw() -> type[Any]:
    from torch.optim import AdamW as TorchAdamW  # not before torch is known to be installed

    class AdamW(TorchAdamW):
        """torch's AdamW with the defaults of the class that transformers dropped.

        OpenPrompt's runner leaves them to the class; with torch's own, its verbalizers would suddenly decay.
        """

        def __init__(
            self,
            params: Iterable[Any],
            lr: float = 1e-3,
            betas: tuple[float, float] = (0.9, 0.999),
            eps: float = 1e-6,
            weight_decay: float = 0.0,
            correct_bias: bool = True,
            no_deprecation_warning: bool = True,
        ) -> None:
            if not correct_bias:
                raise NotImplementedError(
                    "AdamW(correct_bias=False) went away with transformers.AdamW; use correct_bias=True, "
                    "or a transformers below 4.50"
                )
            del no_deprecation_warning  # accepted because callers of the old class pass it
            super().__init__(params, lr=lr, betas=betas, eps=eps, weight_decay=weight_decay)

    return AdamW


@dataclass
class _InputExample:
    """The fields of ``transformers.data.processors.utils.InputExample``; OpenPrompt annotates with it."""

    guid: str
    text_a: str
    text_b: str | None = None
    label: str | None = None


@dataclass(frozen=True)
class _InputFeatures:
    """The fields of ``transformers.data.processors.utils.InputFeatures``; OpenPrompt annotates with it."""

    input_ids: list[int]
    attention_mask: list[int] | None = None
    token_type_ids: list[int] | None = None
    label: int | float | None = None


_ADAMW = ("transformers", "AdamW")

# Each name that OpenPrompt imports, and where to get an equal if it is gone.
_NEEDS: Mapping[tuple[str, str], Callable[[], Any]] = {
    ("transformers.generation_utils", "GenerationMixin"): _attribute("transformers.generation", "GenerationMixin"),
    _ADAMW: _adamw,
    ("transformers.file_utils", "ModelOutput"): _attribute("transformers.utils", "ModelOutput"),
    ("transformers.tokenization_utils", "PreTrainedTokenizer"): _attribute("transformers", "PreTrainedTokenizer"),
    ("transformers.tokenization_utils", "SPECIAL_TOKENS_MAP_FILE"): lambda: "special_tokens_map.json",
    ("transformers.data.processors.utils", "InputExample"): lambda: _InputExample,
    ("transformers.data.processors.utils", "InputFeatures"): lambda: _InputFeatures,
    # OpenPrompt only annotates with this one, which transformers keeps for installations without torch.
    ("transformers.utils.dummy_pt_objects", "PreTrainedModel"): _attribute("transformers", "PreTrainedModel"),
}


def bridge_transformers() -> tuple[str, ...]:
    """Give OpenPrompt what it imports from transformers, touching nothing that the installed version has.

    Calling it again changes nothing.

    Returns:
        The full names that were bridged in this process, in order; empty if none had to be.

    Raises:
        CompatibilityError: torch or transformers is missing or outside the supported range.
    """
    require("torch")
    require("transformers")
    # Importing processing_utils executes transformers' __init__ a second time and replaces the module: what
    # was set on the first one would be lost.
    importlib.import_module("transformers.processing_utils")
    for (module, name), provide in _NEEDS.items():
        if not _has(module, name):
            setattr(_module(module), name, provide())
            _bridged.append(f"{module}.{name}")
            logger.debug("bridged %s", _bridged[-1])
    return bridged_names()


def offer_dropped_names() -> None:
    """Let ``from transformers import AdamW`` find its stand-in from now on, where transformers has no class any more.

    transformers looks its names up when they are asked for, and executes its ``__init__`` more than once: the answer
    is given by the class of that module, after transformers' own. Nothing is imported until somebody asks.
    """
    lazy = type(sys.modules["transformers"])
    own = vars(lazy).get("__getattr__")
    if own is None or hasattr(own, "asks_transformers_first"):
        return

    @functools.wraps(own)
    def answer(module: ModuleType, name: str) -> Any:
        try:
            return own(module, name)
        except AttributeError:
            if (module.__name__, name) != _ADAMW:
                raise
        full_name = ".".join(_ADAMW)
        if full_name not in _bridged:
            _bridged.append(full_name)
            logger.debug("bridged %s", full_name)
        return _NEEDS[_ADAMW]()

    answer.asks_transformers_first = True  # type: ignore[attr-defined]
    lazy.__getattr__ = answer  # type: ignore[method-assign]


def bridged_names() -> tuple[str, ...]:
    """The full names that were bridged in this process so far."""
    return tuple(_bridged)


def _has(module: str, name: str) -> bool:
    try:
        getattr(importlib.import_module(module), name)
    except ModuleNotFoundError as error:
        # A library that transformers itself lacks is not ours to paper over.
        if error.name is None or not (module == error.name or module.startswith(error.name + ".")):
            raise
        return False
    except AttributeError:
        return False
    return True


def _module(name: str) -> ModuleType:
    """The module called ``name``, made empty, with its parents, where it does not exist."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        module = ModuleType(name, "An empty module that openprompt_meta put here for OpenPrompt's imports.")
        module.__path__ = []  # lets modules below it be imported from sys.modules
        parent, _, child = name.rpartition(".")
        setattr(_module(parent), child, module)
        sys.modules[name] = module
        return module


# -- special tokens around a wrapped example, for tokenizers without the methods that OpenPrompt calls ----------------

# What OpenPrompt writes at special positions: soft tokens are numbered from 1, so 0 is "none"; everywhere
# else -100 is the value that losses ignore.
_FILL_SOFT = 0
_FILL_OTHER = -100

_cache: WeakKeyDictionary[Any, tuple[list[int], list[int]]] = WeakKeyDictionary()


def special_token_ids(tokenizer: Any) -> tuple[list[int], list[int]]:
    """The ids that ``tokenizer`` puts before and after a single text, e.g. ``([cls], [sep])``.

    They are read off an encoded mask token, because that is one token in every masked language model; a
    tokenizer without one (T5, GPT-2) is asked with a letter. Kept per tokenizer.
    """
    if tokenizer not in _cache:
        probe = tokenizer.mask_token or "a"
        plain = list(tokenizer.encode(probe, add_special_tokens=False))
        full = list(tokenizer.encode(probe, add_special_tokens=True))
        start = _find(plain, full)
        _cache[tokenizer] = full[:start], full[start + len(plain) :]
    return _cache[tokenizer]


def add_special_tokens(wrapper: Any, encoder_inputs: Mapping[str, Sequence[int]]) -> dict[str, list[int]]:
    """What ``TokenizerWrapper.add_special_tokens`` does, for any tokenizer of any supported transformers.

    Args:
        wrapper: An OpenPrompt tokenizer wrapper; only its ``tokenizer`` is used.
        encoder_inputs: ``input_ids`` and any number of keys aligned with it, all without special tokens.

    Returns:
        The same keys with special positions added: their ids in ``input_ids``, 0 in ``soft_token_ids``, -100
        in every other key. The argument is left as it was.
    """
    prefix, suffix = special_token_ids(wrapper.tokenizer)
    outputs: dict[str, list[int]] = {}
    for key, values in encoder_inputs.items():
        if key == "input_ids":
            outputs[key] = [*prefix, *values, *suffix]
        else:
            fill = _FILL_SOFT if key == "soft_token_ids" else _FILL_OTHER
            outputs[key] = [*[fill] * len(prefix), *values, *[fill] * len(suffix)]
    return outputs


def bridge_tokenizer_wrapper() -> tuple[str, ...]:
    """Put :func:`add_special_tokens` on OpenPrompt's tokenizer wrappers if this transformers needs it.

    The stock method calls ``build_inputs_with_special_tokens``, which tokenizers lost in transformers 5.
    Where they have it, and where somebody else has replaced the stock method already, nothing is touched.

    Returns:
        The name of the method if it has been replaced by ours (now or earlier), else nothing.
    """
    from openprompt.plms.utils import TokenizerWrapper
    from transformers import PreTrainedTokenizerBase

    name = "openprompt.plms.utils.TokenizerWrapper.add_special_tokens"
    current = TokenizerWrapper.add_special_tokens
    if current is add_special_tokens:
        return (name,)
    is_stock = getattr(current, "__module__", None) == TokenizerWrapper.__module__
    if hasattr(PreTrainedTokenizerBase, "build_inputs_with_special_tokens") or not is_stock:
        return ()
    TokenizerWrapper.add_special_tokens = add_special_tokens
    logger.debug("replaced %s", name)
    return (name,)


def _find(part: list[int], whole: list[int]) -> int:
    """Where ``part`` begins in ``whole``."""
    for start in range(len(whole) - len(part) + 1):
        if whole[start : start + len(part)] == part:
            return start
    raise ValueError(f"the tokenizer encodes a text as {part}, but with special tokens as {whole}")


# -- OpenPrompt's `from_config` drops keys that a class does not know; for ours they are errors -----------------------

# Keys of a template's or verbalizer's section that OpenPrompt itself reads.
OPENPROMPT_KEYS = ("parent_config", "file_path", "choice", "optimize", "init_using_split")
# Arguments that the run supplies; a YAML cannot.
_SUPPLIED = ("self", "model", "tokenizer")


def accepted_keys(cls: type) -> list[str]:
    """Arguments of a template or verbalizer that a YAML can give."""
    parameters = inspect.signature(cls).parameters.values()
    return [one.name for one in parameters if one.kind is not one.VAR_KEYWORD and one.name not in _SUPPLIED]


def refuse_unknown_keys(cls: type, config: Mapping[str, Any] | None) -> None:
    """Raise a ConfigError that lists every key of ``config`` which neither ``cls`` nor OpenPrompt takes."""
    accepted = accepted_keys(cls)
    known = (*accepted, *OPENPROMPT_KEYS)
    unknown = [key for key in (config or {}) if key not in known]
    if unknown:
        listed = "; ".join(f"{key!r}.{did_you_mean(key, known)}" for key in unknown)
        raise ConfigError(f"{cls.__name__} does not know {listed} It takes: {', '.join(accepted)}.")
