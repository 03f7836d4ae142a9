"""A folder in this package's own layout: texts in ``train/valid/test.jsonl``, ``splits.json``, ``labels.json``."""

from __future__ import annotations

from pathlib import Path

from openprompt_meta.data.dataset import SPLIT_NAMES
from openprompt_meta.data.label_words import read_label_words
from openprompt_meta.data.readers.records import RecordBuilder, Records
from openprompt_meta.data.readers.tables import add_table
from openprompt_meta.data.splits import read_class_splits
from openprompt_meta.errors import DataError

__all__ = ["is_layout", "read_layout"]


def is_layout(path: Path) -> bool:
    """Whether the folder has what sets this layout apart from any folder of tables."""
    return (path / "train.jsonl").is_file() and (path / "splits.json").is_file()


def read_layout(path: Path, *, drop_empty: bool = False) -> Records:
    """Texts and splits as the files have them; ``splits.json`` and ``labels.json`` if they are there.

    Whether the class lists agree with the files is not decided here: ``data check`` reports it, loading refuses it.
    """
    if not (path / "train.jsonl").is_file():
        raise DataError(f"{path} has no train.jsonl. A data folder holds train.jsonl, valid.jsonl and test.jsonl.")
    builder = RecordBuilder(drop_empty=drop_empty)
    for split in SPLIT_NAMES:
        file = path / f"{split}.jsonl"
        if file.is_file():
            add_table(builder, file, text_column="text", label_column="label", part=split)
    lists = read_class_splits(path / "splits.json") if (path / "splits.json").is_file() else {}
    words = read_label_words(path / "labels.json") if (path / "labels.json").is_file() else {}
    return builder.build(path.resolve().name, str(path), lists=lists, label_words=words)
