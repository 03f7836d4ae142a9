"""HATT (Gao et al., 2019): class means in which examples and features count as attention says."""

from __future__ import annotations

from itertools import pairwise
from typing import Literal

import torch.nn.functional as F
from torch import Tensor, nn

from openprompt_meta.learners.task import Batch, Task

_CHANNELS = (32, 64)


class Hatt(nn.Module):
    """From a task, whose classes have ``shots`` examples each, to logits of its query set.

    Args:
        vectors: ``[V, d]`` of the words; they are learned too, from here on.
        shots: K.
        filters: features of a text.
        dropout: before the last convolution of the feature attention.
        scores: what makes the feature attention positive: ``softplus``, or as in the authors' code ``relu``, by which
            all features of a class may come to count nothing.
    """

    def __init__(
        self,
        vectors: Tensor,
        shots: int,
        filters: int = 230,
        dropout: float = 0.5,
        scores: Literal["softplus", "relu"] = "softplus",
    ) -> None:
        super().__init__()
        self.shots = shots
        self.vectors = nn.Parameter(vectors.clone())
        self.convolution = nn.Conv1d(vectors.shape[1], filters, kernel_size=3, padding=1)
        self.projection = nn.Linear(filters, filters)
        self.positive = F.softplus if scores == "softplus" else F.relu
        sizes = (1, *_CHANNELS)
        # As many rows out as in, whatever K is: their own padding of K // 2 on both sides adds a row where K is even.
        self.around = ((shots - 1) // 2, shots // 2)
        self.maps = nn.ModuleList(nn.Conv2d(before, after, (shots, 1)) for before, after in pairwise(sizes))
        self.dropout = nn.Dropout(dropout)
        self.last = nn.Conv2d(_CHANNELS[-1], 1, (shots, 1))

    def forward(self, task: Task) -> Tensor:
        """Logits ``[m, N]``."""
        order = task.support["label"].argsort(stable=True)
        support = self.read(task.support)[order].view(len(task.classes), self.shots, -1)  # [N, K, f]
        query = self.read(task.query)  # [m, f]
        prototypes = self.instance_attention(support, query).unsqueeze(-2) @ support  # [m, N, 1, f]
        squares = (prototypes.squeeze(-2) - query.unsqueeze(1)).square()  # [m, N, f]
        return -(self.feature_attention(support) * squares).sum(dim=-1)

    def read(self, batch: Batch) -> Tensor:
        """Features ``[B, f]``: a convolution over three words at a time, and the largest of what each filter finds."""
        is_word = batch["is_word"].unsqueeze(1)  # [B, 1, L]
        vectors = F.embedding(batch["words"], self.vectors).transpose(1, 2) * is_word
        found: Tensor = self.convolution(vectors).relu() * is_word
        return found.amax(dim=-1)  # nothing is below zero, so padding never is the largest

    def instance_attention(self, support: Tensor, query: Tensor) -> Tensor:
        """How much each of a class's examples ``[N, K, f]`` counts for a query ``[m, f]``: ``[m, N, K]``."""
        alike = self.projection(support) * self.projection(query)[:, None, None]  # [m, N, K, f]
        weights: Tensor = alike.tanh().sum(dim=-1).softmax(dim=-1)
        return weights

    def feature_attention(self, support: Tensor) -> Tensor:
        """How much each feature counts in the distance to a class: ``[N, f]``, none of it below zero."""
        image = support.unsqueeze(1)  # [N, 1, K, f]
        for convolution in self.maps:
            image = convolution(F.pad(image, (0, 0, *self.around))).relu()
        return self.positive(self.last(self.dropout(image)))[:, 0, 0]
