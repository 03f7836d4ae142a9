"""Looking at runs: the figures of the paper and more, and a page that holds them together."""

from openprompt_meta.report.finished_run import FinishedRun, open_runs
from openprompt_meta.report.workbench import Effort, Workbench
from openprompt_meta.report.writing import plot, write_report

__all__ = ["Effort", "FinishedRun", "Workbench", "open_runs", "plot", "write_report"]
