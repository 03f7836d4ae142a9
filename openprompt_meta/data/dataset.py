"""What a data set is: texts with class names, divided into splits that each have classes of their own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType

from openprompt_meta.errors import DataError, did_you_mean

SPLIT_NAMES = ("train", "valid", "test")


@dataclass(frozen=True)
class Split:
    """The labelled texts of one split: ``texts[i]`` belongs to the class ``labels[i]``.

    ``classes`` holds each class once, in the order of the split's list (or of first appearance). In a mixture of data
    sets ``domains`` says which classes are of one data set, and ``shares`` how often tasks are drawn from it: a task
    has classes of one of them.
    """

    name: str
    # Thousands of texts in a traceback or a log help nobody.
    texts: tuple[str, ...] = field(repr=False)
    labels: tuple[str, ...] = field(repr=False)
    classes: tuple[str, ...]
    domains: tuple[tuple[str, ...], ...] = ()
    shares: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if len(self.texts) != len(self.labels):
            raise DataError(f"Split {self.name!r} has {len(self.texts)} texts but {len(self.labels)} labels.")
        if len(set(self.classes)) != len(self.classes):
            raise DataError(f"Split {self.name!r} lists a class twice: {list(self.classes)}.")
        unknown = set(self.labels) - set(self.classes)
        if unknown:
            raise DataError(f"Split {self.name!r} has labels that are not among its classes: {sorted(unknown)}.")

    def __len__(self) -> int:
        return len(self.texts)

    @cached_property
    def indices(self) -> Mapping[str, tuple[int, ...]]:
        """Class name → positions of its texts, ascending."""
        found: dict[str, list[int]] = {name: [] for name in self.classes}
        for position, label in enumerate(self.labels):
            found[label].append(position)
        return MappingProxyType({name: tuple(positions) for name, positions in found.items()})

    @property
    def sizes(self) -> dict[str, int]:
        """Class name → number of texts."""
        return {name: len(positions) for name, positions in self.indices.items()}


@dataclass(frozen=True)
class TextDataset:
    """Splits by name, label words by class, and where both came from. Immutable.

    ``label_words`` covers every class of every split; ``provenance`` is a sentence for logs and reports.
    """

    name: str
    splits: Mapping[str, Split]
    label_words: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    provenance: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "splits", MappingProxyType(dict(self.splits)))
        object.__setattr__(self, "label_words", MappingProxyType(dict(self.label_words)))

    def __getitem__(self, split: str) -> Split:
        """The split of that name. :class:`DataError` if there is none."""
        if split not in self.splits:
            raise DataError(
                f"Data set {self.name!r} has no split {split!r}; it has {list(self.splits)}."
                + did_you_mean(split, self.splits)
            )
        return self.splits[split]

    def __iter__(self) -> Iterator[Split]:
        return iter(self.splits.values())

    @property
    def train(self) -> Split:
        """The split of meta-training classes."""
        return self["train"]

    @property
    def valid(self) -> Split:
        """The split of meta-validation classes."""
        return self["valid"]

    @property
    def test(self) -> Split:
        """The split of meta-test classes."""
        return self["test"]

    @property
    def classes(self) -> tuple[str, ...]:
        """All classes, split by split, each once."""
        return tuple(dict.fromkeys(name for split in self for name in split.classes))
