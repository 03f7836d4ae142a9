"""Texts said a little differently: by swapping and leaving out words, by synonyms, or as a file has them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from openprompt_meta.data.episodes import seeded_chance, seeded_sample
from openprompt_meta.errors import DataError
from openprompt_meta.files import parse_json, read_text

Key: TypeAlias = str | int
Augmentation: TypeAlias = Callable[..., str]
"""From a text and the key of a draw to another text, the same for the same key."""
_SHARE = 0.1
_MOST_BYTES = 200_000_000


def swapped_and_shortened(text: str, *key: Key) -> str:
    """A tenth of the words, at least one, change places with another, and a tenth are left out, but never all."""
    words = text.split()
    if len(words) < 2:
        return text
    for swap in range(max(1, round(_SHARE * len(words)))):
        one, other = seeded_sample(range(len(words)), 2, "swap", swap, *key)
        words[one], words[other] = words[other], words[one]
    kept = [word for i, word in enumerate(words) if not seeded_chance(_SHARE, "leave out", i, *key)]
    return " ".join(kept or seeded_sample(words, 1, "keep", *key))


def by_synonyms(groups: Mapping[str, Sequence[str]]) -> Augmentation:
    """A tenth of the words that have synonyms, at least one, give way to one; a text with none is swapped about.

    Args:
        groups: for a word in small letters, the words that mean the same.
    """

    def augmented(text: str, *key: Key) -> str:
        words = text.split()
        places = [i for i, word in enumerate(words) if word.lower() in groups]
        if not places:
            return swapped_and_shortened(text, *key)
        count = min(len(places), max(1, round(_SHARE * len(words))))
        for place in seeded_sample(places, count, "places", *key):
            (words[place],) = seeded_sample(groups[words[place].lower()], 1, "synonym", place, *key)
        return " ".join(words)

    return augmented


def by_paraphrases(paraphrases: Mapping[str, Sequence[str]]) -> Augmentation:
    """One of a text's paraphrases; a text without any is swapped about."""

    def augmented(text: str, *key: Key) -> str:
        own = paraphrases.get(text)
        return seeded_sample(own, 1, "paraphrase", *key)[0] if own else swapped_and_shortened(text, *key)

    return augmented


def read_synonyms(path: str | Path) -> dict[str, list[str]]:
    """Synonyms from a text file whose lines are words that mean the same, with commas between.

    Raises:
        DataError: it cannot be read, or has no line of two words.
    """
    groups: dict[str, list[str]] = {}
    for line in _lines(path):
        words = [word.strip() for word in line.split(",") if word.strip()]
        for word in words:
            own = groups.setdefault(word.lower(), [])
            own += [other for other in words if other.lower() != word.lower() and other not in own]
    found = {word: others for word, others in groups.items() if others}
    if not found:
        raise DataError(f"{path} has no line of two words or more with commas between, such as: film, movie.")
    return found


def read_paraphrases(path: str | Path) -> dict[str, list[str]]:
    """Paraphrases from a file of JSON lines, each with a ``text`` and the list ``paraphrases``.

    Raises:
        DataError: it cannot be read, or a line is something else.
    """
    found: dict[str, list[str]] = {}
    for number, line in enumerate(_lines(path), start=1):
        if not line.strip():
            continue
        entry = parse_json(line, str(path), number)
        text, others = (entry.get(name) if isinstance(entry, dict) else None for name in ("text", "paraphrases"))
        if not isinstance(text, str) or not isinstance(others, list) or not all(isinstance(o, str) for o in others):
            raise DataError(
                f"{path}, line {number}: got {json.dumps(entry, ensure_ascii=False)[:80]}, expected "
                '{"text": "…", "paraphrases": ["…"]}.'
            )
        found.setdefault(text, []).extend(other for other in others if other.strip())
    return found


def _lines(path: str | Path) -> list[str]:
    try:
        return read_text(Path(path), _MOST_BYTES, DataError).splitlines()
    except FileNotFoundError:
        raise DataError(f"There is no file {path}.") from None
