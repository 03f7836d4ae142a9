"""What readers take and give: a source; labelled texts in order, and the splits they were found under, if any."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from openprompt_meta.data.classes import ClassSplit
from openprompt_meta.errors import DataError, did_you_mean

logger = logging.getLogger(__name__)

# Class names by number: a list, or a mapping where the numbers have gaps.
ClassNames = Sequence[str] | Mapping[int, str]

_ALIASES = {
    "train": ("train", "training", "meta_train"),
    "valid": ("valid", "validation", "val", "dev", "meta_valid", "meta_val"),
    "test": ("test", "testing", "meta_test"),
}
_SPLIT_NAMES = {alias: name for name, aliases in _ALIASES.items() for alias in aliases}


@dataclass(frozen=True, kw_only=True)
class Source:
    """What a reader is asked for.

    Attributes:
        where: a folder or a file, or a name on a hub.
        name: what the data set is to be called; by default the reader's own choice.
        text_column: where a table has its texts.
        label_column: where it has its class names.
        class_names: names for integer labels.
        config: the configuration of a Hugging Face data set.
        revision: its commit.
        drop_empty: pass over empty texts instead of refusing them.
    """

    where: str | Path
    name: str | None = None
    text_column: str = "text"
    label_column: str = "label"
    class_names: ClassNames | None = None
    config: str | None = None
    revision: str | None = None
    drop_empty: bool = False

    @property
    def path(self) -> Path:
        """The folder or file."""
        return Path(self.where)


@dataclass(frozen=True)
class Records:
    """Texts as a source has them. ``parts[i]`` is the split in which text ``i`` was found, or ``None``.

    ``lists`` holds the class lists that came with the source, by name (``default`` is what its files follow), and
    ``label_words`` the words that did.
    """

    name: str
    provenance: str
    texts: tuple[str, ...] = field(repr=False)
    labels: tuple[str, ...] = field(repr=False)
    parts: tuple[str | None, ...] = field(repr=False)
    lists: Mapping[str, ClassSplit] = field(default_factory=dict)
    label_words: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def classes(self) -> tuple[str, ...]:
        """All classes in order of first appearance."""
        return tuple(dict.fromkeys(self.labels))


def split_name_of(name: str) -> str | None:
    """``train``, ``valid`` or ``test`` for the names that people give them (``dev`` …), else ``None``."""
    return _SPLIT_NAMES.get(name.lower().replace("-", "_"))


def column_of(column: str, columns: Sequence[str], where: str, option: str) -> str:
    """``column`` if it is there. :class:`DataError` that names the columns and the option to set otherwise."""
    if column not in columns:
        raise DataError(
            f"{where}: there is no column {column!r}; the columns are {', '.join(map(repr, columns)) or 'none'}. "
            f"Name the right one with {option}." + did_you_mean(column, columns)
        )
    return column


class RecordBuilder:
    """Collects rows and refuses those that are not a text with a class name. One set of rules for all readers.

    An integer label is looked up in ``class_names`` if given. A text of nothing but white space is refused, or passed
    over if ``drop_empty``. Texts are otherwise kept as they are, entities such as ``&lt;`` included.
    """

    def __init__(self, *, class_names: ClassNames | None = None, drop_empty: bool = False) -> None:
        self._class_names = class_names
        self._drop_empty = drop_empty
        self._texts: list[str] = []
        self._labels: list[str] = []
        self._parts: list[str | None] = []
        self._dropped = 0

    def add(self, text: object, label: object, where: str, part: str | None = None) -> None:
        """Take one row. ``where`` tells a reader of an error message which: file and line, or split and row."""
        if not isinstance(text, str):
            raise DataError(f"{where}: the text is {_shown(text)}; a string is expected.")
        _require_unicode(text, "text", where)
        name = self._class_name(label, where)
        if not text.strip():
            if not self._drop_empty:
                raise DataError(
                    f"{where}: the text is empty. Remove the row, or leave out all such rows with drop: [empty]."
                )
            self._dropped += 1
            return
        self._texts.append(text)
        self._labels.append(name)
        self._parts.append(part)

    def build(
        self,
        name: str,
        provenance: str,
        *,
        lists: Mapping[str, ClassSplit] | None = None,
        label_words: Mapping[str, tuple[str, ...]] | None = None,
    ) -> Records:
        """The rows taken so far. :class:`DataError` if there are none."""
        if self._dropped:
            logger.warning("%s: left out %d empty texts", provenance, self._dropped)
        if not self._texts:
            raise DataError(f"{provenance}: no texts were found. Check the path and the format.")
        return Records(
            name=name,
            provenance=provenance,
            texts=tuple(self._texts),
            labels=tuple(self._labels),
            parts=tuple(self._parts),
            lists=lists or {},
            label_words=label_words or {},
        )

    def _class_name(self, label: object, where: str) -> str:
        # bool is an int in Python, but a class called True is nobody's intention.
        if isinstance(label, int) and not isinstance(label, bool) and self._class_names is not None:
            names = self._class_names
            known = range(len(names)) if isinstance(names, Sequence) else names
            if label not in known:
                raise DataError(
                    f"{where}: label {label} has no class name; {len(names)} names are known, numbered from 0. "
                    f"Check that the file belongs to this data set."
                )
            return names[label]
        if not isinstance(label, str):
            remedy = " Give their names with class_names." if isinstance(label, int) else ""
            raise DataError(f"{where}: the label is {_shown(label)}; a class name (a string) is expected.{remedy}")
        _require_unicode(label, "label", where)
        if not label.strip():
            raise DataError(f"{where}: the label is empty. Give the text a class name or remove the row.")
        return label


def _require_unicode(value: str, what: str, where: str) -> None:
    # JSON can say half a character (\\ud800), which no tokenizer takes and no file can hold.
    try:
        value.encode("utf-8")
    except UnicodeEncodeError as error:
        raise DataError(
            f"{where}: the {what} holds half a character ({value[error.start]!a}) at position {error.start}. "
            "Write it as UTF-8 again, or remove the row."
        ) from None


def _shown(value: object) -> str:
    return "missing" if value is None else f"{value!r:.60} ({type(value).__name__})"
