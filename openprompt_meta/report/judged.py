"""Test tasks judged again with all that a test leaves out: every text's probabilities."""

from __future__ import annotations

from dataclasses import dataclass

from openprompt_meta.report.finished_run import FinishedRun
from openprompt_meta.report.workbench import Workbench
from openprompt_meta.runs.evaluation import judge_tasks

__all__ = ["Judged", "JudgedTask", "judged_tasks"]


@dataclass(frozen=True)
class JudgedTask:
    """One test task: ``probabilities[i][c]`` of query text ``i`` being of class ``classes[c]``."""

    index: int
    classes: list[str]
    labels: list[int]
    probabilities: list[list[float]]

    @property
    def predictions(self) -> list[int]:
        """The most probable class of each text."""
        return [row.index(max(row)) for row in self.probabilities]

    @property
    def accuracy(self) -> float:
        """Share of texts that are classified rightly."""
        hits = sum(guess == label for guess, label in zip(self.predictions, self.labels, strict=True))
        return hits / len(self.labels)


@dataclass(frozen=True)
class Judged:
    """The first test tasks of a run's first seed."""

    seed: int
    tasks: list[JudgedTask]


def judged_tasks(run: FinishedRun, bench: Workbench) -> Judged:
    """Judge the first test tasks, no more than the run was tested on; kept for every figure that needs them."""
    return bench.numbers(f"judged-{run.file_label}", Judged, [run], lambda: _judge(run, bench))


def _judge(run: FinishedRun, bench: Workbench) -> Judged:
    seed = run.seeds[0]
    count = min(bench.effort.tasks, len(run.accuracies[seed]))
    method = run.method(seed)
    source = method.sources["test"]
    with bench.bar(count, "test tasks, judged again") as bar:
        outcomes = judge_tasks(method.learner, source, count, run.config.meta.inner_steps_eval, bar)
    tasks = []
    for outcome, episode in zip(outcomes, source.episodes.take(count), strict=True):
        probabilities = outcome.log_probabilities.double().exp().tolist()
        tasks.append(JudgedTask(outcome.index, list(episode.classes), list(episode.query_labels), probabilities))
    return Judged(seed, tasks)
