"""Readers: each turns one kind of source into :class:`Records`, labelled texts with the splits they were found in."""

from __future__ import annotations

from openprompt_meta.data.readers.authors import read_authors_file
from openprompt_meta.data.readers.find import FORMATS, read
from openprompt_meta.data.readers.huggingface import read_huggingface
from openprompt_meta.data.readers.layout import read_layout
from openprompt_meta.data.readers.openprompt import read_processor
from openprompt_meta.data.readers.records import Records
from openprompt_meta.data.readers.tables import read_table

__all__ = [
    "FORMATS",
    "Records",
    "read",
    "read_authors_file",
    "read_huggingface",
    "read_layout",
    "read_processor",
    "read_table",
]
