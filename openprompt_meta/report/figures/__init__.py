"""The figures, a module each: numbers from runs, and their picture."""

from __future__ import annotations

from typing import Any

from openprompt_meta.report.figure import FigureKind
from openprompt_meta.report.figures.ablation import NUM_PROMPTS, PROMPT_LENGTH
from openprompt_meta.report.figures.accuracies import CLASSES, TASKS
from openprompt_meta.report.figures.attention import ATTENTION
from openprompt_meta.report.figures.baselines import BASELINES
from openprompt_meta.report.figures.calibration import CALIBRATION
from openprompt_meta.report.figures.confusion import CONFUSION
from openprompt_meta.report.figures.costs import COSTS
from openprompt_meta.report.figures.inner_loop import INNER_LOOP
from openprompt_meta.report.figures.label_map import LABEL_MAP
from openprompt_meta.report.figures.paired import PAIRED
from openprompt_meta.report.figures.prompt_tokens import COSINE, NEAREST
from openprompt_meta.report.figures.shots import SHOTS
from openprompt_meta.report.figures.training import TRAINING
from openprompt_meta.report.figures.tuning import TUNING

__all__ = ["FIGURES"]

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
