"""Label words: the words that stand for a class, and the token ids a tokenizer makes of them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, TypeAlias

from openprompt_meta.errors import ConfigError, VerbalizerError

LabelWords: TypeAlias = "Mapping[str, Sequence[str] | str] | Sequence[Sequence[str] | str]"


def words_by_class(label_words: LabelWords, classes: Sequence[str]) -> list[list[str]]:
    """Label words in the order of ``classes``, a list for each.

    Args:
        label_words: a mapping from classes (more classes than needed are fine), or a sequence in their order.
        classes: the classes of the task.

    Raises:
        VerbalizerError: naming the classes that have no label words.
    """
    if isinstance(label_words, Mapping):
        missing = [name for name in classes if not label_words.get(name)]
        if missing:
            raise VerbalizerError(
                f"No label words for {_listed(missing)}; there are some for {_listed(list(label_words))}. "
                "Add a line for each class to the label words."
            )
        ordered: Sequence[Any] = [label_words[name] for name in classes]
    else:
        if len(label_words) != len(classes):
            raise VerbalizerError(
                f"{len(label_words)} lists of label words were given for {len(classes)} classes "
                f"({_listed(list(classes))}). Give one for each, in their order."
            )
        ordered = label_words
    words = [[entry] if isinstance(entry, str) else [str(word) for word in entry] for entry in ordered]
    empty = [name for name, own in zip(classes, words, strict=True) if not any(word.strip() for word in own)]
    if empty:
        raise VerbalizerError(f"The label words of {_listed(empty)} are empty. Give at least one word each.")
    return words


def read_openprompt_label_words(path: str, choice: int = 0) -> LabelWords:
    """Label words from a file in one of OpenPrompt's formats.

    Args:
        path: a ``.json`` file with a mapping from classes to words, or a list of such mappings; or a ``.txt`` or
            ``.csv`` file with a line for each class, words separated by commas, and an empty line between sets.
        choice: which of several sets to take.

    Raises:
        ConfigError: naming the file, if there is nothing of the kind in it.
    """
    parse = {".json": _sets_in_json, ".jsonl": _sets_in_json, ".txt": _sets_in_lines, ".csv": _sets_in_lines}
    suffix = Path(path).suffix
    if suffix not in parse:
        raise ConfigError(f"Label words are read from {', '.join(parse)} files; got {path}.")
    try:
        sets = parse[suffix](Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"Label words cannot be read from {path}: {error}.") from None
    if not 0 <= choice < len(sets):
        raise ConfigError(f"{path} holds {len(sets)} sets of label words; choice {choice} is none of them.")
    if not isinstance(sets[choice], (Mapping, list)):
        raise ConfigError(f"{path} should map classes to label words; found {sets[choice]!r}.")
    chosen: LabelWords = sets[choice]
    return chosen


def _sets_in_json(content: str) -> list[Any]:
    found = json.loads(content)
    return found if isinstance(found, list) else [found]


def _sets_in_lines(content: str) -> list[Any]:
    lines = [line.strip() for line in content.splitlines()]
    blocks = [list(block) for some, block in groupby(lines, key=bool) if some]
    return [[[word.strip() for word in line.split(",")] for line in block] for block in blocks]


def flatten_label_words(label_words: LabelWords) -> list[str]:
    """All words of all classes, in order."""
    entries = label_words.values() if isinstance(label_words, Mapping) else label_words
    return [word for entry in entries for word in ([entry] if isinstance(entry, str) else entry)]


def token_ids_of_words(tokenizer: Any, words: Sequence[str]) -> list[int]:
    """Distinct token ids of the words, as they stand inside a sentence (after a space), in order."""
    ids: dict[int, None] = {}
    for word in words:
        ids.update(dict.fromkeys(tokenizer.encode(f" {word.strip()}", add_special_tokens=False)))
    return list(ids)


def _listed(names: Sequence[str], most: int = 8) -> str:
    shown = ", ".join(repr(name) for name in names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"
