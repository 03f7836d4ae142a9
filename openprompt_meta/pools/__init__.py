"""The pool that comes with the package: where it lies, and what it was learned on."""

from __future__ import annotations

from pathlib import Path

from openprompt_meta.errors import TemplateError
from openprompt_meta.tensor_files import DamagedFile, read_tensors

GENERAL = Path(__file__).with_name("general")
"""For the packaged encoder; a saved classifier that is not fitted, which a template can be read from too."""
MADE_FROM = "made_from.safetensors"
"""Beside it: hashes of the texts that it was made from, and the classes."""


def learned_classes() -> list[str]:
    """The classes that it was learned on, each after the name of its data set.

    Raises:
        TemplateError: the file that says so is missing or damaged.
    """
    file = GENERAL / MADE_FROM
    try:
        _, metadata = read_tensors(file)
    except (OSError, DamagedFile) as error:
        raise TemplateError(f"{file} cannot be read: {error}. Install the package again.") from None
    return metadata["classes of train"].split("\n")
