"""A :class:`RunConfig` as YAML, every key written out, that reads back as an equal one."""

from __future__ import annotations

import textwrap
from typing import Any

import yaml

from openprompt_meta.config.keys import Key, describe
from openprompt_meta.config.schema import RunConfig, component_sections
from openprompt_meta.config.validation import FORMAT_VERSION, VERSION_KEY

__all__ = ["to_mapping", "to_yaml"]

_WIDTH = 100
_LINE_BREAKS = frozenset("\n\r\x85\u2028\u2029")  # to YAML


def to_mapping(config: RunConfig) -> dict[str, Any]:
    """The configuration as plain dictionaries, lists and values.

    Sections of components that are not in use are left out if they hold nothing but defaults: what a package offers
    that happens to be installed is no part of a run.
    """
    return {name: value for name, value in config.model_dump().items() if not _is_idle(name, config)}


def to_yaml(config: RunConfig) -> str:
    """The content of :func:`to_mapping` as YAML, with what each key means as a comment."""
    lines = ["# Form of this file.", f"{VERSION_KEY}: {FORMAT_VERSION}", ""]
    open_section = ""
    for key in describe():
        if _is_idle(key.section, config):
            continue
        if key.section != open_section:
            lines.append("")
            if key.section:
                lines.append(f"{key.section}:")
            open_section = key.section
        lines += _lines_of(key, config)
    return "\n".join(lines).lstrip("\n") + "\n"


def _lines_of(key: Key, config: RunConfig) -> list[str]:
    owner = getattr(config, key.section) if key.section else config
    indent = "  " if key.section else ""
    comment = textwrap.wrap(key.doc.replace("``", ""), _WIDTH - 4, break_long_words=False)
    return [*(f"{indent}# {line}" for line in comment), f"{indent}{key.name}: {_scalar(getattr(owner, key.name))}"]


def _scalar(value: object) -> str:
    # Between double quotes a line break is an escape: one line a key, whatever it holds.
    style = '"' if isinstance(value, str) and not _LINE_BREAKS.isdisjoint(value) else None
    dumped: str = yaml.safe_dump(
        value, default_style=style, default_flow_style=True, width=float("inf"), allow_unicode=True
    )
    return dumped.removesuffix("...\n").rstrip("\n")


def _is_idle(section: str, config: RunConfig) -> bool:
    owner = component_sections().get(section)
    return owner is not None and section not in config.sections_in_use and getattr(config, section) == owner()
