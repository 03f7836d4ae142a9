"""Judging a method on many tasks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from openprompt_meta.learners import TaskLearner, TaskOutcome
from openprompt_meta.methods import TaskSource

__all__ = ["Interrupted", "judge_tasks"]


class Interrupted(Exception):  # noqa: N818 - a message to the caller, not a failure
    """A stop was asked for before the tasks were through."""


def judge_tasks(
    learner: TaskLearner,
    source: TaskSource,
    tasks: int,
    steps: int,
    bar: Any = None,
    stop: Callable[[], bool] = lambda: False,
) -> list[TaskOutcome]:
    """Judge tasks 0 .. ``tasks - 1`` of a split, each from the same start.

    Args:
        learner: learns and judges each.
        source: the split's tasks.
        tasks: how many.
        steps: inner steps, J.
        bar: a tqdm bar to advance.
        stop: asked before each group of tasks that are judged side by side.

    Raises:
        Interrupted: ``stop`` said so.
    """
    outcomes: list[TaskOutcome] = []
    for group in learner.in_groups(source[index] for index in range(tasks)):
        if stop():
            raise Interrupted
        outcomes += learner.judge_together(group, steps)
        if bar is not None:
            bar.update(len(group))
            bar.set_postfix(accuracy=f"{100 * sum(o.accuracy for o in outcomes) / len(outcomes):.1f}")
    return outcomes
