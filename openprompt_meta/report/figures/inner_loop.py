"""What adaptation does to a task, step by step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from openprompt_meta.report.figure import COLOURS, PERCENT, FigureKind, canvas
from openprompt_meta.report.finished_run import FinishedRun, learner_of
from openprompt_meta.report.workbench import Workbench

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["INNER_LOOP", "InnerLoopCurves"]

LEAST_STEPS = 5
MOST_TASKS = 20


@dataclass(frozen=True)
class InnerLoopCurves:
    """``support_losses[t][j]``, ``query_losses[t][j]`` and ``accuracies[t][j]`` of task t after j inner steps."""

    seed: int
    configured_steps: int
    support_losses: list[list[float]]
    query_losses: list[list[float]]
    accuracies: list[list[float]]


def measure(runs: Sequence[FinishedRun], bench: Workbench) -> InnerLoopCurves:
    """Adapt to test tasks and evaluate them after every step, also a few more than the run takes."""
    (run,) = runs
    seed, configured = run.seeds[0], run.config.meta.inner_steps_eval
    steps = max(configured, LEAST_STEPS)
    count = min(bench.effort.tasks, MOST_TASKS, len(run.accuracies[seed]))
    method = run.method(seed)
    learner, source = learner_of(method), method.sources["test"]
    supports: list[list[float]] = []
    queries: list[list[float]] = []
    accuracies: list[list[float]] = []
    with bench.bar(count * (steps + 1), "inner loop", "step") as bar:
        for group in learner.inner_loop.in_groups(source[index] for index in range(count)):
            rows: list[tuple[list[float], list[float], list[float]]] = [([], [], []) for _ in group]
            with learner.adapting(group) as adaptation:
                for step in range(steps + 1):
                    predicted, losses = adaptation.evaluate()
                    support = adaptation.step() if step < steps else adaptation.support_losses()
                    for (s, q, a), task, loss, guess, before in zip(
                        rows, group, losses, predicted, support, strict=True
                    ):
                        s.append(before)
                        q.append(loss)
                        a.append(_accuracy(guess, task.query["label"]))
                    bar.update(len(group))
            supports += [row[0] for row in rows]
            queries += [row[1] for row in rows]
            accuracies += [row[2] for row in rows]
    return InnerLoopCurves(seed, configured, supports, queries, accuracies)


def _accuracy(log_probabilities: torch.Tensor, labels: torch.Tensor) -> float:
    return (log_probabilities.argmax(dim=-1) == labels).double().mean().item()


def draw(numbers: InnerLoopCurves) -> Figure:
    """Losses on the left, accuracy on the right: the mean over tasks in a band of the middle four fifths."""
    figure, (left, right) = canvas(8.6, 3.2, 1, 2)
    for number, (name, rows) in enumerate((("support", numbers.support_losses), ("query", numbers.query_losses))):
        _band(left, rows, COLOURS[4 * number], "os"[number], ("-", "--")[number], name)
    _band(right, [[100 * a for a in row] for row in numbers.accuracies], COLOURS[4], "s", "--", "query")
    for panel in (left, right):
        panel.axvline(numbers.configured_steps, color="black", lw=0.8, ls=":", label="steps that the run takes")
        panel.set_xlabel("inner steps taken")
        panel.set_xticks(range(len(numbers.accuracies[0])))
        panel.legend(loc="best")
    left.set(ylabel="loss, nats", title="Loss of a test task", ylim=(0, None))
    right.set(ylabel=PERCENT, title="Accuracy of a test task")
    return figure


def _band(panel: object, rows: list[list[float]], colour: str, marker: str, line: str, name: str) -> None:
    values = np.array(rows)
    steps = range(values.shape[1])
    low, high = np.quantile(values, [0.1, 0.9], axis=0)
    panel.fill_between(steps, low, high, color=colour, alpha=0.15, lw=0)  # type: ignore[attr-defined]
    panel.plot(steps, values.mean(axis=0), line, marker=marker, ms=4, color=colour, label=name)  # type: ignore[attr-defined]


def caption(numbers: InnerLoopCurves) -> str:
    """Where it starts and ends."""
    accuracies = np.array(numbers.accuracies).mean(axis=0)
    return (
        f"Mean over {len(numbers.accuracies)} test tasks (seed {numbers.seed}); bands hold the middle 80 % of them. "
        f"Without a step accuracy is {100 * accuracies[0]:.1f} %, after the run's {numbers.configured_steps} it is "
        f"{100 * accuracies[numbers.configured_steps]:.1f} %."
    )


INNER_LOOP = FigureKind(
    "inner-loop", "Inner loop", "What does adaptation to a task do?", InnerLoopCurves, measure, draw, caption
)
