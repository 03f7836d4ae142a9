"""A service on a port of its own, over a real socket."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import httpx

from openprompt_meta.classifier.classifier import MetaPromptClassifier
from openprompt_meta.serve.app import build_app
from openprompt_meta.serve.guard import Access
from openprompt_meta.serve.keeping import KeptTasks
from openprompt_meta.serve.requests import Limits
from openprompt_meta.serve.server import Server, address_of, open_socket

__all__ = ["CLASSES", "UNLIMITED", "new_classifier", "running"]

CLASSES = {
    "weather": ["rain and storm", "the sun in the sky", "wind at night"],
    "sport": ["the team win the game", "a player score"],
    "food": ["cook the soup", "eat a good dish", "food for the king", "a cheap dish"],
}
UNLIMITED = Limits(requests_per_minute=0, fits_per_minute=0)


class _SignallingServer(Server):
    """Says when it listens."""

    def __init__(self, app: object, limits: Limits) -> None:
        super().__init__(app, limits)
        self.listens = threading.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.listens.set()


@contextmanager
def running(
    classifier: MetaPromptClassifier,
    limits: Limits = UNLIMITED,
    access: Access | None = None,
    kept: KeptTasks | None = None,
) -> Iterator[httpx.Client]:
    """A client of a service that runs in a thread of this process until the block ends."""
    with open_socket("127.0.0.1", 0) as listening:
        server = _SignallingServer(build_app(classifier, access or Access(), limits, kept), limits)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, name="service")
        thread.start()
        try:
            assert server.listens.wait(60), "the service did not start"
            with httpx.Client(base_url=address_of(listening), timeout=60, trust_env=False) as client:
                yield client
        finally:
            server.should_exit = True
            thread.join(60)
            assert not thread.is_alive(), "the service did not stop"


def new_classifier(model: object, fitted: bool = False) -> MetaPromptClassifier:
    """A classifier on a tiny model, with a pool that has learned nothing: enough to be served."""
    classifier = MetaPromptClassifier(base_model=str(model), seed=0, inner_steps=2)
    if fitted:
        texts = [text for examples in CLASSES.values() for text in examples]
        classifier.fit(texts, [name for name, examples in CLASSES.items() for _ in examples])
    return classifier
