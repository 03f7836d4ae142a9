"""The figures, those of one subject in a module: numbers from runs, and their picture."""

from __future__ import annotations

from typing import Any

from openprompt_meta.report.figure import FigureKind
from openprompt_meta.report.figures.accuracy_curves import NUM_PROMPTS, PROMPT_LENGTH, SHOTS
from openprompt_meta.report.figures.comparison import BASELINES, PAIRED, TUNING
from openprompt_meta.report.figures.costs import COSTS
from openprompt_meta.report.figures.label_map import LABEL_MAP
from openprompt_meta.report.figures.learning_curves import INNER_LOOP, TRAINING
from openprompt_meta.report.figures.predictions import CALIBRATION, CLASSES, CONFUSION, TASKS
from openprompt_meta.report.figures.prompts import ATTENTION, COSINE, NEAREST

FIGURES: tuple[FigureKind[Any], ...] = (
    TUNING,
    PAIRED,
    NUM_PROMPTS,
    PROMPT_LENGTH,
    SHOTS,
    BASELINES,
    TRAINING,
    INNER_LOOP,
    TASKS,
    CLASSES,
    CONFUSION,
    CALIBRATION,
    LABEL_MAP,
    ATTENTION,
    COSINE,
    NEAREST,
    COSTS,
)
"""In the order of a report; :func:`openprompt_meta.components.figures` has them and other packages' by name."""
