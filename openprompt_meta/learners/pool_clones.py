"""Adapting a pool of prompts: a clone for each task, by learn2learn's MAML."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import torch
from torch import Tensor

from openprompt_meta.compat.maml import load_maml, load_maml_update
from openprompt_meta.learners.adaptation import Adaptation, Adapter
from openprompt_meta.learners.base_learner import OpenTasks
from openprompt_meta.prompts import PromptPool

__all__ = ["PoolClones"]


class PoolClones(Adapter):
    """Only the pool is wrapped and cloned, never the language model.

    Args:
        pool: the meta-parameters.
        lr: α.
        first_order: drop second derivatives from the meta-gradient.
        adapted: what inner steps change: all of the pool, or its ``keys`` or ``prompts`` alone.
    """

    def __init__(
        self,
        pool: PromptPool,
        lr: float = 0.1,
        first_order: bool = True,
        adapted: Literal["all", "keys", "prompts"] = "all",
    ) -> None:
        self.adapted = adapted
        self._maml = load_maml()(pool, lr=lr, first_order=first_order)

    @contextmanager
    def begin(self, tasks: OpenTasks, learns: bool) -> Iterator[Adaptation]:
        """A clone for each task."""
        first_order = None if learns else True
        clones = [self._maml.clone(first_order=first_order) for _ in tasks.tasks]
        yield _ClonedPools(self._maml, clones, self.adapted)


class _ClonedPools(Adaptation):
    def __init__(self, maml: Any, clones: list[Any], adapted: str) -> None:
        self._maml = maml
        self._clones = clones
        self._adapted = adapted

    @property
    def pools(self) -> Sequence[PromptPool]:
        return [clone.module for clone in self._clones]

    def step(self, losses: Sequence[Tensor]) -> None:
        """What ``clone.adapt(loss)`` does for each, with one walk back through the language model for all."""
        if len(self._clones) == 1 and self._adapted == "all":
            self._clones[0].adapt(losses[0])
            return
        second_order = not self._clones[0].first_order
        names = [name for name, _ in self._maml.module.named_parameters()]
        chosen = [name for name in names if self._adapted in ("all", name)]
        # A task's loss knows its own pool alone, so the gradient of the sum is that of each.
        found = iter(
            torch.autograd.grad(
                torch.stack(list(losses)).sum(),
                [getattr(clone.module, name) for clone in self._clones for name in chosen],
                retain_graph=second_order,
                create_graph=second_order,
            )
        )
        for clone in self._clones:
            gradients = [next(found) if name in chosen else None for name in names]
            clone.module = load_maml_update()(clone.module, clone.lr, gradients)

    @contextmanager
    def further(self) -> Iterator[None]:
        own = self._clones
        self._clones = [self._detached(clone) for clone in own]
        try:
            yield
        finally:
            self._clones = own

    def learn_from(self, loss: Tensor) -> None:
        loss.backward()

    @torch.no_grad()
    def learn_displacement(self, scale: float) -> None:
        for clone in self._clones:
            for start, now in zip(self._maml.module.parameters(), clone.module.parameters(), strict=True):
                moved = scale * (start - now)
                start.grad = moved if start.grad is None else start.grad + moved

    def _detached(self, clone: Any) -> Any:
        pool = copy.deepcopy(self._maml.module)
        with torch.no_grad():
            for fresh, now in zip(pool.parameters(), clone.module.parameters(), strict=True):
                fresh.copy_(now)
                fresh.grad = None
        return load_maml()(pool, lr=clone.lr, first_order=True).clone()
