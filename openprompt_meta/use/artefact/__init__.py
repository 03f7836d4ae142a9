"""A classifier on disk: JSON and safetensors, nothing that runs, written whole or not at all."""

from openprompt_meta.use.artefact.layout import FILES, Stored, is_artefact
from openprompt_meta.use.artefact.reading import read_artefact
from openprompt_meta.use.artefact.writing import write_artefact

__all__ = ["FILES", "Stored", "is_artefact", "read_artefact", "write_artefact"]
