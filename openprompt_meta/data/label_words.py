"""Words that stand for a class: from a user's file, from the data's folder, from the shipped lists, from its name."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from openprompt_meta.config.yaml_file import read_yaml
from openprompt_meta.errors import ConfigError, DataError
from openprompt_meta.json_files import read_json

__all__ = ["label_words_from", "read_label_words", "resolve_label_words", "text_of_words", "words_of_class_name"]

logger = logging.getLogger(__name__)

_MAX_NODES = 50_000  # words and classes in a YAML
LabelWords = dict[str, tuple[str, ...]]


def label_words_from(mapping: object, where: str) -> LabelWords:
    """Class → words, from parsed JSON or YAML: a word or a list of words a class. :class:`DataError` otherwise."""
    if not isinstance(mapping, Mapping):
        raise DataError(f"{where}: expected a mapping from class to label words, found {type(mapping).__name__}.")
    words: LabelWords = {}
    for name, value in mapping.items():
        entries = [value] if isinstance(value, str) else value
        if (
            not isinstance(name, str)
            or not isinstance(entries, list | tuple)
            or not entries
            or not all(isinstance(word, str) and word.strip() for word in entries)
        ):
            # YAML reads a bare yes, no, on, off or 5 as something else than a word.
            raise DataError(
                f"{where}: label words of {name!r} are {value!r:.80}; expected a word or a list of words "
                f"(in YAML, put yes, no, on, off and numbers into quotes)."
            )
        words[name] = tuple(word.strip() for word in entries)
    return words


def read_label_words(path: Path) -> LabelWords:
    """Class → words from a ``.json``, ``.yaml`` or ``.yml`` file. :class:`DataError` if it cannot be read as such."""
    try:
        if path.suffix.lower() == ".json":
            content = read_json(path)
        elif path.suffix.lower() in {".yaml", ".yml"}:
            content = read_yaml(path, _MAX_NODES).content
        else:
            raise DataError(f"Label words are read from .json, .yaml or .yml files, not from {path}.")
    except FileNotFoundError:
        raise DataError(f"There is no file of label words {path}.") from None
    except ConfigError as error:  # of reading YAML, which already names file and line
        raise DataError(str(error)) from None
    return label_words_from(content, str(path))


def words_of_class_name(name: str) -> tuple[str, ...]:
    """The words inside a class name in lower case: ``"alarm/setTime_now"`` → ``("alarm", "set", "time", "now")``."""
    spaced = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name)
    words = [word.lower() for word in re.findall(r"[^\W_]+", spaced)]
    return tuple(dict.fromkeys(words)) or (name,)


def text_of_words(words: Iterable[str]) -> str:
    """The words of a class as a text that an encoder can read."""
    return ", ".join(word.strip() for word in words)


def resolve_label_words(classes: Iterable[str], *sources: tuple[str, Mapping[str, tuple[str, ...]]]) -> LabelWords:
    """Words for every class, from the first of the named ``sources`` that has it, else from the class's own name."""
    found: LabelWords = {}
    used: dict[str, int] = {}
    for name in classes:
        origin, words = next(
            ((origin, words[name]) for origin, words in sources if name in words),
            ("the class's own name", words_of_class_name(name)),
        )
        found[name] = words
        used[origin] = used.get(origin, 0) + 1
    logger.info("label words: %s", ", ".join(f"{count} from {origin}" for origin, count in used.items()))
    return found
