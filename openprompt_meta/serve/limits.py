"""How much one request, one client and the whole service may ask for."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Limits"]


@dataclass(frozen=True)
class Limits:
    """Every bound of the service; what goes beyond one is refused with its value in the message.

    Args:
        body_bytes: size of a request's body.
        body_seconds: how long a body may take to arrive.
        texts: texts in one call of ``/predict``.
        text_length: characters of a text. The language model reads its first few hundred tokens in any case.
        classes: classes of a task.
        examples: examples of a task, all classes together.
        adapt_examples: those of them that take part in the gradient steps at most, which is what a fit spends its time
            and memory on; label embeddings are computed from all.
        label_length: characters of a class name or a label word.
        label_words: label words of a class.
        tasks: tasks kept; beyond it the one that was used longest ago leaves.
        requests_per_minute: of one client, with as many at once after a pause of a minute.
        fits_per_minute: the same for ``/fit``.
        clients: clients whose rate is remembered.
        requests_at_once: requests under way, of all clients.
        predictions_at_once: predictions that are worked on at the same time.
        predictions_waiting: predictions that may wait for their turn.
        fits_at_once: fits that are worked on at the same time.
        fits_waiting: fits that may wait for their turn.
    """

    body_bytes: int = 1_000_000
    body_seconds: float = 15.0
    texts: int = 256
    text_length: int = 20_000
    classes: int = 64
    examples: int = 256
    adapt_examples: int = 64
    label_length: int = 100
    label_words: int = 20
    tasks: int = 32
    requests_per_minute: int = 1200
    fits_per_minute: int = 30
    clients: int = 4096
    requests_at_once: int = 256
    predictions_at_once: int = 2
    predictions_waiting: int = 128
    fits_at_once: int = 1
    fits_waiting: int = 2
