"""Several data sets as one to learn from, without what any of them holds out, and so many texts of a class at most."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

from openprompt_meta.data.checks import same_text
from openprompt_meta.data.classes import words_of_class_name
from openprompt_meta.data.dataset import SPLIT_NAMES, Split, TextDataset
from openprompt_meta.data.episodes import seeded_sample
from openprompt_meta.errors import DataError

logger = logging.getLogger(__name__)


def with_at_most(dataset: TextDataset, most: int, seed: int = 0) -> TextDataset:
    """The data set with so many texts of a class at most, drawn by the seed."""
    splits = {}
    for split in dataset:
        kept = sorted(
            place
            for name, own in split.indices.items()
            for place in seeded_sample(own, min(len(own), most), "at most", seed, split.name, name)
        )
        texts, labels = (tuple(values[place] for place in kept) for values in (split.texts, split.labels))
        splits[split.name] = replace(split, texts=texts, labels=labels)
    return replace(dataset, splits=splits)


def mixture_of(
    datasets: Sequence[TextDataset], evenly: bool = True, apart_from: Sequence[TextDataset] = ()
) -> TextDataset:
    """Several data sets as one, whose tasks have classes of one of them each.

    Data sets share classes and texts, and what is trained on in one may be tested on in another. A training class is
    left out if a validation or test class of any of them has its name, or a good part of its texts; of the others,
    texts that stand there are.

    Args:
        datasets: with different names, which go before those of their classes.
        evenly: draw tasks from each as often, not by its number of texts.
        apart_from: more data sets whose validation and test splits nothing is learned from.

    Raises:
        DataError: two have the same name.
    """
    held_out = [split for dataset in (*datasets, *apart_from) for split in dataset if split.name != "train"]
    datasets = [without_held_out(dataset, held_out) for dataset in datasets]
    names = [dataset.name for dataset in datasets]
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise DataError(f"Two data sets of the mixture are called {twice[0]!r}. Rename the folder of one.")
    splits = {}
    for part in SPLIT_NAMES:
        found = [(one.name, one.splits[part]) for one in datasets if part in one.splits]
        found = [(name, split) for name, split in found if len(split.classes) > 1]
        of, own = [name for name, _ in found], [split for _, split in found]
        domains = tuple(tuple(f"{name}/{each}" for each in split.classes) for name, split in zip(of, own, strict=True))
        if own:
            splits[part] = Split(
                name=part,
                texts=tuple(text for split in own for text in split.texts),
                labels=tuple(f"{name}/{each}" for name, split in zip(of, own, strict=True) for each in split.labels),
                classes=tuple(each for classes in domains for each in classes),
                domains=domains,
                shares=tuple(1 if evenly else len(split) for split in own),
            )
    words = {f"{one.name}/{each}": given for one in datasets for each, given in one.label_words.items()}
    return TextDataset("+".join(names), splits, words, "; ".join(dataset.provenance for dataset in datasets))


_SHARED = 0.1  # of a class's texts, from which on it is taken for the same class under another name


def without_held_out(dataset: TextDataset, held_out: Sequence[Split]) -> TextDataset:
    """The data set with a training split that has no class and no text of the splits that are held out."""
    texts = {same_text(text) for split in held_out for text in split.texts}
    names = {_bare_name(name) for split in held_out for name in split.classes}
    train = dataset.train
    kept = []
    for name, places in train.indices.items():
        own = [place for place in places if same_text(train.texts[place]) not in texts]
        same = _bare_name(name) in names or len(places) - len(own) > _SHARED * len(places)
        if not same:
            kept += own
    kept.sort()
    labels = tuple(train.labels[place] for place in kept)
    present = set(labels)
    classes = tuple(name for name in train.classes if name in present)
    if len(kept) < len(train):
        logger.info(
            "%s: %d training classes and %d texts are left out: they are held out in this or another data set",
            dataset.name,
            len(train.classes) - len(classes),
            len(train) - len(kept),
        )
    apart = Split("train", tuple(train.texts[place] for place in kept), labels, classes)
    return replace(dataset, splits={**dataset.splits, "train": apart})


def _bare_name(name: str) -> tuple[str, ...]:
    """The words of a class name without the group that some data sets put before it: ``iot/wemo_off``."""
    return tuple(sorted(words_of_class_name(name.rpartition("/")[2])))
