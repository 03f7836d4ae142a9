"""Why a text was classified as it was, as plain values."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from openprompt_meta.use.inputs import Label

__all__ = ["ClassProbability", "Explanation", "NearestExample", "NearestWord"]


@dataclass(frozen=True)
class ClassProbability:
    """One class and what the classifier, and each of its verbalizers, gives it.

    Attributes:
        label: the class.
        probability: the prediction.
        soft: by label embeddings alone; ``None`` for a classifier that has only words.
        hand_crafted: by label words alone; ``None`` where they have no say.
    """

    label: Label
    probability: float
    soft: float | None
    hand_crafted: float | None


@dataclass(frozen=True)
class NearestWord:
    """A token of the vocabulary and the cosine of its input embedding with a position of the prompt."""

    word: str
    cosine: float


@dataclass(frozen=True)
class NearestExample:
    """A support example and the cosine of its feature with the text's."""

    text: str
    label: Label
    cosine: float


@dataclass(frozen=True)
class Explanation:
    """What :meth:`~openprompt_meta.MetaPromptClassifier.explain` says about one text.

    Attributes:
        text: the text.
        label: the predicted class.
        classes: all classes, the most probable first.
        attention: how much each prompt of the pool contributes, adding up to one.
        prompt_words: for each position of the prompt made for this text, the nearest words, nearest first.
        nearest_examples: the most similar support examples, most similar first; none if the classifier was saved
            without them.
        truncated: whether the text was longer than the budget and cut.
    """

    text: str
    label: Label
    classes: tuple[ClassProbability, ...]
    attention: tuple[float, ...]
    prompt_words: tuple[tuple[NearestWord, ...], ...]
    nearest_examples: tuple[NearestExample, ...]
    truncated: bool

    def as_dict(self) -> dict[str, Any]:
        """The same for JSON."""
        return _plain(asdict(self))  # type: ignore[no-any-return]


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value
