"""The key that a user probably meant, looked for in its own section first and then in all the others."""

from __future__ import annotations

import difflib

from openprompt_meta.config.keys import (
    describe,
    key_at,
    section_keys,
    section_types,
)
from openprompt_meta.config.schema import METHOD_SECTIONS, VERBALIZER_SECTIONS

__all__ = ["FILE_KEYS", "nearest_key"]

FILE_KEYS = ("inherit", "preset")
"""Keys of a file that are used up while loading it."""
_CUTOFF = 0.6


def nearest_key(section: str, name: str, verbalizer: str = "rep_verbalizer") -> str:
    """`` Did you mean 'meta.inner_lr'?``, or what is known here if nothing is near.

    Args:
        section: where the unknown key stands; the empty string for the top level.
        name: the unknown key.
        verbalizer: the chosen one; the sections of the others, and of methods, are not looked at.
    """
    if not section and key_at(name) is not None:
        owner, _, own_name = name.rpartition(".")
        return f" Dotted keys are for the command line; in a file write {own_name} in the section {owner}."
    top = (*FILE_KEYS, *section_types()) if not section else ()
    here = {word: word for word in top} | {key.name: key.path for key in section_keys(section).values()}
    others = ({*VERBALIZER_SECTIONS} - {verbalizer}) | {*METHOD_SECTIONS}
    elsewhere = {key.name: key.path for key in describe() if key.section not in others}
    for options, cutoff in ((elsewhere, 1.0), (here, _CUTOFF), (elsewhere, _CUTOFF)):
        near = difflib.get_close_matches(name.rpartition(".")[2], list(options), n=1, cutoff=cutoff)
        if near:
            return f" Did you mean {options[near[0]]!r}?"
    return f" Known {'keys of ' + section if section else 'sections and keys'}: {', '.join(here)}."
