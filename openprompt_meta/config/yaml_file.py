"""One YAML file, read as plain values with the line of every key, and nothing that an untrusted file could slip in.

Refused: tags other than those of plain values (no objects, no code), keys given twice, aliases that expand without
end, files too large to be a configuration, and text that is not UTF-8. What is refused is refused early: no file makes
the reading take more than a second or two.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from openprompt_meta.errors import ConfigError, did_you_mean
from openprompt_meta.files import read_text

MAX_BYTES = 1_000_000
MAX_NODES = 10_000  # after aliases are followed; the longest configuration of ours has about a hundred
MAX_DEPTH = 20
MAX_DIGITS = 100  # Python and PyYAML take long over long numbers
_TAG = "tag:yaml.org,2002:"
_CONVERTED = {f"{_TAG}{name}" for name in ("null", "bool", "int", "float", "str")}
# Dates, "=" and "<<" mean nothing here: a run folder called 2024-01-31 is text.
_AS_TEXT = {f"{_TAG}{name}" for name in ("timestamp", "value", "merge")}


@dataclass
class YamlFile:
    """What a file says, and where: ``lines[("meta", "way")]`` is ``base.yaml, line 3``."""

    content: Any
    lines: dict[tuple[str, ...], str] = field(default_factory=dict)


def read_yaml(path: str | os.PathLike[str], max_nodes: int = MAX_NODES) -> YamlFile:
    """Read a file of at most ``max_nodes`` values. :class:`ConfigError` names the file and, where it can, the line."""
    file = Path(path)
    try:
        text = read_text(file, MAX_BYTES, ConfigError)
    except FileNotFoundError:
        raise ConfigError(f"There is no file {file}.{_similar_files(file)}") from None
    return parse_yaml(text, str(file), max_nodes)


def parse_yaml(text: str, source: str, max_nodes: int = MAX_NODES) -> YamlFile:
    """Read YAML from a string; ``source`` is what messages call it."""
    try:
        loader = _Loader(text, source, max_nodes)
        try:
            return loader.read()
        finally:
            loader.dispose()
    except yaml.YAMLError as error:
        raise ConfigError(_explain(error, source)) from None
    except RecursionError:
        raise ConfigError(f"{source} is nested too deeply for a configuration.") from None


class _Loader(yaml.SafeLoader):
    """PyYAML's, which stops at the first value too many instead of reading on to the end, and keeps the lines."""

    def __init__(self, text: str, source: str, max_nodes: int) -> None:
        super().__init__(text)
        self.source = source
        self.max_nodes = max_nodes
        self.nodes = 0
        self.depth = 0
        self.lines: dict[tuple[str, ...], str] = {}

    def read(self) -> YamlFile:
        root = self.get_single_node()
        self.nodes = 0  # counted again: now once for every place where an alias stands
        return YamlFile(None if root is None else self._value(root, ()), self.lines)

    def compose_node(self, parent: Any, index: Any) -> Any:
        is_key = isinstance(parent, yaml.MappingNode) and index is None
        self.count(self.peek_event().start_mark, self.depth, values=0 if is_key else 1)
        self.depth += 1
        try:
            return super().compose_node(parent, index)
        finally:
            self.depth -= 1

    def count(self, mark: Any, depth: int, values: int = 1) -> None:
        """Take note of values at ``mark``. :class:`ConfigError` if they are too many, or too deep inside others."""
        self.nodes += values
        where = f"{self.source}, line {mark.line + 1}"
        if self.nodes > self.max_nodes:
            raise ConfigError(
                f"{where}: more than {self.max_nodes:,} values once aliases (*name) are followed. Leave some out, or "
                "inherit them from a file."
            )
        if depth > MAX_DEPTH:
            raise ConfigError(
                f"{where}: nested too deeply, more than {MAX_DEPTH} levels once aliases (*name) are followed."
            )

    def _value(self, node: Any, path: tuple[str, ...]) -> Any:
        self.count(node.start_mark, len(path))
        if isinstance(node, yaml.MappingNode) and node.tag == f"{_TAG}map":
            return self._mapping(node, path)
        if isinstance(node, yaml.SequenceNode) and node.tag == f"{_TAG}seq":
            return [self._value(item, (*path, str(number))) for number, item in enumerate(node.value)]
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node)
        raise self._refused(node)

    def _mapping(self, node: Any, path: tuple[str, ...]) -> dict[str, Any]:
        mapping: dict[str, Any] = {}
        for key_node, value_node in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                raise ConfigError(f"{self._at(key_node)}: a key must be a name, not a list or a mapping.")
            if key_node.tag == f"{_TAG}merge":
                raise ConfigError(f"{self._at(key_node)}: merge keys (<<) are not read here; use inherit: FILE.")
            self._scalar(key_node)  # for its tag
            key = key_node.value  # as written: the key "on" is not the key "true"
            here = (*path, key)
            if here in self.lines:
                raise ConfigError(
                    f"{self._at(key_node)}: the key {'.'.join(here)!r} is given twice, first in "
                    f"{self.lines[here]}. Keep one of them."
                )
            self.lines[here] = self._at(key_node)
            mapping[key] = self._value(value_node, here)
        return mapping

    def _scalar(self, node: Any) -> Any:
        if node.tag in _AS_TEXT:
            return node.value
        if node.tag not in _CONVERTED:
            raise self._refused(node)
        try:
            if len(node.value) > MAX_DIGITS and node.tag != f"{_TAG}str":
                raise ValueError
            return self.construct_object(node)
        except (ValueError, OverflowError, KeyError, IndexError):
            # An explicit tag on something else (!!int abc), or more digits than Python converts.
            shown = node.value if len(node.value) <= 40 else f"{node.value[:40]}…"
            raise ConfigError(
                f"{self._at(node)}: {shown!r} cannot be read as {node.tag.removeprefix(_TAG)}."
            ) from None

    def _refused(self, node: Any) -> ConfigError:
        tag = node.tag.replace(_TAG, "!!")
        return ConfigError(f"{self._at(node)}: the tag {tag} is refused; a configuration holds plain values only.")

    def _at(self, node: Any) -> str:
        return f"{self.source}, line {node.start_mark.line + 1}"


def _explain(error: yaml.YAMLError, source: str) -> str:
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    where = source if mark is None else f"{source}, line {mark.line + 1}, column {mark.column + 1}"
    problem = getattr(error, "problem", None) or getattr(error, "reason", None) or "not YAML"
    if "'\\t'" in problem:
        return f"{where}: the line is indented with a tab; YAML takes spaces only."
    context = getattr(error, "context", None)
    return f"{where}: {context + ', ' if context else ''}{problem}."


def _similar_files(file: Path) -> str:
    try:
        return did_you_mean(file.name, (other.name for other in file.parent.iterdir()))
    except OSError:
        return ""
