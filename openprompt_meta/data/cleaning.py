"""Texts that would spoil an evaluation: finding them and, on request, leaving them out."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import replace

from openprompt_meta.data.dataset import Split, TextDataset
from openprompt_meta.errors import DataError, did_you_mean

__all__ = [
    "DROPPABLE",
    "classes_in_two_splits",
    "drop_conflicts",
    "drop_duplicates",
    "drop_small_classes",
    "dropped",
    "same_text",
    "texts_in_two_splits",
    "texts_with_two_labels",
]

logger = logging.getLogger(__name__)


def same_text(text: str) -> str:
    """What two texts have in common if a model can hardly tell them apart: all but letter case and white space."""
    return " ".join(text.casefold().split())


def texts_with_two_labels(split: Split) -> dict[str, set[str]]:
    """Text (as :func:`same_text` has it) → its labels, for the texts of a split that carry more than one."""
    labels: dict[str, set[str]] = {}
    for text, label in zip(split.texts, split.labels, strict=True):
        labels.setdefault(same_text(text), set()).add(label)
    return {text: found for text, found in labels.items() if len(found) > 1}


def texts_in_two_splits(dataset: TextDataset) -> dict[str, set[str]]:
    """Text (as :func:`same_text` has it) → names of the splits that hold it, where there is more than one."""
    splits: dict[str, set[str]] = {}
    for split in dataset:
        for text in split.texts:
            splits.setdefault(same_text(text), set()).add(split.name)
    return {text: found for text, found in splits.items() if len(found) > 1}


def classes_in_two_splits(dataset: TextDataset) -> dict[str, set[str]]:
    """Class → names of the splits that have it, where there is more than one."""
    splits: dict[str, set[str]] = {}
    for split in dataset:
        for name in split.classes:
            splits.setdefault(name, set()).add(split.name)
    return {name: found for name, found in splits.items() if len(found) > 1}


def drop_conflicts(dataset: TextDataset) -> TextDataset:
    """Without any copy of a text that carries two labels in a split or that stands in two splits."""
    spoilt = set(texts_in_two_splits(dataset)).union(*(texts_with_two_labels(split) for split in dataset))
    return _kept(dataset, "conflicting", lambda split: [same_text(text) not in spoilt for text in split.texts])


def drop_duplicates(dataset: TextDataset) -> TextDataset:
    """With the first copy only of every text and label in a split."""

    def first(split: Split) -> list[bool]:
        seen: set[tuple[str, str]] = set()
        keep = []
        for text, label in zip(split.texts, split.labels, strict=True):
            key = (same_text(text), label)
            keep.append(key not in seen)
            seen.add(key)
        return keep

    return _kept(dataset, "duplicate", first)


def drop_small_classes(dataset: TextDataset, at_least: int) -> TextDataset:
    """Without the classes that have fewer than ``at_least`` texts in their split."""
    splits = {}
    for split in dataset:
        small = {name for name, size in split.sizes.items() if size < at_least}
        if small:
            logger.warning(
                "%s, %s: left out %d classes with fewer than %d texts: %s",
                dataset.name,
                split.name,
                len(small),
                at_least,
                ", ".join(sorted(small)),
            )
        kept = _filtered(split, [label not in small for label in split.labels])
        splits[split.name] = replace(kept, classes=tuple(name for name in split.classes if name not in small))
    return replace(dataset, splits=splits)


# What a config may ask to leave out of a finished data set, by name ("empty" is a matter of reading).
_DROPS: dict[str, Callable[[TextDataset], TextDataset]] = {
    "conflicts": drop_conflicts,
    "duplicates": drop_duplicates,
}
DROPPABLE = ("empty", *_DROPS)


def dropped(dataset: TextDataset, what: Iterable[str]) -> TextDataset:
    """Without the texts of the kinds named in ``what`` (:data:`DROPPABLE`). :class:`DataError` for other names."""
    wanted = list(what)
    for name in wanted:
        if name not in DROPPABLE:
            raise DataError(
                f"drop: {name!r} is unknown; expected some of {', '.join(DROPPABLE)}." + did_you_mean(name, DROPPABLE)
            )
    # Conflicts first whatever the order asked for: a duplicate may be one half of a conflict.
    for name, drop in _DROPS.items():
        if name in wanted:
            dataset = drop(dataset)
    return dataset


def _kept(dataset: TextDataset, kind: str, choose: Callable[[Split], list[bool]]) -> TextDataset:
    splits = {split.name: _filtered(split, choose(split)) for split in dataset}
    gone = sum(len(split) for split in dataset) - sum(map(len, splits.values()))
    if gone:
        logger.info("%s: left out %d %s texts", dataset.name, gone, kind)
    return replace(dataset, splits=splits)


def _filtered(split: Split, keep: list[bool]) -> Split:
    pairs = [pair for pair, kept in zip(zip(split.texts, split.labels, strict=True), keep, strict=True) if kept]
    return replace(split, texts=tuple(text for text, _ in pairs), labels=tuple(label for _, label in pairs))
