"""OpenPrompt's command-line overrides: `--train.num_epochs 2 --verbalizer warp_verbalizer --train.clean`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from openprompt_meta.config.yaml_file import parse_yaml
from openprompt_meta.errors import ConfigError

__all__ = ["Override", "number_or_text", "override_value", "parse_overrides"]

# A dotted key and the words that followed it.
Override = tuple[str, tuple[str, ...]]


_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+")


def number_or_text(text: str) -> float | str:
    """``1e-3`` as the number that people mean, which YAML 1.1 takes for a word; other text as it is."""
    return float(text) if _NUMBER.fullmatch(text) else text


def parse_overrides(arguments: Sequence[str]) -> list[Override]:
    """Pairs of key and words from what the command line has beyond its own options.

    Raises:
        ConfigError: a word stands before the first key.
    """
    found: list[tuple[str, list[str]]] = []
    for argument in arguments:
        if argument.startswith("--"):
            key, separator, value = argument[2:].partition("=")
            found.append((key, [value] if separator else []))
        elif not found:
            raise ConfigError(f"{argument!r} belongs to no option. Write overrides as --train.num_epochs 2.")
        else:
            found[-1][1].append(argument)
    return [(key, tuple(words)) for key, words in found]


def override_value(words: Sequence[str], current: Any) -> Any:
    """What an override gives the key that holds ``current``.

    As in OpenPrompt, a switch is turned over by naming it and a list takes all words. A value may also be written
    after a switch (``--train.clean true``).

    Raises:
        ValueError: with the reason, if the words say nothing for this key.
    """
    if not words:
        if isinstance(current, bool):
            return not current
        raise ValueError("needs a value")
    if isinstance(current, list):
        values = [_scalar(word, "") for word in words]
        return values[0] if len(values) == 1 and isinstance(values[0], list) else values
    if len(words) > 1:
        raise ValueError(f"takes one value, got {', '.join(map(repr, words))}")
    return _scalar(words[0], current)


def _scalar(word: str, current: Any) -> Any:
    try:
        value = parse_yaml(word, "an override").content
    except ConfigError:
        return word
    # A template text is no mapping, though it may look like one; a name may look like a number.
    if isinstance(value, dict) or (isinstance(current, str) and current and not isinstance(value, str)):
        return word
    return value
