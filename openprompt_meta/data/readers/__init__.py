"""The readers that there are, and what each recognises. Knows no torch."""

from __future__ import annotations

from openprompt_meta.components import ReaderDeclaration
from openprompt_meta.data.readers.files import is_authors_file, is_layout
from openprompt_meta.data.readers.libraries import is_saved_dataset

READERS = (
    ReaderDeclaration(
        name="layout",
        title="a folder of train.jsonl, valid.jsonl and test.jsonl",
        implementation="openprompt_meta.data.readers.files:read_layout",
        recognises=is_layout,
    ),
    ReaderDeclaration(
        name="authors",
        title="the JSON lines of the paper's authors",
        implementation="openprompt_meta.data.readers.files:read_authors_file",
        recognises=is_authors_file,
    ),
    ReaderDeclaration(
        name="huggingface",
        title="a data set of the Hugging Face hub, or a folder of save_to_disk",
        implementation="openprompt_meta.data.readers.libraries:read_huggingface",
        recognises=is_saved_dataset,
        by_name=True,
    ),
    ReaderDeclaration(
        name="processor",
        title="OpenPrompt's processor of that dataset.name",
        implementation="openprompt_meta.data.readers.libraries:read_processor",
    ),
    ReaderDeclaration(
        name="table",
        title="JSONL or CSV, a file or a folder of them",
        implementation="openprompt_meta.data.readers.files:read_table",
    ),
)
