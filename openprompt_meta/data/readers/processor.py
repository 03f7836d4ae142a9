"""OpenPrompt's data processors: one of its own by name, or whatever has the same two members."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from openprompt_meta.data.readers.records import RecordBuilder, Records, Source, split_name_of
from openprompt_meta.errors import DataError, did_you_mean

__all__ = ["Processor", "read_examples", "read_processor"]


class Processor(Protocol):
    """The part of ``openprompt.data_utils.data_processor.DataProcessor`` that is used."""

    labels: Sequence[Any]

    def get_examples(self, data_dir: str, split: str) -> Sequence[Any]:
        """Examples with ``text_a``, ``text_b`` and ``label``."""
        ...


def read_processor(source: Source) -> Records:
    """The examples of OpenPrompt's processor of the source's name, from the source's folder."""
    from openprompt.data_utils import PROCESSORS

    name = source.name or ""
    if name not in PROCESSORS:
        raise DataError(
            f"OpenPrompt has no data processor {name!r}.{did_you_mean(name, PROCESSORS)} "
            f"It has: {', '.join(sorted(PROCESSORS))}."
        )
    return replace(read_examples(PROCESSORS[name](), source.where, drop_empty=source.drop_empty), name=name)


def read_examples(
    processor: Processor,
    data_dir: str | Path,
    *,
    parts: Sequence[str] = ("train", "dev", "test"),
    drop_empty: bool = False,
) -> Records:
    """The examples of every part that exists; ``text_b`` follows ``text_a`` after a space.

    An example's label is a position in ``processor.labels`` or one of them. Many processors have no file for one of
    the parts: a missing file is passed over, unless all are missing.
    """
    names = [str(label) for label in processor.labels]
    builder = RecordBuilder(class_names=names, drop_empty=drop_empty)
    kind = type(processor).__name__
    missing = []
    for part in parts:
        try:
            examples = processor.get_examples(str(data_dir), part)
        except FileNotFoundError as error:
            missing.append(error)
            continue
        for number, example in enumerate(examples):
            where = f"{kind}, {data_dir}, {part}, example {number}"
            text = " ".join(filter(None, (example.text_a, getattr(example, "text_b", ""))))
            builder.add(text, _plain(example.label), where, split_name_of(part))
    if len(missing) == len(parts):
        raise DataError(f"{kind} found no file for {', '.join(parts)} in {data_dir}: {missing[0]}.")
    return builder.build(Path(data_dir).name, f"{data_dir} (through {kind})")


def _plain(label: Any) -> object:
    """A NumPy or torch scalar as a Python number; anything else as it is."""
    return label.item() if hasattr(label, "item") else label
