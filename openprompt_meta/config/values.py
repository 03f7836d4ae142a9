"""One value against one type of the schema: converted, or refused in words a user understands."""

from __future__ import annotations

import math
import re
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from openprompt_meta.config.ranges import Range
from openprompt_meta.errors import did_you_mean

__all__ = ["Mismatch", "convert", "expectation", "is_text", "show", "takes_null"]

# YAML 1.1, which PyYAML reads, has no float without a point: 1e-3 arrives as text.
_EXPONENT = re.compile(r"[-+]?\d+(?:\.\d*)?[eE][-+]?\d+")
# A zero byte, which no path may hold, and halves of characters, which cannot be written as UTF-8.
_UNUSABLE = re.compile("[\\x00\\ud800-\\udfff]")
_LARGEST_INT = 2**63 - 1
_SHOWN = 80


class Mismatch(Exception):  # noqa: N818 - never leaves this package; it carries the sentence of a problem
    """A value that its key cannot take."""


def convert(value: object, hint: Any) -> Any:
    """``value`` as the type ``hint``, with its range checked.

    Whole numbers pass for floats, and so does text such as ``1e-3``. Nothing else is converted: true is not 1.

    Raises:
        Mismatch: with what was given, what is expected and, for a choice, the nearest one.
    """
    try:
        return _convert(value, hint)
    except Mismatch:
        hint_at = ""
        if isinstance(value, str) and is_text(hint):
            hint_at = " Leave out zero bytes and what is not Unicode."
        choices = _choices(hint)
        if choices and isinstance(value, str):
            hint_at = did_you_mean(value, choices)
        raise Mismatch(f"got {show(value)}, expected {expectation(hint)}.{hint_at}") from None


def expectation(hint: Any) -> str:
    """A type in words: ``a whole number of at least 2``, ``one of mean, sum``, ``text, or null``."""
    origin = get_origin(hint)
    if origin is Annotated:
        base, *ranges = get_args(hint)
        return " ".join([expectation(base), *map(str, ranges)])
    if origin in (Union, UnionType):
        return f"{expectation(_not_none(hint))}, or null"
    if origin is Literal:
        choices = get_args(hint)
        return f"one of {', '.join(choices)}" if len(choices) > 1 else str(choices[0])
    if origin is list:
        return f"a list, each item {expectation(get_args(hint)[0])}"
    return {bool: "true or false", int: "a whole number", float: "a number", str: "text"}[hint]


def takes_null(hint: Any) -> bool:
    """Whether null is a value of the type."""
    return NoneType in get_args(hint)


def is_text(hint: Any) -> bool:
    """Whether the type is free text, null aside."""
    return (_not_none(hint) if takes_null(hint) else hint) is str


def show(value: object) -> str:
    """A value as it would stand in a YAML, cut if it is long."""
    if value is None:
        return "nothing (null)"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return "a section with keys of its own"
    if isinstance(value, list):
        inside = ", ".join("[…]" if isinstance(item, (list, dict)) else show(item) for item in value[:8])
        return f"the list [{inside}{', …' if len(value) > 8 else ''}]"
    if isinstance(value, int) and abs(value) > _LARGEST_INT:
        return "a number of more than 18 digits"  # Python refuses to print the longest ones
    shown = repr(value)
    shown = shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}…"
    return f"the text {shown}" if isinstance(value, str) else shown


def _convert(value: object, hint: Any) -> Any:
    origin = get_origin(hint)
    if origin is Annotated:
        base, *ranges = get_args(hint)
        converted = _convert(value, base)
        _require(all(isinstance(span, Range) and span.holds(converted) for span in ranges))
        return converted
    if origin in (Union, UnionType):
        return None if value is None else _convert(value, _not_none(hint))
    if origin is Literal:
        _require(isinstance(value, str) and value in get_args(hint))
        return value
    if origin is list:
        if not isinstance(value, list):
            raise Mismatch
        return [_convert(item, get_args(hint)[0]) for item in value]
    if hint is float:
        return _number(value)
    if hint is int:
        _require(isinstance(value, int) and not isinstance(value, bool) and abs(value) <= _LARGEST_INT)
        return value
    _require(isinstance(value, hint))
    _require(not isinstance(value, str) or _UNUSABLE.search(value) is None)
    return value


def _number(value: object) -> float:
    if isinstance(value, str) and _EXPONENT.fullmatch(value):
        value = float(value)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or abs(value) > _LARGEST_INT:
        raise Mismatch
    _require(math.isfinite(value))
    return float(value)


def _require(fact: bool) -> None:
    if not fact:
        raise Mismatch


def _not_none(hint: Any) -> Any:
    (inner,) = (option for option in get_args(hint) if option is not NoneType)
    return inner


def _choices(hint: Any) -> tuple[str, ...]:
    if takes_null(hint):
        hint = _not_none(hint)
    return get_args(hint) if get_origin(hint) is Literal else ()
