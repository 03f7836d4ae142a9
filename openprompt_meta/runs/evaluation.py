"""Judging a method on many tasks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tqdm.auto import tqdm

from openprompt_meta.learners import MetaLearner, TaskOutcome
from openprompt_meta.methods import TaskSource
from openprompt_meta.methods.prototypes import Features, prototype_accuracy
from openprompt_meta.runs.summary import TasksSummary, summarise_tasks

__all__ = ["Interrupted", "judge_prototypes", "judge_tasks"]


class Interrupted(Exception):  # noqa: N818 - a message to the caller, not a failure
    """A stop was asked for before the tasks were through."""


def judge_tasks(
    learner: MetaLearner,
    source: TaskSource,
    tasks: int,
    steps: int,
    bar: Any = None,
    stop: Callable[[], bool] = lambda: False,
) -> list[TaskOutcome]:
    """Judge tasks 0 .. ``tasks - 1`` of a split, each from the same pool.

    Args:
        learner: gives the pool and adapts copies of it.
        source: the split's tasks.
        tasks: how many.
        steps: inner steps, J.
        bar: a tqdm bar to advance.
        stop: asked before each group of tasks that are judged side by side.

    Raises:
        Interrupted: ``stop`` said so.
    """
    outcomes: list[TaskOutcome] = []
    for group in learner.base_learner.in_groups(source[index] for index in range(tasks)):
        if stop():
            raise Interrupted
        outcomes += learner.judge_together(group, steps)
        if bar is not None:
            bar.update(len(group))
            bar.set_postfix(accuracy=f"{100 * sum(o.accuracy for o in outcomes) / len(outcomes):.1f}")
    return outcomes


def judge_prototypes(features: Features, source: TaskSource, tasks: int, title: str) -> TasksSummary:
    """Accuracy of class means of fixed features on the same tasks, with a progress bar."""
    episodes = tqdm(source.episodes.take(tasks), title, tasks, leave=False, unit="task")
    return summarise_tasks([prototype_accuracy(features, episode) for episode in episodes])
