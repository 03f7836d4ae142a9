"""A section of a YAML: a strict, frozen pydantic model whose keys have types, ranges and a sentence each.

Sections are the one home of what a key may be. Everything that a user is told about a key, in an error, in a written
configuration or in the documentation, is read off its type here. Knows no torch.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    GetCoreSchemaHandler,
    TypeAdapter,
    ValidationError,
)
from pydantic_core import CoreSchema, core_schema

from openprompt_meta.errors import did_you_mean

# YAML 1.1, which PyYAML reads, has no float without a point: 1e-3 arrives as text.
_EXPONENT = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+")
# A zero byte, which no path may hold, and halves of characters, which cannot be written as UTF-8.
_UNUSABLE = re.compile("[\\x00\\ud800-\\udfff]")
# What the tensors that a number ends in can hold.
_LARGEST_INT = 2**63 - 1
_LARGEST_FLOAT = (2 - 2**-23) * 2.0**127
_SHOWN = 80


class Section(BaseModel):
    """Base of every section: nothing is converted (true is not 1), nothing unknown is taken, nothing changes later."""

    model_config = ConfigDict(
        strict=True,
        frozen=True,
        extra="forbid",
        allow_inf_nan=False,
        use_attribute_docstrings=True,
        protected_namespaces=(),  # plm.model_path
    )


@dataclass(frozen=True)
class Problem:
    """A sentence about the key at ``path``; ``place`` is given where the path alone does not say how it is nested."""

    path: str
    text: str
    place: tuple[str, ...] = ()


@dataclass(frozen=True)
class Choice:
    """One of some names that are not known before they are asked for, such as the declared verbalizers."""

    options: Callable[[], Iterable[str]]

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Pydantic's hook: the text, and then the choice."""
        return core_schema.no_info_after_validator_function(self._checked, handler(source))

    def _checked(self, name: str) -> str:
        if name not in self.options():
            raise ValueError
        return name


def _within_int64(number: int) -> int:
    if abs(number) > _LARGEST_INT:
        raise ValueError
    return number


def _within_float32(number: float) -> float:
    if not abs(number) <= _LARGEST_FLOAT:
        raise ValueError
    return number


def from_exponent(value: object) -> object:
    """``1e-3`` as the number that people mean; anything else as it is."""
    return float(value) if isinstance(value, str) and _EXPONENT.fullmatch(value) else value


def _usable(text: str) -> str:
    if _UNUSABLE.search(text):
        raise ValueError
    return text


Text = Annotated[str, AfterValidator(_usable)]
Whole = Annotated[int, AfterValidator(_within_int64)]
_Number = Annotated[float, BeforeValidator(from_exponent), AfterValidator(_within_float32)]
Count = Annotated[Whole, Ge(1)]
Steps = Annotated[Whole, Ge(0)]
Seed = Annotated[Whole, Ge(0), Le(2**32 - 1)]  # what numpy and torch both take
Positive = Annotated[_Number, Gt(0)]
NonNegative = Annotated[_Number, Ge(0)]
Proportion = Annotated[_Number, Ge(0), Le(1)]
LearningRate = Positive


def mismatch(value: object, hint: Any) -> str | None:
    """What is wrong with a value for a key of this type, as a sentence, if anything is."""
    try:
        TypeAdapter(hint, config=Section.model_config).validate_python(value)
    except ValidationError:
        remedy = ""
        if isinstance(value, str) and is_text(hint):
            remedy = " Leave out zero bytes and what is not Unicode."
        if isinstance(value, str) and choices(hint):
            remedy = did_you_mean(value, choices(hint))
        return f"got {show(value)}, expected {expectation(hint)}.{remedy}"
    return None


def type_of(owner: type[Section], key: str) -> Any:
    """The type of a section's key, with its range."""
    info = owner.model_fields[key]
    return Annotated[(info.annotation, *info.metadata)] if info.metadata else info.annotation


def expectation(hint: Any) -> str:
    """A type in words: ``a whole number of at least 2``, ``one of mean, sum``, ``text, or null``."""
    origin = get_origin(hint)
    if origin is Annotated:
        base, *facts = get_args(hint)
        options = choices(hint)
        return _one_of(options) if options else " ".join(filter(None, [expectation(base), _range(facts)]))
    if takes_null(hint):
        return f"{expectation(_not_none(hint))}, or null"
    if origin is Literal:
        return _one_of(get_args(hint))
    if origin is list:
        return f"a list, each item {expectation(get_args(hint)[0])}"
    return {bool: "true or false", int: "a whole number", float: "a number", str: "text"}[hint]


def choices(hint: Any) -> tuple[str, ...]:
    """The names that a key may take, if it is a choice."""
    hint = _not_none(hint) if takes_null(hint) else hint
    if get_origin(hint) is Literal:
        return get_args(hint)
    found = [fact for fact in get_args(hint)[1:] if isinstance(fact, Choice)] if get_origin(hint) is Annotated else []
    return tuple(found[0].options()) if found else ()


def takes_null(hint: Any) -> bool:
    """Whether null is a value of the type."""
    return get_origin(hint) in (Union, UnionType) and NoneType in get_args(hint)


def is_text(hint: Any) -> bool:
    """Whether the type is free text, null aside."""
    return bool((_not_none(hint) if takes_null(hint) else hint) == Text)


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


def _range(facts: Sequence[object]) -> str:
    lowest = [float(fact.ge) for fact in facts if isinstance(fact, Ge)]  # type: ignore[arg-type]
    above = [float(fact.gt) for fact in facts if isinstance(fact, Gt)]  # type: ignore[arg-type]
    highest = [float(fact.le) for fact in facts if isinstance(fact, Le)]  # type: ignore[arg-type]
    if lowest and highest:
        return f"between {max(lowest):g} and {min(highest):.10g}"
    if above:
        return f"above {max(above):g}" + (f" and at most {min(highest):g}" if highest else "")
    if lowest:
        return f"of at least {max(lowest):g}"
    return f"of at most {min(highest):g}" if highest else ""


def _one_of(names: Sequence[str]) -> str:
    return f"one of {', '.join(names)}" if len(names) > 1 else str(names[0])


def _not_none(hint: Any) -> Any:
    (inner,) = (option for option in get_args(hint) if option is not NoneType)
    return inner
