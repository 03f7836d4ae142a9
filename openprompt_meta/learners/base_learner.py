"""The base learner: what is done inside one task (paper, Algorithm 2, steps 3 to 12)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from openprompt_meta.errors import NotFiniteError
from openprompt_meta.learners.task import Task
from openprompt_meta.model.mask_classifier import MaskClassifier
from openprompt_meta.prompts import PromptPool

__all__ = ["BaseLearner", "task_randomness"]


@contextmanager
def pool_in_place(template: Any, pool: PromptPool) -> Iterator[None]:
    """Let the template use another pool inside."""
    own = template.pool
    template.pool = pool
    try:
        yield
    finally:
        template.pool = own


@contextmanager
def task_randomness(seed: int, task: Task) -> Iterator[None]:
    """Randomness inside that depends on the run's seed and the task alone, and leaves torch's own state as it was.

    Dropout and the random start of a task's label embeddings are then the same whatever was done before, which is
    what lets an interrupted run resume to the same bits.
    """
    with torch.random.fork_rng():
        torch.manual_seed(seed * 1_000_003 + task.index)
        yield


@dataclass
class BaseLearner:
    """Adapts a pool to a task's support set, and judges a task's query set with a pool.

    Attributes:
        classifier: the frozen language model with template and verbalizer.
        loss: mean or sum over the examples of a set.
        label_embeddings: at the meta step and in prediction, ``adapted`` fits the verbalizer to the support set as the
            adapted pool shows it; ``last_inner_step`` keeps the fit of the last inner step.
        detach_last_fit: for ``last_inner_step``, drop the gradient through that fit (first-order learning does).
        seed: of whatever is random inside a task.
    """

    classifier: MaskClassifier
    loss: Literal["mean", "sum"] = "mean"
    label_embeddings: Literal["adapted", "last_inner_step"] = "adapted"
    detach_last_fit: bool = True
    seed: int = 0

    def adapt(self, learner: Any, task: Task, steps: int) -> list[float]:
        """Take ``steps`` gradient steps on the support loss.

        Args:
            learner: a clone made by learn2learn's ``MAML.clone``; its pool is changed.
            task: the task.
            steps: the paper's J.

        Returns:
            The support loss before each step.

        Raises:
            NotFiniteError: the loss is not a number, with the task's index and the step.
        """
        self.classifier.verbalizer.begin_task(task.classes, task.label_words)
        losses = []
        for step in range(steps):
            loss = self.support_loss(learner.module, task)
            losses.append(self._finite(loss, task, f"inner step {step + 1}"))
            learner.adapt(loss)
        return losses

    def support_loss(self, pool: PromptPool, task: Task) -> Tensor:
        """-log P of the support set, the verbalizer being fitted to it on the way."""
        verbalizer, labels = self.classifier.verbalizer, task.support["label"]
        with pool_in_place(self.classifier.template, pool):
            reading = self.classifier.read_mask(task.support)
        verbalizer.fit_support(reading.features, reading.logits, labels)
        log_probabilities = verbalizer.support_log_probabilities(reading.features, reading.logits)
        if self.label_embeddings == "last_inner_step" and self.detach_last_fit:
            logits = None if reading.logits is None else reading.logits.detach()
            verbalizer.fit_support(reading.features.detach(), logits, labels)
        return F.nll_loss(log_probabilities, labels, reduction=self.loss)

    def query_log_probabilities(self, pool: PromptPool, task: Task, steps_taken: int) -> Tensor:
        """Give log P of the query set's classes, ``[n, C]``, under a pool adapted by ``steps_taken`` steps."""
        verbalizer = self.classifier.verbalizer
        with pool_in_place(self.classifier.template, pool):
            if self.label_embeddings == "adapted" or steps_taken == 0:
                support = self.classifier.read_mask(task.support)
                verbalizer.fit_support(support.features, support.logits, task.support["label"])
            reading = self.classifier.read_mask(task.query)
        log_probabilities: Tensor = verbalizer.log_probabilities(reading.features, reading.logits)
        return log_probabilities

    def query_loss(self, log_probabilities: Tensor, task: Task) -> Tensor:
        """-log P of the query set."""
        loss = F.nll_loss(log_probabilities, task.query["label"], reduction=self.loss)
        self._finite(loss, task, "the query loss")
        return loss

    @staticmethod
    def _finite(loss: Tensor, task: Task, where: str) -> float:
        value = loss.item()
        if not math.isfinite(value):
            raise NotFiniteError(
                f"Task {task.index}: {where} is {value}. The last checkpoint is as it was. Lower inner_lr (or "
                "outer_lr if it grew over many iterations), or look at the task's texts."
            )
        return value
