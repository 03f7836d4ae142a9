"""Requests that wait for one task go through the model together, which costs about half of one by one."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import NamedTuple

__all__ = ["Together"]

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
