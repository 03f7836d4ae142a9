"""ContrastNet (Chen et al., 2022): an encoder tuned by contrast between classes, between texts and between tasks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from openprompt_meta.encoder.classifier import matmul_precision
from openprompt_meta.learners.baselines import mean_pooled
from openprompt_meta.learners.episodic import EpisodicLearner
from openprompt_meta.learners.task import Batch, Task


def contrastive_loss(features: Tensor, labels: Tensor, temperature: float) -> Tensor:
    """Supervised contrastive loss of raw inner products.

    Of each example -log of its share of the exponentials, averaged over the others of its class; then over examples.

    Args:
        features: ``[n, d]``.
        labels: ``[n]``; an example that is alone in its class is a contrast to others only.
        temperature: τ, what inner products are divided by.
    """
    itself = torch.eye(len(features), dtype=torch.bool, device=features.device)
    scores = (features @ features.T / temperature).masked_fill(itself, -torch.inf)
    shares = scores.log_softmax(dim=-1).masked_fill(itself, 0.0)
    alike = (labels.unsqueeze(0) == labels.unsqueeze(1)) & ~itself
    counts = alike.sum(dim=-1)
    means = (shares * alike).sum(dim=-1)[counts > 0] / counts[counts > 0]
    return -means.mean()


class ContrastNet(nn.Module):
    """From a task to logits of its query set: inner products with the class means of the support set.

    Args:
        encoder: one of transformers', tuned.
        temperature: what inner products are divided by.
        dropout: leave the encoder's dropout on in training.
        products: what its matrix products are computed in, its weights being in float32.
    """

    def __init__(
        self,
        encoder: nn.Module,
        temperature: float,
        dropout: bool = False,
        products: torch.dtype = torch.float32,
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.temperature = temperature
        self.dropout = dropout
        self.products = products

    def train(self, mode: bool = True) -> ContrastNet:
        """As of any module, but for the encoder's dropout."""
        super().train(mode)
        self.encoder.train(mode and self.dropout)
        return self

    def features(self, batch: Batch) -> Tensor:
        """Mean-pooled features ``[B, d]``."""
        with matmul_precision(self.products, next(self.encoder.parameters()).device):
            return mean_pooled(self.encoder, batch)

    def classify(self, support: Tensor, labels: Tensor, query: Tensor, classes: int) -> Tensor:
        """Logits ``[m, C]`` of query features ``[m, d]`` by those of the support set."""
        members = F.one_hot(labels, classes).to(support.dtype).T  # [C, n]
        means = members @ support / members.sum(dim=1, keepdim=True)
        return query @ means.T / self.temperature

    def forward(self, task: Task) -> Tensor:
        """Logits ``[m, C]``."""
        support, query = (self.features(batch) for batch in (task.support, task.query))
        return self.classify(support, task.support["label"], query, len(task.classes))


@dataclass(frozen=True)
class Views:
    """Texts without labels, each in two forms.

    Attributes:
        texts: the texts, and the same augmented.
        tasks: for each of some tasks, its texts, and the same augmented.
    """

    texts: tuple[Batch, Batch]
    tasks: Sequence[tuple[Batch, Batch]]


class ContrastNetLearner(EpisodicLearner):
    """α L_con + (1 - α) L_inst + β L_task, by which α falls from its start to nothing.

    Args:
        network: what is learned.
        views: texts without labels for each task of meta-training.
        temperatures: τ of texts and of tasks.
        start: α at the first task.
        fading: tasks until it is 0.
        task_weight: β.

    Others as for :class:`~openprompt_meta.learners.episodic.EpisodicLearner`.
    """

    def __init__(
        self,
        network: ContrastNet,
        *others: Any,
        views: Callable[[Task], Views],
        temperatures: tuple[float, float],
        start: float = 0.95,
        fading: int = 10_000,
        task_weight: float = 0.1,
    ) -> None:
        super().__init__(network, *others)
        self.network = network
        self.views = views
        self.temperatures = temperatures
        self.start = start
        self.fading = fading
        self.task_weight = task_weight

    def loss(self, task: Task) -> tuple[Tensor, Tensor]:
        """What is learned from a task, and logits ``[n, C]`` of its query set."""
        network, views = self.network, self.views(task)
        labels = torch.cat([task.support["label"], task.query["label"]])
        support, query = (network.features(batch) for batch in (task.support, task.query))
        of_classes = contrastive_loss(torch.cat([support, query]), labels, network.temperature)
        of_texts = self._between(
            torch.stack([network.features(batch) for batch in views.texts], dim=1), self.temperatures[0]
        )
        means = [torch.stack([network.features(batch).mean(dim=0) for batch in pair]) for pair in views.tasks]
        of_tasks = self._between(torch.stack(means), self.temperatures[1])
        share = self.start * max(0.0, 1 - task.index / self.fading)
        loss = share * of_classes + (1 - share) * of_texts + self.task_weight * of_tasks
        with torch.no_grad():
            logits = network.classify(support, task.support["label"], query, len(task.classes))
        return loss, logits

    @staticmethod
    def _between(pairs: Tensor, temperature: float) -> Tensor:
        """The contrast between things ``[n, 2, d]`` that are each there in two forms."""
        labels = torch.arange(len(pairs), device=pairs.device).repeat_interleave(2)
        return contrastive_loss(pairs.flatten(0, 1), labels, temperature)
