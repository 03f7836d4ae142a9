"""A mapping, as YAML gives it, to a :class:`RunConfig`, or to one error that lists everything wrong with it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from openprompt_meta.config.checks import Problem, cross_check
from openprompt_meta.config.format_version import KEY, brought_up_to_date, check_version
from openprompt_meta.config.keys import Key, section_keys, section_types
from openprompt_meta.config.schema import VERBALIZER_SECTIONS, RunConfig
from openprompt_meta.config.suggestions import nearest_key
from openprompt_meta.config.values import Mismatch, convert, show
from openprompt_meta.errors import ConfigError

__all__ = ["config_error", "config_from_mapping", "read_mapping"]

KeyPath = tuple[str, ...]
Origins = Mapping[KeyPath, str]


def config_from_mapping(
    mapping: Mapping[str, Any], *, origins: Origins | None = None, source: str = "The configuration"
) -> RunConfig:
    """The configuration that ``mapping`` describes; what it leaves out has its default.

    Args:
        mapping: sections and keys, and perhaps ``version``. A section that is null is an empty one, as in a YAML whose
            keys are commented out.
        origins: where each key was read, ``("meta", "way")`` to ``base.yaml, line 3``, for the messages.
        source: what the message calls the whole.

    Raises:
        ConfigError: with every problem, each under its dotted path.
    """
    check_version(mapping, source)
    own = {name: value for name, value in brought_up_to_date(mapping).items() if name != KEY}
    config, problems = read_mapping(own, origins or {})
    if problems:
        raise config_error(source, problems)
    return config


def read_mapping(mapping: Mapping[str, Any], origins: Origins) -> tuple[RunConfig, list[str]]:
    """The configuration, with defaults where it is wrong, and a sentence for each problem."""
    reading = _Reading(_chosen_verbalizer(mapping))
    config = reading.run(mapping)
    failed = {problem.path for problem in reading.problems}
    problems = [*reading.problems, *cross_check(config, failed)]
    return config, [_sentence(problem, origins) for problem in problems]


def config_error(source: str, sentences: Sequence[str]) -> ConfigError:
    """One error for several problems, each on a line of its own."""
    count = "one problem" if len(sentences) == 1 else f"{len(sentences)} problems"
    return ConfigError("\n  ".join([f"{source} has {count}:", *sentences]))


@dataclass
class _Reading:
    verbalizer: str
    problems: list[Problem] = field(default_factory=list)

    def run(self, mapping: Mapping[str, Any]) -> RunConfig:
        values: dict[str, Any] = {}
        for name, value in mapping.items():
            owner = section_types().get(name) if isinstance(name, str) else None
            if owner is not None:
                values[name] = owner(**dict(self._section(name, value)))
            else:
                values |= dict(self._key("", name, value))
        return RunConfig(**values)

    def _section(self, section: str, value: object) -> Iterator[tuple[str, Any]]:
        if value is None:
            return
        if not isinstance(value, dict):
            text = f"got {show(value)}, expected a section with the keys {', '.join(section_keys(section))}."
            self.problems.append(Problem(section, text))
            return
        for name, item in value.items():
            yield from self._key(section, name, item)

    def _key(self, section: str, name: object, value: object) -> Iterator[tuple[str, Any]]:
        path = f"{section}.{_cut(name)}" if section else _cut(name)
        key: Key | None = section_keys(section).get(name) if isinstance(name, str) else None
        if key is None:
            near = nearest_key(section, str(name), self.verbalizer)
            self.problems.append(Problem(path, f"unknown key.{near}", (*filter(None, [section]), str(name))))
            return
        try:
            yield key.name, convert(value, key.hint)
        except Mismatch as mismatch:
            self.problems.append(Problem(path, str(mismatch)))


def _cut(name: object, most: int = 80) -> str:
    """A name that fits into a message, however long it is."""
    text = str(name)
    return text if len(text) <= most else f"{text[:most]}…"


def _sentence(problem: Problem, origins: Origins) -> str:
    where = origins.get(problem.place or tuple(problem.path.split(".")))
    return f"{problem.path}: {problem.text}" + (f" ({where})" if where else "")


def _chosen_verbalizer(mapping: Mapping[str, Any]) -> str:
    chosen = mapping.get("verbalizer")
    return chosen if isinstance(chosen, str) and chosen in VERBALIZER_SECTIONS else RunConfig.verbalizer
