"""What is known of classes: which split each one is for, and the words that stand for it.

Both are read from a user's file, the data's own folder or the shipped lists; splits may also be drawn at random, and
the words of a class are those of its name if nobody chose others.
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from openprompt_meta.config.yaml_file import read_yaml
from openprompt_meta.data.dataset import SPLIT_NAMES
from openprompt_meta.data.episodes import seeded_sample
from openprompt_meta.errors import ConfigError, DataError, did_you_mean
from openprompt_meta.files import read_json


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


# -- label words ------------------------------------------------------------------------------------------------------

logger = logging.getLogger(__name__)

_MAX_NODES = 50_000  # words and classes in a YAML
LabelWords = dict[str, tuple[str, ...]]


def label_words_from(mapping: object, where: str) -> LabelWords:
    """Class → words, from parsed JSON or YAML: a word or a list of words a class. :class:`DataError` otherwise."""
    if not isinstance(mapping, Mapping):
        raise DataError(f"{where}: expected a mapping from class to label words, found {type(mapping).__name__}.")
    words: LabelWords = {}
    for name, value in mapping.items():
        entries = [value] if isinstance(value, str) else value
        if (
            not isinstance(name, str)
            or not isinstance(entries, list | tuple)
            or not entries
            or not all(isinstance(word, str) and word.strip() for word in entries)
        ):
            # YAML reads a bare yes, no, on, off or 5 as something else than a word.
            raise DataError(
                f"{where}: label words of {name!r} are {value!r:.80}; expected a word or a list of words "
                f"(in YAML, put yes, no, on, off and numbers into quotes)."
            )
        words[name] = tuple(word.strip() for word in entries)
    return words


def read_label_words(path: Path) -> LabelWords:
    """Class → words from a ``.json``, ``.yaml`` or ``.yml`` file. :class:`DataError` if it cannot be read as such."""
    try:
        if path.suffix.lower() == ".json":
            content = read_json(path)
        elif path.suffix.lower() in {".yaml", ".yml"}:
            content = read_yaml(path, _MAX_NODES).content
        else:
            raise DataError(f"Label words are read from .json, .yaml or .yml files, not from {path}.")
    except FileNotFoundError:
        raise DataError(f"There is no file of label words {path}.") from None
    except ConfigError as error:  # of reading YAML, which already names file and line
        raise DataError(str(error)) from None
    return label_words_from(content, str(path))


def words_of_class_name(name: str) -> tuple[str, ...]:
    """The words inside a class name in lower case: ``"alarm/setTime_now"`` → ``("alarm", "set", "time", "now")``."""
    spaced = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name)
    words = [word.lower() for word in re.findall(r"[^\W_]+", spaced)]
    return tuple(dict.fromkeys(words)) or (name,)


# Words that class names are numbered with; alone they say nothing of what is in the class.
_SAYS_NOTHING = re.compile(
    r"\d+|[a-z]|category|class|cls|cluster|group|id|intent|item|label|lbl|nan|none|null|tag|target|topic|type|unknown"
)


def telling_words(name: str) -> tuple[str, ...]:
    """The words of a class name, or none if it says nothing of the class: ``3``, ``label_a``, ``Topic 7``."""
    words = words_of_class_name(name)
    tells = any(map(str.isalpha, name)) and not all(map(_SAYS_NOTHING.fullmatch, words))
    return words if tells else ()


def text_of_words(words: Iterable[str]) -> str:
    """The words of a class as a text that an encoder can read."""
    return ", ".join(word.strip() for word in words)


def resolve_label_words(classes: Iterable[str], *sources: tuple[str, Mapping[str, tuple[str, ...]]]) -> LabelWords:
    """Words for every class, from the first of the named ``sources`` that has it, else from the class's own name."""
    found: LabelWords = {}
    used: Counter[str] = Counter()
    for name in classes:
        last_resort = ("the class's own name", {name: words_of_class_name(name)})
        origin, words = next(source for source in (*sources, last_resort) if name in source[1])
        found[name] = words[name]
        used[origin] += 1
    logger.info("label words: %s", ", ".join(f"{count} from {origin}" for origin, count in used.items()))
    return found
