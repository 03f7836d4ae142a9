"""Which classes are for meta-training, validation and test: from a file, from the shipped lists, or at random."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from openprompt_meta.data.dataset import SPLIT_NAMES
from openprompt_meta.data.episodes import seeded_sample
from openprompt_meta.errors import DataError, did_you_mean
from openprompt_meta.json_files import read_json

__all__ = ["ClassSplit", "class_split_from", "random_class_split", "read_class_splits"]


@dataclass(frozen=True)
class ClassSplit:
    """Three lists of classes with no class in common. ``valid`` and ``test`` may be empty."""

    train: tuple[str, ...]
    valid: tuple[str, ...] = ()
    test: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        seen: dict[str, str] = {}
        for split, classes in self.items():
            for name in classes:
                if name in seen:
                    raise DataError(
                        f"Class {name!r} is listed under {seen[name]} and under {split}; splits by class share none. "
                        f"Take it out of one of the lists."
                    )
                seen[name] = split

    def items(self) -> tuple[tuple[str, tuple[str, ...]], ...]:
        """``(split name, classes)`` for train, valid and test."""
        return (("train", self.train), ("valid", self.valid), ("test", self.test))

    @property
    def classes(self) -> tuple[str, ...]:
        """All classes: train, valid, test."""
        return self.train + self.valid + self.test


def random_class_split(classes: Iterable[str], counts: Sequence[int], *, seed: int, fold: int = 0) -> ClassSplit:
    """``counts = (train, valid, test)`` classes drawn at random; ``fold`` numbers the independent draws of a seed.

    The draw depends on the set of classes, not on their order. :class:`DataError` if the counts ask for more classes
    than there are.
    """
    names = sorted(set(classes))
    if len(counts) != len(SPLIT_NAMES) or min(counts) < 0 or counts[0] < 1:
        raise DataError(
            f"counts is {list(counts)}; three numbers are expected, classes for train, valid and test, "
            f"at least one for train."
        )
    if sum(counts) > len(names):
        raise DataError(
            f"{counts[0]} + {counts[1]} + {counts[2]} = {sum(counts)} classes were asked for, but the data has "
            f"{len(names)}. Lower the counts."
        )
    drawn = seeded_sample(names, sum(counts), "class split", seed, fold)
    train, valid = counts[0], counts[0] + counts[1]
    return ClassSplit(tuple(drawn[:train]), tuple(drawn[train:valid]), tuple(drawn[valid:]))


def class_split_from(lists: object, where: str) -> ClassSplit:
    """A split from parsed JSON, ``{"train": [...], "valid": [...], "test": [...]}``. :class:`DataError` otherwise."""
    if not isinstance(lists, dict):
        raise DataError(f"{where}: expected an object with train, valid and test, found {type(lists).__name__}.")
    unknown = [key for key in lists if key not in SPLIT_NAMES]
    if unknown:
        raise DataError(
            f"{where}: unknown split {unknown[0]!r}; expected train, valid and test."
            + did_you_mean(str(unknown[0]), SPLIT_NAMES)
        )
    for key, classes in lists.items():
        if not isinstance(classes, list) or not all(isinstance(name, str) for name in classes):
            raise DataError(f"{where}: {key} has to be a list of class names (strings), found {classes!r:.80}.")
    if not lists.get("train"):
        raise DataError(f"{where}: the list of train classes is missing or empty.")
    try:
        return ClassSplit(**{key: tuple(classes) for key, classes in lists.items()})
    except DataError as error:
        raise DataError(f"{where}: {error}") from None


def read_class_splits(path: Path) -> dict[str, ClassSplit]:
    """The class splits of a JSON file by name: either one split, then called ``default``, or an object of several.

    A key ``label_ids`` is passed over. :class:`DataError` on anything else that is not a class split.
    """
    try:
        content = read_json(path)
    except FileNotFoundError:
        raise DataError(f"There is no split file {path}. Give a JSON file with train, valid and test.") from None
    if not isinstance(content, dict):
        raise DataError(f"{path}: expected an object with train, valid and test, found {type(content).__name__}.")
    if any(isinstance(value, list) for value in content.values()):
        return {"default": class_split_from(content, str(path))}
    return {
        name: class_split_from(lists, f"{path}, {name!r}") for name, lists in content.items() if name != "label_ids"
    }
