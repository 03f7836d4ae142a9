"""The configuration of a run: YAML in, a typed and checked :class:`RunConfig` out, and back. Knows no torch."""

from __future__ import annotations

from openprompt_meta.config.keys import Key, describe
from openprompt_meta.config.loading import load_config
from openprompt_meta.config.schema import (
    METHOD_SECTION_OF,
    METHOD_SECTIONS,
    VERBALIZER_METHODS,
    VERBALIZER_SECTIONS,
    ContrastiveSection,
    DartVerbalizerSection,
    DatasetSection,
    FineTuningSection,
    LogisticRegressionSection,
    ManualVerbalizerSection,
    MetaPromptingSection,
    MetaSection,
    MethodName,
    NearestNeighboursSection,
    PlmSection,
    PromptPoolTemplateSection,
    ProtoVerbalizerSection,
    RepVerbalizerSection,
    RunConfig,
    RunSection,
    VerbalizerTuningSection,
    WarpVerbalizerSection,
)
from openprompt_meta.config.validation import config_from_mapping
from openprompt_meta.config.writing import to_mapping, to_yaml

__all__ = [
    "METHOD_SECTIONS",
    "METHOD_SECTION_OF",
    "VERBALIZER_METHODS",
    "VERBALIZER_SECTIONS",
    "ContrastiveSection",
    "DartVerbalizerSection",
    "DatasetSection",
    "FineTuningSection",
    "Key",
    "LogisticRegressionSection",
    "ManualVerbalizerSection",
    "MetaPromptingSection",
    "MetaSection",
    "MethodName",
    "NearestNeighboursSection",
    "PlmSection",
    "PromptPoolTemplateSection",
    "ProtoVerbalizerSection",
    "RepVerbalizerSection",
    "RunConfig",
    "RunSection",
    "VerbalizerTuningSection",
    "WarpVerbalizerSection",
    "config_from_mapping",
    "describe",
    "load_config",
    "to_mapping",
    "to_yaml",
]
