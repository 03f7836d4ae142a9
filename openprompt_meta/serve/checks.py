"""Whether a request's texts, classes and names are within bounds, said in words a person can act on."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence

from openprompt_meta.serve.answers import Refusal
from openprompt_meta.serve.limits import Limits

__all__ = ["checked_classes", "checked_label_words", "checked_name", "checked_text", "checked_texts"]

_NAME = re.compile(r"\w[\w .-]{0,63}")


def checked_name(given: str) -> str:
    """A task's name in its one normal form. It is a key of a dictionary and nothing else."""
    name = unicodedata.normalize("NFC", given.strip())
    if not _NAME.fullmatch(name):
        raise Refusal(
            422,
            "A task's name has 1 to 64 letters, digits, spaces, '.', '-' and '_', and begins with a letter or digit.",
        )
    return name


def checked_text(text: str, limits: Limits, what: str = "The text") -> str:
    """The text, if there is something to read in it and not too much."""
    if not text.strip():
        raise Refusal(422, f"{what} is empty: write something.")
    if len(text) > limits.text_length:
        raise Refusal(
            422, f"{what} has {len(text):,} characters, but at most {limits.text_length:,} are read: shorten it."
        )
    return _encodable(text, what)


def checked_texts(texts: Sequence[str], limits: Limits) -> list[str]:
    """The texts of a prediction."""
    if not texts:
        raise Refusal(422, "'texts' is empty: give at least one text.")
    if len(texts) > limits.texts:
        raise Refusal(
            422, f"{len(texts):,} texts are more than {limits.texts:,}, the most in one request: split them."
        )
    return [checked_text(text, limits, f"Text {number}") for number, text in enumerate(texts, start=1)]


def checked_classes(classes: Mapping[str, Sequence[str]], limits: Limits) -> tuple[list[str], list[str]]:
    """The texts and labels of a fit."""
    if len(classes) < 2:
        found = "there is only one" if classes else "there is none"
        raise Refusal(422, f"At least two classes are needed, and {found}: add a class with a few examples.")
    if len(classes) > limits.classes:
        raise Refusal(422, f"{len(classes):,} classes are more than {limits.classes:,}, the most of a task.")
    total = sum(map(len, classes.values()))
    if total > limits.examples:
        raise Refusal(
            422, f"{total:,} examples are more than {limits.examples:,}, the most of a task: leave some out."
        )
    texts, labels = [], []
    seen: set[str] = set()
    for given, examples in classes.items():
        label = _checked_label(given, limits, "A class's name")
        if label in seen:
            raise Refusal(422, f"The class '{label}' is there twice: give each class its own name.")
        seen.add(label)
        if not examples:
            raise Refusal(422, f"The class '{label}' has no examples: give it at least one.")
        for number, text in enumerate(examples, start=1):
            texts.append(checked_text(text, limits, f"Example {number} of '{label}'"))
            labels.append(label)
    return texts, labels


def checked_label_words(
    words: Mapping[str, Sequence[str]] | None, labels: Sequence[str], limits: Limits
) -> dict[str, list[str]] | None:
    """The label words of a fit, for its classes and no other."""
    if words is None:
        return None
    checked = {}
    for given, of_class in words.items():
        label = _checked_label(given, limits, "A class's name")
        if label not in labels:
            raise Refusal(422, f"There are label words for '{label}', which is not one of the classes.")
        if not 1 <= len(of_class) <= limits.label_words:
            raise Refusal(
                422, f"The class '{label}' has {len(of_class)} label words, but 1 to {limits.label_words} fit."
            )
        checked[label] = [_checked_label(word, limits, f"A label word of '{label}'") for word in of_class]
    for label in labels:
        if label not in checked:
            raise Refusal(422, f"The class '{label}' has no label words: give them for every class or for none.")
    return checked


def _checked_label(given: str, limits: Limits, what: str) -> str:
    label = unicodedata.normalize("NFC", given.strip())
    if not 1 <= len(label) <= limits.label_length:
        raise Refusal(422, f"{what} has {len(label):,} characters, but 1 to {limits.label_length} fit.")
    if any(unicodedata.category(sign) in ("Cc", "Cs") for sign in label):
        raise Refusal(422, f"{what} has a sign in it that cannot be shown: leave it out.")
    return label


def _encodable(text: str, what: str) -> str:
    # JSON can spell half a surrogate pair, which is no character and has no UTF-8.
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise Refusal(422, f"{what} has half a character in it (a lone surrogate): leave it out.") from None
    return text
