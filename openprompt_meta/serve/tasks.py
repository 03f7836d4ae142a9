"""The tasks that a service can be asked about, and the threads and batches in which they are worked on."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from openprompt_meta.errors import did_you_mean
from openprompt_meta.serve.requests import Refusal

if TYPE_CHECKING:
    from openprompt_meta.classifier.classifier import MetaPromptClassifier


# -- Threads for what takes long, with a bounded queue, so that the event loop always has an ear free -----------------

Result = TypeVar("Result")


class Workers:
    """A number of threads and a number of places to wait for them. Used from one event loop.

    Args:
        kind: what the threads do, in the plural, for their names and for messages.
        at_once: threads.
        waiting: jobs that may wait; one more is refused.
    """

    def __init__(self, kind: str, at_once: int, waiting: int) -> None:
        self.kind = kind
        self.under_way = 0
        self._places = at_once + waiting
        self._jobs: set[Future[Any]] = set()
        self._threads = ThreadPoolExecutor(at_once, thread_name_prefix=kind)

    def check_room(self) -> None:
        """Refuse with status 503 if too many wait already."""
        if self.under_way >= self._places:
            raise Refusal(
                503, f"{self.under_way} {self.kind} are under way, as many as may be: try again soon.", retry_after=2
            )

    async def run(self, job: Callable[[], Result]) -> Result:
        """What ``job`` returns, from one of the threads, if there is room."""
        self.check_room()
        self.under_way += 1
        try:
            future = self._threads.submit(job)
        except BaseException:
            self.under_way -= 1
            raise
        self._jobs.add(future)
        future.add_done_callback(self._jobs.discard)
        loop = asyncio.get_running_loop()
        # Counted until the thread is done with it, even when nobody waits for the answer any more.
        future.add_done_callback(lambda _: _call_soon(loop, self._leave))
        return await asyncio.wrap_future(future)

    def close(self) -> None:
        """Drop what waits. What is being worked on cannot be told to stop, and is not waited for."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    @property
    def at_work(self) -> bool:
        """Whether a thread is in the middle of something."""
        return bool(self._jobs)

    def _leave(self) -> None:
        self.under_way -= 1


def _call_soon(loop: asyncio.AbstractEventLoop, callback: Callable[[], None]) -> None:
    # At the end the last threads may outlive the loop, and then nobody counts any more.
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(callback)


# -- Requests that wait for one task go through the model together, which costs about half of one by one --------------

Rows = list[list[float]]


class _Asked(NamedTuple):
    texts: list[str]
    answer: Future[Rows]


class Together:
    """Collects what is asked and answers it in batches.

    Args:
        predict: gives a row of probabilities for each text; called from the threads that call :meth:`work`.
        most: texts in a batch, unless one request has more by itself.
    """

    def __init__(self, predict: Callable[[list[str]], Rows], most: int) -> None:
        self._predict = predict
        self._most = most
        self._waiting: deque[_Asked] = deque()
        self._lock = threading.Lock()

    def ask(self, texts: list[str]) -> Future[Rows]:
        """Put texts into the queue. One call of :meth:`work` has to follow for each call of this."""
        asked = _Asked(texts, Future())
        with self._lock:
            self._waiting.append(asked)
        return asked.answer

    def work(self) -> None:
        """Answer what has waited longest and as much of the rest as fits; nothing, if another thread has done it."""
        batch = self._next_batch()
        try:
            self._answer(batch)
        except Exception:
            # One request must not spoil the others' answers.
            for asked in batch:
                try:
                    self._answer([asked])
                except Exception as error:
                    asked.answer.set_exception(error)

    def _next_batch(self) -> list[_Asked]:
        batch: list[_Asked] = []
        texts = 0
        with self._lock:
            while self._waiting and (not batch or texts + len(self._waiting[0].texts) <= self._most):
                asked = self._waiting.popleft()
                # False for a request that was given up while it waited.
                if asked.answer.set_running_or_notify_cancel():
                    batch.append(asked)
                    texts += len(asked.texts)
        return batch

    def _answer(self, batch: list[_Asked]) -> None:
        if not batch:
            return
        rows = iter(self._predict([text for asked in batch for text in asked.texts]))
        for asked in batch:
            asked.answer.set_result([next(rows) for _ in asked.texts])


# -- The tasks that a service can be asked about, by name. The one that was used longest ago leaves first -------------

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
    """Fitted classifiers by name, in memory. Used from one thread.

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
            raise Refusal(404, "This service came without a task of its own: name one in 'task', or fit one first.")
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

    def add(self, task: ServedTask) -> list[str]:
        """Keep a task in place of one of its name, and return the names of those that left to make room."""
        self._tasks[task.name] = task
        self._tasks.move_to_end(task.name)
        return [self._tasks.popitem(last=False)[0] for _ in range(len(self._tasks) - self._most)]

    def check_removable(self, name: str) -> None:
        """Refuse to forget a task that is not there or stays."""
        if name == SERVED and self._served is not None:
            raise Refusal(409, f"The task '{SERVED}' came with the service and stays.")
        self.get(name)

    def remove(self, name: str) -> None:
        """Forget a task."""
        self.check_removable(name)
        del self._tasks[name]
