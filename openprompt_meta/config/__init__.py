"""The configuration of a run: YAML in, a typed and checked :class:`RunConfig` out, and back. Knows no torch."""

from __future__ import annotations

from openprompt_meta.config.keys import Key, describe
from openprompt_meta.config.loading import load_config
from openprompt_meta.config.schema import (
    VERBALIZER_SECTIONS,
    DartVerbalizerSection,
    DatasetSection,
    ManualVerbalizerSection,
    MetaSection,
    PlmSection,
    PromptPoolTemplateSection,
    ProtoVerbalizerSection,
    RepVerbalizerSection,
    RunConfig,
    RunSection,
    WarpVerbalizerSection,
)
from openprompt_meta.config.validation import config_from_mapping
from openprompt_meta.config.writing import to_mapping, to_yaml

__all__ = [
    "VERBALIZER_SECTIONS",
    "DartVerbalizerSection",
    "DatasetSection",
    "Key",
    "ManualVerbalizerSection",
    "MetaSection",
    "PlmSection",
    "PromptPoolTemplateSection",
    "ProtoVerbalizerSection",
    "RepVerbalizerSection",
    "RunConfig",
    "RunSection",
    "WarpVerbalizerSection",
    "config_from_mapping",
    "describe",
    "load_config",
    "to_mapping",
    "to_yaml",
]
