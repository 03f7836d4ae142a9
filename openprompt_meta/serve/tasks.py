"""The tasks that a service can be asked about, by name. The one that was used longest ago leaves first."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from openprompt_meta.errors import did_you_mean
from openprompt_meta.serve.answers import Refusal
from openprompt_meta.serve.together import Together

if TYPE_CHECKING:
    from openprompt_meta.use.classifier import MetaPromptClassifier

__all__ = ["SERVED", "ServedTask", "TaskStore"]

SERVED = "served"
"""The name of the task that came with the service."""

# More gain nothing on a CPU, and those who came first would wait for those who came last.
_TEXTS_TOGETHER = 32


@dataclass(frozen=True)
class ServedTask:
    """A fitted classifier under its name; it is never changed, only replaced."""

    name: str
    classifier: MetaPromptClassifier

    @property
    def classes(self) -> list[str]:
        """The classes, in the order of the columns of ``predict_proba``."""
        return self.classifier.task_.class_names

    @property
    def examples(self) -> int:
        """How many examples it was fitted to."""
        return len(self.classifier.task_.labels)

    @cached_property
    def together(self) -> Together:
        """Where its predictions wait for each other. First used from the event loop, so that there is one."""
        return Together(lambda texts: self.classifier.predict_proba(texts).tolist(), most=_TEXTS_TOGETHER)


class TaskStore:
    """Fitted classifiers by name, in memory alone. Used from one thread.

    Args:
        most: how many are kept besides the one that came with the service.
        served: the one that came with the service, if it has one. It always stays.
    """

    def __init__(self, most: int, served: ServedTask | None = None) -> None:
        self._most = most
        self._served = served
        self._tasks: OrderedDict[str, ServedTask] = OrderedDict()

    def __len__(self) -> int:
        return len(self._tasks) + (self._served is not None)

    def all(self) -> list[ServedTask]:
        """Every task: the one that came with the service, then the others, the most recently used last."""
        return [*([self._served] if self._served else []), *self._tasks.values()]

    def get(self, name: str | None) -> ServedTask:
        """The task of that name, by default the one that came with the service; it counts as used now."""
        if name in (None, SERVED) and self._served is not None:
            return self._served
        if name is None:
            raise Refusal(422, "This service came without a task of its own: name one in 'task', or fit one first.")
        if name not in self._tasks:
            guess = did_you_mean(name, self._tasks)
            raise Refusal(404, f"There is no task '{name}': '/tasks' lists those there are, '/fit' adds one.{guess}")
        self._tasks.move_to_end(name)
        return self._tasks[name]

    def check_free(self, name: str, replace: bool) -> None:
        """Refuse a name that a new task may not have."""
        if name == SERVED:
            raise Refusal(409, f"The name '{SERVED}' is kept for the task that came with the service: choose another.")
        if name in self._tasks and not replace:
            raise Refusal(
                409, f"There is a task '{name}' already: choose another name, or have it replaced ('replace': true)."
            )

    def add(self, task: ServedTask, replace: bool) -> list[str]:
        """Keep a task, and return the names of those that left to make room."""
        self.check_free(task.name, replace)
        self._tasks[task.name] = task
        self._tasks.move_to_end(task.name)
        return [self._tasks.popitem(last=False)[0] for _ in range(len(self._tasks) - self._most)]

    def remove(self, name: str) -> None:
        """Forget a task."""
        if name == SERVED and self._served is not None:
            raise Refusal(409, f"The task '{SERVED}' came with the service and stays.")
        self.get(name)
        del self._tasks[name]
