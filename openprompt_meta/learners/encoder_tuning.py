"""Tuning a whole encoder on each task, without prompts: with a classification head, or on pairs of texts."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from openprompt_meta.errors import NotFiniteError
from openprompt_meta.learners.base_learner import task_randomness
from openprompt_meta.learners.feature_classifiers import Fit
from openprompt_meta.learners.gradient_steps import GradientSteps, InnerSteps
from openprompt_meta.learners.in_place import Weights
from openprompt_meta.learners.meta_learner import TaskLearner, TaskOutcome, accuracy_of
from openprompt_meta.learners.sentence_pairs import pair_loss
from openprompt_meta.learners.task import Batch, Task
from openprompt_meta.model.mixed_precision import products_in
from openprompt_meta.prompts.query import evaluation_mode

__all__ = ["ContrastiveLearner", "EncoderLearner", "HeadLearner", "mean_pooled"]


def mean_pooled(encoder: nn.Module, batch: Batch) -> Tensor:
    """Hidden states averaged over the tokens of each text, ``[B, d_o]``, as sentence encoders do; at least float32."""
    inputs = {key: batch[key] for key in ("input_ids", "attention_mask", "token_type_ids") if key in batch}
    hidden: Tensor = encoder(**inputs).last_hidden_state  # [B, L, d_o]
    hidden = hidden.to(torch.promote_types(hidden.dtype, torch.float32))
    real = inputs["attention_mask"].unsqueeze(-1).to(hidden.dtype)
    return (hidden * real).sum(dim=1) / real.sum(dim=1)


class EncoderLearner(TaskLearner):
    """Tunes the encoder in place for each task, and puts it back bit by bit.

    Args:
        encoder: the learner's own, to be changed.
        lr: size of its steps (Adam).
        seed: of what is random in a task.
        dropout: leave the encoder's dropout on while it is tuned.
        products: what its matrix products are computed in, its weights being in float32.
    """

    def __init__(
        self,
        encoder: nn.Module,
        lr: float,
        seed: int = 0,
        dropout: bool = False,
        products: torch.dtype = torch.float32,
    ) -> None:
        self.encoder = encoder.train(dropout)
        self.lr = lr
        self.seed = seed
        self.products = products
        self._weights = Weights(list(encoder.parameters()))

    def judge_together(self, tasks: Sequence[Task], steps: int) -> list[TaskOutcome]:
        """Tune by ``steps`` steps on each support set, and judge the query set."""
        return [self._judge(task, steps) for task in tasks]

    def _judge(self, task: Task, steps: int) -> TaskOutcome:
        with task_randomness(self.seed, task), self._weights.put_back():
            inner, predicted = self.learn(task, steps)
        loss = F.nll_loss(predicted, task.query["label"]).item()
        return TaskOutcome(task.index, accuracy_of(predicted, task), loss, inner, predicted.cpu())

    @abstractmethod
    def learn(self, task: Task, steps: int) -> tuple[list[float], Tensor]:
        """Tune the encoder on a task.

        Returns:
            The loss before each step, and log-probabilities of the query set.
        """

    def tune(
        self, task: Task, loss_now: Callable[[], Tensor], steps: int, others: Sequence[InnerSteps] = ()
    ) -> list[float]:
        """Take ``steps`` steps down a loss, with the encoder and others."""
        parts = [InnerSteps(list(self.encoder.parameters()), self.lr, "adam"), *others]
        tuning = GradientSteps(parts)
        found = []
        for step in range(steps):
            loss = loss_now()
            found.append(loss.item())
            if not torch.isfinite(loss):
                raise NotFiniteError(f"Task {task.index}: step {step + 1} has the loss {found[-1]}. Lower its lr.")
            tuning.take(loss)
        return found

    @torch.no_grad()
    def features(self, batch: Batch) -> Tensor:
        """Mean-pooled features ``[B, d_o]`` of the encoder as it is now."""
        with evaluation_mode(self.encoder):
            return self.pooled(batch)

    def pooled(self, batch: Batch) -> Tensor:
        """The same with gradient, and with dropout if the encoder has it on."""
        with self.in_precision():
            return mean_pooled(self.encoder, batch)

    def in_precision(self) -> AbstractContextManager[object]:
        """Where the encoder's matrix products are computed in their precision."""
        return products_in(self.products, next(self.encoder.parameters()).device)


class HeadLearner(EncoderLearner):
    """Full fine-tuning: the encoder and a linear head on its mean-pooled features, which starts at random.

    Args:
        head_lr: size of the head's steps.

    Others as for :class:`EncoderLearner`.
    """

    def __init__(self, encoder: nn.Module, lr: float, head_lr: float, **others: Any) -> None:
        super().__init__(encoder, lr, **others)
        self.head_lr = head_lr

    def learn(self, task: Task, steps: int) -> tuple[list[float], Tensor]:
        """Tune both on the cross-entropy of the support set."""
        labels = task.support["label"]
        reference = next(self.encoder.parameters())
        head = nn.Linear(self.features(task.support).shape[1], len(task.classes)).to(reference)
        inner = self.tune(
            task,
            lambda: F.cross_entropy(head(self.pooled(task.support)), labels),
            steps,
            [InnerSteps(list(head.parameters()), self.head_lr, "adam")],
        )
        with torch.no_grad():
            return inner, head(self.features(task.query)).log_softmax(dim=-1)


class ContrastiveLearner(EncoderLearner):
    """As SetFit: texts of one class are drawn together, others apart, by cosine; then a classifier of features.

    Each step draws pairs anew, half of them of one class, and brings their cosines nearer to 1 and 0 by squared error
    (:func:`~openprompt_meta.learners.sentence_pairs.pair_loss`). A class of one example is paired with itself.

    Args:
        fit: the classifier.
        pairs: of a step.

    Others as for :class:`EncoderLearner`.
    """

    def __init__(self, encoder: nn.Module, lr: float, fit: Fit, pairs: int = 16, **others: Any) -> None:
        super().__init__(encoder, lr, **others)
        self.fit = fit
        self.pairs = pairs
        self._pair_loss = pair_loss(self.encoder)

    def learn(self, task: Task, steps: int) -> tuple[list[float], Tensor]:
        """Tune the encoder on pairs of the support set, then fit the classifier."""
        labels = task.support["label"]
        dtype = next(self.encoder.parameters()).dtype

        def loss() -> Tensor:
            first, second = (places.to(labels.device) for places in draw_pairs(labels.cpu(), self.pairs))
            alike = (labels[first] == labels[second]).to(dtype)
            with self.in_precision():
                return self._pair_loss(_rows(task.support, first), _rows(task.support, second), alike)

        inner = self.tune(task, loss, steps)
        predict = self.fit(self.features(task.support), labels)
        return inner, predict(self.features(task.query))


def _rows(batch: Batch, places: Tensor) -> dict[str, Tensor]:
    """Those texts of a batch, in that order."""
    return {key: batch[key][places] for key in ("input_ids", "attention_mask", "token_type_ids") if key in batch}


def draw_pairs(labels: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Positions of ``count`` pairs, the first half of one class each, the others of two.

    Args:
        labels: ``[n]``, on the CPU.
        count: how many pairs.
    """
    same = labels.unsqueeze(0) == labels.unsqueeze(1)
    itself = torch.eye(len(labels), dtype=torch.bool)
    alike = same & ~itself if bool((same & ~itself).any()) else same
    parts = []
    for allowed, wanted in ((alike, (count + 1) // 2), (~same, count // 2)):
        pairs = allowed.nonzero()  # [m, 2]
        parts.append(pairs[torch.randint(len(pairs), (wanted,))])
    first, second = torch.cat(parts).unbind(dim=1)
    return first, second
