"""``key=value`` from the command line: ``meta.shot=1 run.seeds=[0,1,2] verbalizer=warp_verbalizer``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from openprompt_meta.config.keys import key_at
from openprompt_meta.config.values import is_text, takes_null
from openprompt_meta.config.yaml_file import YamlFile, parse_yaml
from openprompt_meta.errors import ConfigError

__all__ = ["SOURCE", "parse_overrides"]

SOURCE = "command line"
_NULLS = ("", "~", "null", "Null", "NULL")


def parse_overrides(overrides: Iterable[str]) -> tuple[YamlFile, list[str]]:
    """The overrides as one mapping, the last of each key counting, and a sentence for each that is not one."""
    content: dict[str, Any] = {}
    file = YamlFile(content)
    problems = []
    for override in overrides:
        path, equals, text = override.partition("=")
        names = tuple(path.strip().split("."))
        if not equals or not all(names):
            problems.append(f"{override!r}: expected key=value, as in meta.shot=1. ({SOURCE})")
            continue
        try:
            value = _value(".".join(names), text.strip())
        except ConfigError as error:
            problems.append(f"{path}: {error}")
            continue
        section = content
        for name in names[:-1]:
            if not isinstance(section.get(name), dict):
                section[name] = {}
            section = section[name]
        section[names[-1]] = value
        file.lines[names] = SOURCE
    return file, problems


def _value(path: str, text: str) -> Any:
    key = key_at(path)
    if key is not None and is_text(key.hint):
        # A template text opens with a brace, which YAML would take for a mapping.
        return None if takes_null(key.hint) and text in _NULLS else text
    return parse_yaml(text, SOURCE).content
