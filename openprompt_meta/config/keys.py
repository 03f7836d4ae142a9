"""The keys of a run as data: where each stands, its type, its default and what it means; and the one a user meant.

Read off the sections of :class:`~openprompt_meta.config.schema.RunConfig`, so that a key is described once.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from openprompt_meta.config.schema import RunConfig, component_sections
from openprompt_meta.sections import Section, expectation, type_of

__all__ = ["FILE_KEYS", "Key", "describe", "key_at", "section_keys", "section_types", "what_was_meant"]

FILE_KEYS = ("inherit", "preset")
"""Keys of a file that are used up while loading it."""
_CUTOFF = 0.6
_GONE: Mapping[str, str] = {
    "meta.bmg_steps": "It is bmg.target_steps now.",
    "template": "There is one template; its settings stand in the section prompt_pool_template. Leave it out.",
    "plm.model_name": "Every masked language model is loaded the same way. Leave it out.",
}


@dataclass(frozen=True)
class Key:
    """One key. ``path`` is dotted (``meta.inner_lr``); ``type`` is in words (``a number above 0``)."""

    path: str
    type: str
    default: object
    doc: str
    hint: Any = field(repr=False, compare=False)

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
    """Every key: those of the top level, then section by section in the order of the schema."""
    sections = section_types()
    top = [key for key in _keys_of(RunConfig, "") if key.name not in sections]
    return (*top, *(key for name, owner in sections.items() for key in _keys_of(owner, f"{name}.")))


@cache
def section_types() -> dict[str, type[Section]]:
    """The class of each section by its name."""
    hints = {name: info.annotation for name, info in RunConfig.model_fields.items()}
    return {name: hint for name, hint in hints.items() if isinstance(hint, type) and issubclass(hint, Section)}


@cache
def section_keys(section: str) -> dict[str, Key]:
    """The keys of a section by name; those of the top level for the empty string."""
    return {key.name: key for key in describe() if key.section == section}


def key_at(path: str) -> Key | None:
    """The key with that dotted path."""
    section, _, name = path.rpartition(".")
    return section_keys(section).get(name)


def what_was_meant(section: str, name: str, verbalizer: str = "rep_verbalizer") -> str:
    """`` Did you mean 'meta.inner_lr'?``, or what is known here if nothing is near.

    Args:
        section: where the unknown key stands; the empty string for the top level.
        name: the unknown key.
        verbalizer: the chosen one; the sections of other components are not looked at.
    """
    gone = _GONE.get(f"{section}.{name}" if section else name)
    if gone:
        return f" {gone}"
    if not section and key_at(name) is not None:
        owner, _, own_name = name.rpartition(".")
        return f" Dotted keys are for the command line; in a file write {own_name} in the section {owner}."
    top = (*FILE_KEYS, *section_types()) if not section else ()
    here = {word: word for word in top} | {key.name: key.path for key in section_keys(section).values()}
    others = component_sections().keys() - {verbalizer}
    elsewhere = {key.name: key.path for key in describe() if key.section not in others}
    for options, cutoff in ((elsewhere, 1.0), (here, _CUTOFF), (elsewhere, _CUTOFF)):
        near = difflib.get_close_matches(name.rpartition(".")[2], list(options), n=1, cutoff=cutoff)
        if near:
            return f" Did you mean {options[near[0]]!r}?"
    return f" Known {'keys of ' + section if section else 'sections and keys'}: {', '.join(here)}."


def _keys_of(owner: type[Section], prefix: str) -> Iterator[Key]:
    for name, info in owner.model_fields.items():
        hint = type_of(owner, name)
        doc = " ".join((info.description or "").split())
        if isinstance(hint, type) and issubclass(hint, Section):
            continue
        yield Key(f"{prefix}{name}", expectation(hint), info.get_default(call_default_factory=True), doc, hint)
