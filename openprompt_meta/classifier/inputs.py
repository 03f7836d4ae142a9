"""Texts and labels as people hand them over: checked before anything is loaded."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from openprompt_meta.data.checks import same_text
from openprompt_meta.errors import DataError, did_you_mean

Label: TypeAlias = "str | int | bool"
# bool before int, of which it is one.
_KINDS: tuple[tuple[str, type], ...] = (("bool", bool), ("int", int), ("str", str))


def checked_texts(texts: Any, *, empty_texts: bool = True) -> list[str]:
    """The texts as a list of strings.

    Args:
        texts: a list, tuple, array or column of strings; a table of one text column is taken as that column.
        empty_texts: whether a text of nothing but white space is let through.

    Raises:
        DataError: naming the first entry that is no text.
    """
    found: list[str] = []
    for position, entry in enumerate(_entries(texts, "texts")):
        if not isinstance(entry, str):
            raise DataError(f"Text {position} is {_shown(entry)}; a string is expected.{_remedy(entry)}")
        text = str(entry)  # a NumPy string is one of its own kind
        if not empty_texts and not text.strip():
            raise DataError(f"Text {position} is empty: there is nothing to learn from. Leave it out.")
        if not _encodes(text):
            raise DataError(
                f"Text {position} holds half of a surrogate pair, which no encoding can carry; it was cut or decoded "
                "wrongly. Decode it with errors='replace'."
            )
        found.append(text)
    if not found:
        raise DataError("The list of texts is empty (0 sample(s)); at least one text is needed.")
    return found


def checked_labels(labels: Any) -> list[Label]:
    """The labels as a list of strings, of whole numbers or of truth values: one kind of them.

    Raises:
        DataError: naming the first label that is missing, of no such kind, or of another kind than the first.
    """
    found: list[Label] = []
    for position, entry in enumerate(_entries(labels, "labels")):
        plain = entry.item() if isinstance(entry, np.generic) else entry
        if isinstance(plain, float) and plain.is_integer():
            plain = int(plain)  # what tables make of whole numbers once one of a column is missing
        if not isinstance(plain, str | int):
            raise DataError(
                f"Unknown label type: label {position} is {_shown(plain)}; a class is named by a string or a whole "
                f"number.{_remedy(plain)}"
            )
        if isinstance(plain, str) and not plain.strip():
            raise DataError(f"Label {position} is an empty string. Give the text a class name, or leave it out.")
        if isinstance(plain, str) and not _encodes(plain):
            raise DataError(f"Label {position} holds half of a surrogate pair, which no encoding can carry.")
        if found and kind_of(plain) != kind_of(found[0]):
            raise DataError(
                f"Labels are of mixed type: label 0 is {_shown(found[0])}, label {position} is {_shown(plain)}. "
                "Make them all strings, or all whole numbers."
            )
        found.append(str(plain) if isinstance(plain, str) else plain)
    return found


def kind_of(label: Label) -> str:
    """``bool``, ``int`` or ``str``."""
    return next(name for name, kind in _KINDS if isinstance(label, kind))


def conflicting_texts(texts: Sequence[str], labels: Sequence[Label]) -> dict[str, set[Label]]:
    """Texts that carry more than one label, but for letter case and white space, with their labels."""
    seen: dict[str, set[Label]] = {}
    for text, label in zip(texts, labels, strict=True):
        seen.setdefault(same_text(text), set()).add(label)
    return {text: found for text, found in seen.items() if len(found) > 1}


def checked_label_words(label_words: Any, classes: Sequence[Label], some: bool = False) -> dict[str, tuple[str, ...]]:
    """Words of each class by the class's name as a string, from a mapping by class (or by its name).

    Args:
        label_words: the mapping.
        classes: the classes.
        some: whether words of some of them are enough.

    Raises:
        DataError: a class has no words, or something that is none; or a class is none of these.
    """
    if not isinstance(label_words, Mapping):
        raise DataError(
            f"label_words is {_shown(label_words)}; expected a mapping from each class to a word or a list of words."
        )
    by_name = {str(name): words for name, words in label_words.items()}
    found: dict[str, tuple[str, ...]] = {}
    names = list(map(str, classes))
    unknown = [name for name in by_name if name not in names] if some else []
    if unknown:
        raise DataError(
            f"There are words for {unknown[:8]}, which are no classes; the classes are {', '.join(map(repr, names))}."
            + did_you_mean(unknown[0], names)
        )
    for name in by_name if some else names:
        given = by_name.get(name, ())
        words = (given,) if isinstance(given, str) else tuple(given) if isinstance(given, Iterable) else (given,)
        if not words or not all(isinstance(word, str) and word.strip() for word in words):
            raise DataError(
                f"label_words has {_shown(by_name.get(name))} for class {name!r}; expected a word or a list of words. "
                f"There are words for {', '.join(map(repr, by_name)) or 'no class'}."
            )
        found[name] = tuple(str(word).strip() for word in words)
    return found


def checked_metrics(metrics: Any) -> dict[str, float]:
    """Metrics as finite numbers by name. :class:`DataError` for anything else."""
    try:
        found = {str(name): float(value) for name, value in metrics.items()}
    except (AttributeError, TypeError, ValueError, OverflowError):
        raise DataError(
            f"metrics is {_shown(metrics)}; expected numbers by name, as in {{'accuracy': 0.9}}."
        ) from None
    if not all(math.isfinite(value) for value in found.values()):
        raise DataError(f"metrics is {_shown(metrics)}; not all of it are finite numbers.")
    return found


def _entries(values: Any, what: str) -> list[Any]:
    if isinstance(values, str | bytes | bytearray):
        raise DataError(
            f"{what.capitalize()} are given as one {type(values).__name__}, {values[:40]!r}; expected a list of them. "
            f"Put it into brackets: [{what[:-1]}]."
        )
    if isinstance(values, Mapping | set | frozenset):
        raise DataError(f"{what.capitalize()} are given as a {type(values).__name__}, which has no order; use a list.")
    if hasattr(values, "to_numpy"):  # a column or table of pandas
        values = values.to_numpy()
    if isinstance(values, np.ndarray):
        if values.ndim == 2 and values.shape[1] == 1:
            values = values[:, 0]
        if values.ndim != 1:
            raise DataError(
                f"{what.capitalize()} are an array of shape {values.shape}; expected one a row: shape (n,)."
            )
        return list(values)
    try:
        return list(values)
    except TypeError:
        raise DataError(f"{what.capitalize()} are {_shown(values)}; expected a list of them.") from None


def _encodes(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _shown(value: object) -> str:
    return "None" if value is None else f"{value!r:.60} ({type(value).__name__})"


def _remedy(value: object) -> str:
    if isinstance(value, bytes):
        return " Decode it first: value.decode('utf-8')."
    if value is None or (isinstance(value, Hashable) and value != value):  # NaN is the value that differs from itself
        return " It is missing; leave the row out, or fill it in."
    return ""
