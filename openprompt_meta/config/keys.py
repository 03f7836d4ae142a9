"""The keys of a run as data: where each stands, its type, its default and what it means.

Read off the dataclasses of :mod:`openprompt_meta.config.schema` and the strings under their fields, so that a key is
described once.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
from dataclasses import MISSING, dataclass
from functools import cache
from typing import Any, get_type_hints

from openprompt_meta.config import schema
from openprompt_meta.config.schema import RunConfig
from openprompt_meta.config.values import expectation

__all__ = ["Key", "describe", "key_at", "section_keys", "section_types"]


@dataclass(frozen=True)
class Key:
    """One key. ``path`` is dotted (``meta.inner_lr``); ``type`` is in words (``a number above 0``)."""

    path: str
    type: str
    default: object
    doc: str
    hint: Any = dataclasses.field(repr=False, compare=False)

    @property
    def section(self) -> str:
        """The section it stands in; empty at the top level."""
        return self.path.rpartition(".")[0]

    @property
    def name(self) -> str:
        """Its name within the section."""
        return self.path.rpartition(".")[2]


@cache
def describe() -> tuple[Key, ...]:
    """Every key, in the order of the schema."""
    sections = section_types()
    keys: list[Key] = []
    for name in (field.name for field in dataclasses.fields(RunConfig)):
        owner = sections.get(name)
        keys += _keys_of(owner, f"{name}.") if owner else [key for key in _keys_of(RunConfig, "") if key.path == name]
    return tuple(keys)


@cache
def section_types() -> dict[str, type[Any]]:
    """The dataclass of each section by its name."""
    hints = get_type_hints(RunConfig, include_extras=True)
    return {name: hint for name, hint in hints.items() if dataclasses.is_dataclass(hint) and isinstance(hint, type)}


@cache
def section_keys(section: str) -> dict[str, Key]:
    """The keys of a section by name; those of the top level for the empty string."""
    return {key.name: key for key in describe() if key.section == section}


def key_at(path: str) -> Key | None:
    """The key with that dotted path."""
    section, _, name = path.rpartition(".")
    return section_keys(section).get(name)


def _keys_of(owner: type[Any], prefix: str) -> list[Key]:
    hints = get_type_hints(owner, include_extras=True)
    docs = _docs_of(owner)
    keys = []
    for field in dataclasses.fields(owner):
        hint = hints[field.name]
        if dataclasses.is_dataclass(hint):
            continue
        default = field.default_factory() if field.default_factory is not MISSING else field.default
        doc = docs.get(field.name, "")
        keys.append(Key(f"{prefix}{field.name}", expectation(hint), default, doc, hint))
    return keys


def _docs_of(owner: type[Any]) -> dict[str, str]:
    """The string under each field, those of base classes included, on one line each."""
    docs: dict[str, str] = {}
    for ancestor in reversed(owner.__mro__):
        docs |= _docs_by_class().get(ancestor.__name__, {})
    return docs


@cache
def _docs_by_class() -> dict[str, dict[str, str]]:
    try:
        tree = ast.parse(inspect.getsource(schema))
    except OSError:  # installed without sources: everything works, only the comments are missing
        return {}
    return {node.name: _docs_in(node) for node in tree.body if isinstance(node, ast.ClassDef)}


def _docs_in(node: ast.ClassDef) -> dict[str, str]:
    docs = {}
    for statement, following in zip(node.body, node.body[1:], strict=False):
        if (
            isinstance(statement, ast.AnnAssign)
            and isinstance(statement.target, ast.Name)
            and isinstance(following, ast.Expr)
            and isinstance(following.value, ast.Constant)
            and isinstance(following.value.value, str)
        ):
            docs[statement.target.id] = " ".join(following.value.value.split())
    return docs
