"""Test tasks evaluated again with all that a test leaves out: every text's probabilities."""

from __future__ import annotations

from dataclasses import dataclass

from openprompt_meta.report.finished_run import FinishedRun
from openprompt_meta.report.workbench import Workbench
from openprompt_meta.runs.evaluation import evaluate_tasks

__all__ = ["EvaluatedTask", "EvaluatedTasks", "evaluated_tasks"]


@dataclass(frozen=True)
class EvaluatedTask:
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
class EvaluatedTasks:
    """The first test tasks of a run's first seed."""

    seed: int
    tasks: list[EvaluatedTask]


def evaluated_tasks(run: FinishedRun, bench: Workbench) -> EvaluatedTasks:
    """Evaluate the first test tasks, no more than the run was tested on; kept for every figure that needs them."""
    return bench.numbers(f"evaluated-{run.file_label}", EvaluatedTasks, [run], lambda: _evaluate(run, bench))


def _evaluate(run: FinishedRun, bench: Workbench) -> EvaluatedTasks:
    seed = run.seeds[0]
    count = min(bench.effort.tasks, len(run.accuracies[seed]))
    method = run.method(seed)
    source = method.sources["test"]
    with bench.bar(count, "test tasks, evaluated again") as bar:
        outcomes = evaluate_tasks(method.learner, source, count, run.config.meta.inner_steps_eval, bar)
    tasks = []
    for outcome, episode in zip(outcomes, source.episodes.take(count), strict=True):
        probabilities = outcome.log_probabilities.double().exp().tolist()
        tasks.append(EvaluatedTask(outcome.index, list(episode.classes), list(episode.query_labels), probabilities))
    return EvaluatedTasks(seed, tasks)
