"""The authors' own files: JSON lines with ``raw`` and an integer ``label`` whose meaning the shipped facts know."""

from __future__ import annotations

from pathlib import Path

from openprompt_meta.data.facts import facts_of
from openprompt_meta.data.readers.records import RecordBuilder, Records
from openprompt_meta.data.readers.tables import add_table

__all__ = ["read_authors_file"]


def read_authors_file(path: Path, name: str | None = None, *, drop_empty: bool = False) -> Records:
    """Texts with class names, without splits. ``name`` is one of the six sets; by default the file's own name says it.

    :class:`DataError` for an unknown set and for a number that the set does not have.
    """
    facts = facts_of(name or path.stem)
    builder = RecordBuilder(class_names=facts.classes, drop_empty=drop_empty)
    add_table(builder, path, text_column="raw", label_column="label")
    return builder.build(facts.name, str(path))
