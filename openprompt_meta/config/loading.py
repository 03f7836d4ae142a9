"""From a YAML file, the files it inherits from, a preset and the command line to one :class:`RunConfig`."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from openprompt_meta.config.keys import key_at
from openprompt_meta.config.presets import PRESETS, preset
from openprompt_meta.config.schema import RunConfig
from openprompt_meta.config.shipped import find_yaml
from openprompt_meta.config.validation import VERSION_KEY, check_version, config_error, notes, read_mapping
from openprompt_meta.config.yaml_file import YamlFile, parse_yaml, read_yaml
from openprompt_meta.errors import ConfigError, did_you_mean
from openprompt_meta.sections import is_text, show, takes_null

__all__ = ["load_config", "merged", "parse_overrides"]

logger = logging.getLogger(__name__)

MAX_DEPTH = 10
MAX_FILES = 50
SOURCE = "command line"
_NULLS = ("", "~", "null", "Null", "NULL")


def load_config(path: str | os.PathLike[str], overrides: Iterable[str] = ()) -> RunConfig:
    """The configuration in a YAML file.

    Later wins, key by key: the files under ``inherit`` in their order, the ``preset``, the file itself, then a
    ``preset=`` of the command line and its other keys.

    Args:
        path: the file. ``inherit`` in it is a path relative to it, the name of a YAML that ships, or a list of them.
        overrides: ``key=value`` with dotted keys, as in ``meta.shot=1`` or ``run.seeds=[0,1]``.

    Raises:
        ConfigError: if a file cannot be read or, listing everything, if keys or values are wrong.
    """
    layers = _Layers()
    layers.add_file(Path(path))
    changes, problems = parse_overrides(overrides)
    layers.add_overrides(changes)
    problems += layers.problems
    mapping, origins = layers.merge()
    config, found = read_mapping(mapping, origins)
    problems += found
    if problems:
        raise config_error(str(path), problems)
    for note in notes(config):
        logger.warning("%s: %s", path, note)
    return config


def merged(base: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """``base`` with ``above`` laid over it; mappings join, everything else is replaced.

    An empty section (null) in ``above`` changes nothing.
    """
    result = dict(base)
    for key, value in above.items():
        below = result.get(key)
        if isinstance(below, dict) and (isinstance(value, dict) or value is None):
            result[key] = merged(below, value or {})
        else:
            result[key] = value
    return result


@dataclass(frozen=True)
class _Layer:
    content: Mapping[str, Any]
    origins: Mapping[tuple[str, ...], str]


@dataclass(frozen=True)
class _PresetLayer:
    name: str


class _Layers:
    """What was read so far, lowest first."""

    def __init__(self) -> None:
        self.layers: list[_Layer | _PresetLayer] = []
        self.problems: list[str] = []
        self.files = 0

    def add_file(self, path: Path, chain: tuple[str, ...] = ()) -> None:
        resolved = _real_path(path)
        if resolved in chain:
            circle = " -> ".join(Path(file).name for file in (*chain, resolved))
            raise ConfigError(f"{path} inherits from itself: {circle}. Take one inherit out.")
        self.files += 1
        if len(chain) >= MAX_DEPTH or self.files > MAX_FILES:
            raise ConfigError(
                f"{path}: inherit goes deeper than {MAX_DEPTH} files or takes in more than {MAX_FILES}; join some."
            )
        file = read_yaml(path)
        content = {} if file.content is None else file.content
        if not isinstance(content, dict):
            raise ConfigError(f"{path} holds {show(content)}, expected sections such as plm, dataset and meta.")
        check_version(content, file.lines.get((VERSION_KEY,), str(path)))  # first: a newer form may mean anything
        for base in _bases(content, path):
            self.add_file(base, (*chain, resolved))
        self._add(content, file)

    def add_overrides(self, changes: YamlFile) -> None:
        for name in ("inherit", VERSION_KEY):
            if name in changes.content:
                del changes.content[name]
                self.problems.append(f"{name}: stands in a file; give that file instead. ({SOURCE})")
        self._add(changes.content, changes)

    def _add(self, content: Mapping[str, Any], file: YamlFile) -> None:
        name = content.get("preset")
        if isinstance(name, str) and name in PRESETS:
            self.layers.append(_PresetLayer(name))
        elif name is not None:
            near = did_you_mean(name, PRESETS) if isinstance(name, str) else ""
            where = file.lines.get(("preset",), SOURCE)
            self.problems.append(f"preset: got {show(name)}, expected {' or '.join(PRESETS)}.{near} ({where})")
        own = {key: value for key, value in content.items() if key not in ("inherit", "preset", VERSION_KEY)}
        self.layers.append(_Layer(own, file.lines))

    def merge(self) -> tuple[dict[str, Any], dict[tuple[str, ...], str]]:
        plain: dict[str, Any] = {}
        for layer in self.layers:
            if isinstance(layer, _Layer):
                plain = merged(plain, layer.content)
        mapping: dict[str, Any] = {}
        origins: dict[tuple[str, ...], str] = {}
        for layer in self.layers:
            if isinstance(layer, _Layer):
                mapping = merged(mapping, layer.content)
                origins |= layer.origins
            else:
                values = preset(layer.name, plain)
                mapping = merged(mapping, values)
                origins |= _preset_origins(values, layer.name)
        return mapping, origins


def _real_path(path: Path) -> str:
    try:
        return os.path.realpath(path)
    except (OSError, ValueError) as error:  # a zero byte in the name, for one
        raise ConfigError(f"{str(path)!r} cannot be read: {error}.") from None


def _bases(content: Mapping[str, Any], path: Path) -> list[Path]:
    given = content.get("inherit")
    names = given if isinstance(given, list) else [] if given is None else [given]
    if not all(isinstance(name, str) and name for name in names):
        raise ConfigError(f"{path}: inherit is {show(given)}, expected a path or a list of paths.")
    return [find_yaml(name, beside=path.parent) for name in names]


def _preset_origins(values: Mapping[str, Any], name: str) -> dict[tuple[str, ...], str]:
    pairs = [(section, key) for section, keys in values.items() if isinstance(keys, dict) for key in keys]
    return dict.fromkeys(pairs, f"preset {name}")


# -- ``key=value`` from the command line: ``meta.shot=1 run.seeds=[0,1,2] verbalizer=warp_verbalizer`` ----------------


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
