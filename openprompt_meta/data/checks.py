"""Looking a data set over before an evaluation: sizes, duplicates, overlap, label words.

Errors are what makes a result wrong or impossible: a class or a text in two splits (the test is then not on unseen
data), a text with two labels in one split (no answer is right), a class or split too small for the episodes asked for,
files that contradict their own class lists. Warnings are what a reader of the result should know: duplicates within a
class, label words that are missing (then taken from the class's name) or that two classes share.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass

from openprompt_meta.data.cleaning import (
    classes_in_two_splits,
    same_text,
    texts_in_two_splits,
    texts_with_two_labels,
)
from openprompt_meta.data.dataset import Split, TextDataset
from openprompt_meta.errors import DataError, did_you_mean

__all__ = ["ERRORS", "WARNINGS", "CheckReport", "Finding", "SplitRow", "check"]

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
        return f"{({**ERRORS, **WARNINGS})[self.code]}: {self.count}"


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
        "label-words-shared": _with_places(_shared_words(dataset)),
    }
    findings = tuple(
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
    rows = tuple(_row(split, crossing) for split in dataset)
    return CheckReport(dataset.name, dataset.provenance, rows, findings)


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
    seen = Counter[tuple[str, str]]()
    copies = []
    for text, label in zip(split.texts, split.labels, strict=True):
        key = (same_text(text), label)
        if seen[key]:
            copies.append(text)
        seen[key] += 1
    return copies


def _shared_words(dataset: TextDataset) -> dict[str, set[str]]:
    owners: dict[str, set[str]] = {}
    for name in dataset.classes:
        for word in dataset.label_words.get(name, ()):
            owners.setdefault(same_text(word), set()).add(name)
    return {word: names for word, names in owners.items() if len(names) > 1}


def _with_places(cases: Mapping[str, Collection[str]]) -> list[str]:
    return [f"{_clipped(what)} ({', '.join(sorted(places))})" for what, places in cases.items()]


def _clipped(text: str, most: int = 60) -> str:
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[: most - 1]}…"
