"""Texts that would spoil an evaluation: finding them, reporting them and, on request, leaving them out."""

from __future__ import annotations

import logging
import statistics
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import compress

from openprompt_meta.data.classes import telling_words
from openprompt_meta.data.dataset import Split, TextDataset
from openprompt_meta.errors import DataError, did_you_mean

logger = logging.getLogger(__name__)


def same_text(text: str) -> str:
    """What two texts have in common if a model can hardly tell them apart: all but letter case and white space."""
    return " ".join(text.casefold().split())


def texts_with_two_labels(split: Split) -> dict[str, set[str]]:
    """Text (as :func:`same_text` has it) → its labels, for the texts of a split that carry more than one."""
    return _shared(zip(map(same_text, split.texts), split.labels, strict=True))


def texts_in_two_splits(dataset: TextDataset) -> dict[str, set[str]]:
    """Text (as :func:`same_text` has it) → names of the splits that hold it, where there is more than one."""
    return _shared((same_text(text), split.name) for split in dataset for text in split.texts)


def classes_in_two_splits(dataset: TextDataset) -> dict[str, set[str]]:
    """Class → names of the splits that have it, where there is more than one."""
    return _shared((name, split.name) for split in dataset for name in split.classes)


def _shared(pairs: Iterable[tuple[str, str]]) -> dict[str, set[str]]:
    """What stands in pairs with more than one owner → its owners."""
    owners: dict[str, set[str]] = {}
    for what, owner in pairs:
        owners.setdefault(what, set()).add(owner)
    return {what: found for what, found in owners.items() if len(found) > 1}


def drop_conflicts(dataset: TextDataset) -> TextDataset:
    """Without any copy of a text that carries two labels in a split or that stands in two splits."""
    spoilt = set(texts_in_two_splits(dataset)).union(*(texts_with_two_labels(split) for split in dataset))
    return _kept(dataset, "conflicting", lambda split: [same_text(text) not in spoilt for text in split.texts])


def drop_duplicates(dataset: TextDataset) -> TextDataset:
    """With the first copy only of every text and label in a split."""
    return _kept(dataset, "duplicate", _is_first_copy)


def drop_small_classes(dataset: TextDataset, at_least: int) -> TextDataset:
    """Without the classes that have fewer than ``at_least`` texts in their split."""
    splits = {}
    for split in dataset:
        small = {name for name, size in split.sizes.items() if size < at_least}
        if small:
            where, listed = f"{dataset.name}, {split.name}", ", ".join(sorted(small))
            logger.warning("%s: left out %d classes with fewer than %d texts: %s", where, len(small), at_least, listed)
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
    return replace(split, texts=tuple(compress(split.texts, keep)), labels=tuple(compress(split.labels, keep)))


def _is_first_copy(split: Split) -> list[bool]:
    """For each text whether no earlier one of its label is the same."""
    seen: set[tuple[str, str]] = set()
    first = []
    for key in zip(map(same_text, split.texts), split.labels, strict=True):
        first.append(key not in seen)
        seen.add(key)
    return first


# -- checks -----------------------------------------------------------------------------------------------------------
# Looking a data set over before an evaluation: sizes, duplicates, overlap, label words.
#
# Errors are what makes a result wrong or impossible: a class or a text in two splits (the test is then not on unseen
# data), a text with two labels in one split (no answer is right), a class or split too small for the episodes asked
# for, files that contradict their own class lists. Warnings are what a reader of the result should know: duplicates
# within a class, label words that are missing (then taken from the class's name) or that two classes share.

ERRORS = {
    "class-overlap": "classes in more than one split",
    "list-mismatch": "differences between splits.json and the files",
    "text-in-two-splits": "texts in more than one split",
    "text-with-two-labels": "texts with more than one label in a split",
    "class-too-small": "classes with too few texts for the episodes",
    "too-few-classes": "splits with too few classes for the episodes",
}
WARNINGS = {
    "duplicates": "texts that repeat an earlier one of their class",
    "label-words-missing": "classes without label words but those of their name",
    "label-words-shared": "label words of more than one class",
}
# Of a file of examples to fit a classifier to, where classes may have one example and names count as more.
EXAMPLE_WARNINGS = {
    "one-example": "classes with one example, on which no accuracy can be estimated",
    "silent-name": "class names that say nothing, so that examples alone count",
}


@dataclass(frozen=True)
class SplitRow:
    """The figures of one split. ``words`` are separated by white space."""

    split: str
    classes: int
    samples: int
    fewest: int
    most: int
    words_mean: float
    words_deviation: float
    duplicates: int
    two_labels: int
    in_other_splits: int


@dataclass(frozen=True)
class Finding:
    """One kind of flaw: how many cases, and the first few in words. An allowed error does not fail the check."""

    code: str
    level: str
    count: int
    examples: tuple[str, ...]
    allowed: bool = False

    @property
    def message(self) -> str:
        """``texts with more than one label in a split: 11``."""
        return f"{({**ERRORS, **WARNINGS, **EXAMPLE_WARNINGS})[self.code]}: {self.count}"


@dataclass(frozen=True)
class CheckReport:
    """Figures a split and findings, errors first."""

    name: str
    provenance: str
    rows: tuple[SplitRow, ...]
    findings: tuple[Finding, ...]

    @property
    def passed(self) -> bool:
        """Whether there is no error but allowed ones."""
        return all(finding.level == "warning" or finding.allowed for finding in self.findings)

    def as_dict(self) -> dict[str, object]:
        """For ``--json``."""
        findings = [{**asdict(finding), "message": finding.message} for finding in self.findings]
        return {**asdict(self), "findings": findings, "passed": self.passed}


def check(
    dataset: TextDataset,
    *,
    ways: int = 5,
    shots: int = 5,
    queries: int = 15,
    mismatches: Sequence[str] = (),
    named: Collection[str] | None = None,
    allow: Iterable[str] = (),
) -> CheckReport:
    """Everything that is to be said about ``dataset`` for episodes of that size.

    ``mismatches`` are differences between files and class lists (only the reader's records tell them); ``named`` are
    the classes for which somebody chose label words (all, if not given); ``allow`` are codes of :data:`ERRORS` that
    the caller accepts. :class:`DataError` for an unknown code.
    """
    allowed = set(allow)
    for code in allowed:
        if code not in ERRORS:
            raise DataError(
                f"allow: {code!r} is no kind of error; expected some of {', '.join(ERRORS)}."
                + did_you_mean(code, ERRORS)
            )
    crossing = texts_in_two_splits(dataset)
    words = ((same_text(word), name) for name in dataset.classes for word in dataset.label_words.get(name, ()))
    cases = {
        "class-overlap": _with_places(classes_in_two_splits(dataset)),
        "list-mismatch": list(mismatches),
        "text-in-two-splits": _with_places(crossing),
        "text-with-two-labels": [case for split in dataset for case in _with_places(texts_with_two_labels(split))],
        "class-too-small": [
            f"{split.name}: {name} has {size} of {shots + queries}"
            for split in dataset
            for name, size in split.sizes.items()
            if size < shots + queries
        ],
        "too-few-classes": [
            f"{split.name} has {len(split.classes)} of {ways}" for split in dataset if len(split.classes) < ways
        ],
        "duplicates": [f"{split.name}: {_clipped(text)}" for split in dataset for text in _duplicates(split)],
        "label-words-missing": [] if named is None else [name for name in dataset.classes if name not in named],
        "label-words-shared": _with_places(_shared(words)),
    }
    rows = tuple(_row(split, crossing) for split in dataset)
    return CheckReport(dataset.name, dataset.provenance, rows, _findings(cases, allowed))


def check_examples(examples: Split, name: str, provenance: str, allow: Iterable[str] = ()) -> CheckReport:
    """The same for examples that a classifier is to be fitted to: what ``fit`` refuses, and what it misses."""
    cases = {
        "text-with-two-labels": _with_places(texts_with_two_labels(examples)),
        "too-few-classes": [] if len(examples.classes) > 1 else [f"{len(examples.classes)} of at least 2"],
        "duplicates": [_clipped(text) for text in _duplicates(examples)],
        "one-example": [label for label, size in examples.sizes.items() if size == 1],
        "silent-name": [label for label in examples.classes if not telling_words(label)],
    }
    return CheckReport(name, provenance, (_row(examples, ()),), _findings(cases, set(allow)))


def _findings(cases: Mapping[str, Sequence[str]], allowed: Collection[str]) -> tuple[Finding, ...]:
    return tuple(
        Finding(
            code=code,
            level="error" if code in ERRORS else "warning",
            count=len(found),
            examples=tuple(dict.fromkeys(found))[:3],
            allowed=code in allowed,
        )
        for code, found in cases.items()
        if found
    )


def _row(split: Split, crossing: Collection[str]) -> SplitRow:
    lengths = [len(text.split()) for text in split.texts]
    sizes = split.sizes.values()
    return SplitRow(
        split=split.name,
        classes=len(split.classes),
        samples=len(split),
        fewest=min(sizes, default=0),
        most=max(sizes, default=0),
        words_mean=statistics.fmean(lengths) if lengths else 0.0,
        words_deviation=statistics.pstdev(lengths) if lengths else 0.0,
        duplicates=len(_duplicates(split)),
        two_labels=len(texts_with_two_labels(split)),
        in_other_splits=len({same_text(text) for text in split.texts} & set(crossing)),
    )


def _duplicates(split: Split) -> list[str]:
    """Every copy after the first of a text with its label."""
    return [text for text, first in zip(split.texts, _is_first_copy(split), strict=True) if not first]


def _with_places(cases: Mapping[str, Collection[str]]) -> list[str]:
    return [f"{_clipped(what)} ({', '.join(sorted(places))})" for what, places in cases.items()]


def _clipped(text: str, most: int = 60) -> str:
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[: most - 1]}…"
