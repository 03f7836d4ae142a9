"""Runs: training with validation, checkpoints and resume, testing, results."""

from openprompt_meta.runs.run import Run, load_run_config
from openprompt_meta.runs.summary import SeedsSummary, TasksSummary, summarise_seeds, summarise_tasks

__all__ = [
    "Run",
    "SeedsSummary",
    "TasksSummary",
    "load_run_config",
    "summarise_seeds",
    "summarise_tasks",
]
