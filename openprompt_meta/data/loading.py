"""From what a user writes, a name or a path, to a data set that is ready for episodes."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from openprompt_meta.components import readers
from openprompt_meta.config.schema import KNOWN_DATASETS, DatasetSection
from openprompt_meta.data.checks import (
    classes_in_two_splits,
    drop_small_classes,
    dropped,
    texts_in_two_splits,
    texts_with_two_labels,
)
from openprompt_meta.data.classes import (
    ClassSplit,
    label_words_from,
    random_class_split,
    read_class_splits,
    read_label_words,
    resolve_label_words,
)
from openprompt_meta.data.dataset import SPLIT_NAMES, Split, TextDataset
from openprompt_meta.data.facts import facts_of
from openprompt_meta.data.mixtures import mixture_of, with_at_most
from openprompt_meta.data.readers.files import DEMO, TABLE_SUFFIXES
from openprompt_meta.data.readers.records import Records, Source
from openprompt_meta.errors import DataError, did_you_mean

logger = logging.getLogger(__name__)

SplitChoice = str | Path | ClassSplit
WordChoice = str | Path | Mapping[str, str | Sequence[str]] | None

# What counts are called in a run's configuration, for messages.
_COUNTS_KEY = "dataset.split_counts with splits: random in a YAML"


def load(
    source: str | Path | Records,
    *,
    split: SplitChoice = "default",
    counts: Sequence[int] | None = None,
    seed: int = 0,
    fold: int = 0,
    label_words: WordChoice = None,
    drop: Sequence[str] = (),
    min_samples: int = 0,
    max_samples: int | None = None,
) -> TextDataset:
    """A data set that is ready for episodes.

    Args:
        source: a name or a path, see :func:`read_records`; or what that, or a reader, gave, for example
            ``read_examples(AgnewsProcessor(), "datasets/agnews")``.
        split: which classes go where. ``default``: as the source's files have it, else the authors' lists. ``authors``
            and ``distributional_signatures``: the shipped lists of a known set. ``random``: ``counts`` classes drawn
            from ``seed``. Any other list of the source's ``splits.json``, the path of a JSON file, or a
            :class:`ClassSplit`.
        counts: classes for train, valid and test, for ``random``.
        seed: of ``random``.
        fold: number of the ``random`` split, for several independent ones of a seed.
        label_words: a mapping or a JSON or YAML file that overrides words class by class; ``"shipped"`` passes over
            the words that lie beside the data. Without it: the source's, the shipped ones, the class's own name.
        drop: kinds of text to leave out: ``empty`` (while reading); ``conflicts`` (in two splits, or with two labels
            in one); ``duplicates``.
        min_samples: leave out classes with fewer texts than this.
        max_samples: keep this many texts of a class at most, drawn by ``seed``.

    Raises:
        DataError: if anything is missing or malformed, or a class is in two splits.
    """
    records = source
    if not isinstance(records, Records):
        records = read_records(Source(where=records, drop_empty="empty" in drop))
    dataset = choose_splits(records, split, counts=counts, seed=seed, fold=fold)
    _require_sound_classes(dataset, records, as_files=split == "default")
    dataset = with_label_words(dataset, *word_sources(records, label_words))
    dataset = dropped(dataset, drop)
    if min_samples > 0:
        dataset = drop_small_classes(dataset, min_samples)
    if max_samples is not None:
        dataset = with_at_most(dataset, max_samples, seed)
    _warn_of_conflicts(dataset)
    return dataset


def open_dataset(section: DatasetSection) -> TextDataset:
    """Read, split and check the data of a ``dataset`` section. :class:`DataError` if that cannot be done."""
    if section.mixture:
        parts, others = (
            [load(where, drop=section.drop, min_samples=section.min_samples) for where in names]
            for names in (section.mixture, section.apart_from)
        )
        mixed = mixture_of(parts, section.draw == "evenly", others)  # before less is kept: what is held out is all
        most = section.max_samples
        return mixed if most is None else with_at_most(mixed, most, section.split_seed)
    source = Source(
        where=section.path or section.name,
        name=section.name,
        text_column=section.text_column,
        label_column=section.label_column,
        config=section.hub_config,
        drop_empty="empty" in section.drop,
    )
    return load(
        read_records(source, format=section.format),
        split=section.splits,
        counts=section.split_counts,
        seed=section.split_seed,
        fold=section.split_fold,
        label_words=section.label_words,
        drop=section.drop,
        min_samples=section.min_samples,
        max_samples=section.max_samples,
    )


def choose_splits(
    records: Records,
    split: SplitChoice = "default",
    *,
    counts: Sequence[int] | None = None,
    seed: int = 0,
    fold: int = 0,
) -> TextDataset:
    """The texts under the chosen class split, without label words. :class:`DataError` if it cannot be had."""
    if isinstance(split, ClassSplit):
        return by_class(records, split, "own class lists")
    if split == "random":
        if counts is None:
            raise DataError(
                f"A random split needs counts ({_COUNTS_KEY}), the numbers of classes for train, valid and test; "
                f"{records.name} has {len(records.classes)} classes."
            )
        lists = random_class_split(records.classes, counts, seed=seed, fold=fold)
        return by_class(records, lists, f"random class split, seed {seed}, fold {fold}")
    if split == "default" and records.parts and set(records.parts) <= set(SPLIT_NAMES):
        return as_found(records)
    offered = _offered(records)
    if split == "default" and "default" not in offered and "authors" in offered:
        split = "authors"
    if split in offered:
        return by_class(records, offered[str(split)], f"{split} class lists")
    if Path(split).suffix == ".json":
        read_lists = read_class_splits(Path(split))
        if "default" not in read_lists:
            raise DataError(f"{split} has the class lists {', '.join(read_lists)}, but none called default.")
        return by_class(records, read_lists["default"], f"class lists of {split}")
    if split == "default":
        raise DataError(
            f"{records.provenance} does not say which classes are for train, valid and test "
            f"(it has {len(records.classes)} classes). Use a random split with counts ({_COUNTS_KEY}), or a JSON "
            "file of the lists."
        )
    options = [*offered, "default", "random"]
    raise DataError(
        f"split: {str(split)!r} is not known for {records.name}; expected {', '.join(dict.fromkeys(options))} or the "
        f"path of a JSON file." + did_you_mean(str(split), options)
    )


def as_found(records: Records) -> TextDataset:
    """The splits in which the texts were found; texts without one form a split ``all``. Classes may overlap."""
    listed = dict(records.lists["default"].items()) if "default" in records.lists else {}
    grouped: dict[str, list[int]] = {}
    for position, part in enumerate(records.parts):
        grouped.setdefault(part or "all", []).append(position)
    splits = {}
    for part in sorted(grouped, key=[*SPLIT_NAMES, "all"].index):
        present = dict.fromkeys(records.labels[position] for position in grouped[part])
        ordered = [name for name in listed.get(part, ()) if name in present]
        classes = tuple(dict.fromkeys([*ordered, *present]))
        splits[part] = _split(records, part, grouped[part], classes)
    return TextDataset(records.name, splits, provenance=f"{records.provenance}, splits as found")


def by_class(records: Records, lists: ClassSplit, origin: str) -> TextDataset:
    """The texts under ``lists``, wherever they were found. Classes that no list has are left out, with a log line.

    :class:`DataError` if a listed class has no texts.
    """
    present = set(records.labels)
    missing = [name for name in lists.classes if name not in present]
    if missing:
        raise DataError(
            f"{len(missing)} classes of the {origin} have no text in {records.provenance}: "
            f"{', '.join(map(repr, missing[:8]))}." + did_you_mean(missing[0], present)
        )
    unused = present - set(lists.classes)
    if unused:
        logger.info("%s: %d classes are in no list and left out: %s", origin, len(unused), ", ".join(sorted(unused)))
    splits = {}
    for part, classes in lists.items():
        wanted = set(classes)
        chosen = [position for position, label in enumerate(records.labels) if label in wanted]
        if classes:
            splits[part] = _split(records, part, chosen, classes)
    return TextDataset(records.name, splits, provenance=f"{records.provenance}, {origin}")


def mismatches(records: Records) -> list[str]:
    """How the files of a source differ from its own class lists, a sentence each."""
    if "default" not in records.lists:
        return []
    home = {name: part for part, classes in records.lists["default"].items() for name in classes}
    found = dict.fromkeys(zip(records.labels, records.parts, strict=True))
    strays = [
        f"class {label!r} is in {part}.jsonl but " + (f"listed under {home[label]}" if label in home else "in no list")
        for label, part in found
        if home.get(label) != part
    ]
    present = set(records.labels)
    return strays + [
        f"class {name!r} is listed under {part} but has no text" for name, part in home.items() if name not in present
    ]


def word_sources(records: Records, choice: WordChoice = None) -> list[tuple[str, Mapping[str, tuple[str, ...]]]]:
    """Where label words may come from, best first, each with its name for the log."""
    sources: list[tuple[str, Mapping[str, tuple[str, ...]]]] = []
    if choice is not None and choice != "shipped":
        if isinstance(choice, Mapping):
            origin, words = "the configuration", label_words_from(choice, "label_words")
        else:
            origin, words = str(choice), read_label_words(Path(choice))
        unknown = [name for name in words if name not in records.classes]
        if unknown:
            raise DataError(
                f"Label words from {origin} are given for {unknown[0]!r}, which is no class of the data."
                + did_you_mean(unknown[0], records.classes)
            )
        sources.append((origin, words))
    if choice != "shipped":
        sources.append((f"the folder of {records.name}", records.label_words))
    if records.name in KNOWN_DATASETS:
        sources.append(("the shipped lists", facts_of(records.name).label_words))
    return sources


def with_label_words(dataset: TextDataset, *sources: tuple[str, Mapping[str, tuple[str, ...]]]) -> TextDataset:
    """The data set with words for all its classes, see :func:`resolve_label_words`."""
    return replace(dataset, label_words=resolve_label_words(dataset.classes, *sources))


def _offered(records: Records) -> dict[str, ClassSplit]:
    """Class lists by name: the shipped ones of a known set, and the source's own."""
    shipped = facts_of(records.name).splits if records.name in KNOWN_DATASETS else {}
    return {**shipped, **records.lists}


def _split(records: Records, name: str, positions: Sequence[int], classes: tuple[str, ...]) -> Split:
    return Split(
        name=name,
        texts=tuple(records.texts[position] for position in positions),
        labels=tuple(records.labels[position] for position in positions),
        classes=classes,
    )


def _require_sound_classes(dataset: TextDataset, records: Records, *, as_files: bool) -> None:
    shared = classes_in_two_splits(dataset)
    if shared:
        name, where = next(iter(shared.items()))
        raise DataError(
            f"{len(shared)} classes of {dataset.name} are in two splits ({name!r} in {', '.join(sorted(where))}): "
            f"a test on classes that were trained on says nothing about new ones. Use a random split with counts "
            f"({_COUNTS_KEY}), or a "
            f"JSON file of class lists."
        )
    differences = mismatches(records) if as_files else []
    if differences:
        raise DataError(
            f"{dataset.name}: splits.json and the files disagree: {'; '.join(differences[:5])}. "
            f"Fix splits.json or the files."
        )


def _warn_of_conflicts(dataset: TextDataset) -> None:
    crossing = len(texts_in_two_splits(dataset))
    doubtful = sum(len(texts_with_two_labels(split)) for split in dataset)
    if crossing or doubtful:
        logger.warning(
            "%s: %d texts are in two splits and %d carry two labels; leave them out with drop: [conflicts]",
            dataset.name,
            crossing,
            doubtful,
        )


# -- from a name or a path to the reader that understands it ----------------------------------------------------------

_HUB = "hf:"


def read_records(source: str | Path | Source, *, format: str = "auto", root: str | Path = "data") -> Records:
    """The labelled texts of a source.

    Args:
        source: ``"demo"``; a folder or file; the name of one of the six sets, looked for in ``root``; or
            ``"hf:NAME"`` for a data set of the Hugging Face hub. A :class:`Source` says more, such as the columns.
        format: ``auto``, which looks at the files, or the name of a declared reader.
        root: where named data sets lie, as ``root/NAME`` or ``root/NAME.json``.

    Raises:
        DataError: with file and line, if the source is missing or anything in it is wrong.
    """
    known = ("auto", *readers())
    if format not in known:
        raise DataError(
            f"Unknown format {format!r}; expected one of {', '.join(known)}." + did_you_mean(format, known)
        )
    asked = source if isinstance(source, Source) else Source(where=source)
    where = asked.where
    if isinstance(where, str) and where.startswith(_HUB):
        where, format = where.removeprefix(_HUB), "huggingface"
    elif format == "auto" or not readers()[format].by_name:
        where = _path_of(where, Path(root))
        format = _format_of(where) if format == "auto" else format
    records: Records = readers()[format].load()(replace(asked, where=where))
    return records


def _path_of(source: str | Path, root: Path) -> Path:
    # Only the bare word: "./demo" is a folder of the user's.
    if source == "demo":
        return DEMO
    path = Path(source)
    # The authors' file of a set lies beside where its folder would, as data/hwu64.json beside data/hwu64.
    candidates = [path, Path(f"{path}.json"), root / path, root / f"{path}.json"]
    for candidate in candidates:
        if _exists(candidate):
            return candidate
    if path.name in KNOWN_DATASETS:
        folder = root if path.parent == Path() else path.parent
        raise DataError(
            f"The data set {path.name!r} is not in {folder}. Fetch it with `openprompt-meta data download {path.name} "
            f"--to {folder}`, or give the path of its folder or file."
        )
    raise DataError(
        f"There is no data at {path}. Give a folder, a file ({', '.join(TABLE_SUFFIXES)}), 'demo', one of "
        f"{', '.join(KNOWN_DATASETS)}, or 'hf:NAME' for the Hugging Face hub."
        + did_you_mean(str(source), ("demo", *KNOWN_DATASETS))
    )


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError) as error:  # a name that is too long or holds a zero byte, a folder that is closed
        raise DataError(f"{str(path)[:200]!r} cannot be looked at: {error}.") from None


def _format_of(path: Path) -> str:
    for reader in readers().values():
        if reader.recognises is not None and reader.recognises(path):
            return reader.name
    return "table"  # whose reader says what is wrong with anything else
