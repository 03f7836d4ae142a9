"""Special tokens around a wrapped example, for tokenizers without the methods that OpenPrompt calls."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any, Protocol
from weakref import WeakKeyDictionary

__all__ = ["add_special_tokens", "mend_tokenizer_wrapper", "special_token_ids"]

logger = logging.getLogger(__name__)

# What OpenPrompt writes at special positions: soft tokens are numbered from 1, so 0 is "none"; everywhere
# else -100 is the value that losses ignore.
_FILL_SOFT = 0
_FILL_OTHER = -100

_cache: WeakKeyDictionary[Any, tuple[list[int], list[int]]] = WeakKeyDictionary()


class _Wrapper(Protocol):
    """What is needed of an OpenPrompt ``TokenizerWrapper``."""

    tokenizer: Any


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


def add_special_tokens(wrapper: _Wrapper, encoder_inputs: Mapping[str, Sequence[int]]) -> dict[str, list[int]]:
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


def mend_tokenizer_wrapper() -> tuple[str, ...]:
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
