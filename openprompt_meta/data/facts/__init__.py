"""Facts about the paper's six data sets: class lists, the authors' numbering, label words, checksums. No texts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from types import MappingProxyType

from openprompt_meta.config.schema import KNOWN_DATASETS
from openprompt_meta.data.classes import ClassSplit, class_split_from
from openprompt_meta.errors import DataError, did_you_mean


@dataclass(frozen=True)
class SourceFile:
    """The authors' file of a data set. Size and SHA-256 are ``None`` where only git's blob id is known."""

    name: str
    bytes: int | None
    sha256: str | None
    git_blob: str


@dataclass(frozen=True)
class SetFacts:
    """What is known of a data set without having it.

    ``classes`` is in the order of the authors' integer labels: ``classes[i]`` has the number ``i``. ``splits`` always
    has ``authors`` and for three of the sets ``distributional_signatures``. ``kind`` is news, products or intents.
    """

    name: str
    title: str
    kind: str
    terms: str
    samples: int
    per_class: tuple[int, int]
    words_a_text: int
    note: str
    file: SourceFile
    classes: tuple[str, ...]
    splits: Mapping[str, ClassSplit]
    label_words: Mapping[str, tuple[str, ...]]


@cache
def facts_of(name: str) -> SetFacts:
    """The facts of one of :data:`KNOWN_DATASETS`. :class:`DataError` for any other name."""
    if name not in KNOWN_DATASETS:
        raise DataError(
            f"{name!r} is not one of the known data sets, {', '.join(KNOWN_DATASETS)}."
            + did_you_mean(name, KNOWN_DATASETS)
        )
    content = json.loads(resources.files(__package__).joinpath(f"{name}.json").read_text(encoding="utf-8"))
    classes: dict[str, dict[str, object]] = content.pop("classes")
    low, high = content.pop("per_class")
    splits = {
        which: class_split_from(lists, f"facts of {name}, {which!r}") for which, lists in content.pop("splits").items()
    }
    return SetFacts(
        **{**content, "file": SourceFile(**content["file"])},
        per_class=(low, high),
        classes=tuple(classes),
        splits=MappingProxyType(splits),
        label_words=MappingProxyType({key: tuple(entry["label_words"]) for key, entry in classes.items()}),  # type: ignore[arg-type]
    )
