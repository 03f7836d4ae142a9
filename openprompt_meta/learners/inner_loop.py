"""The inner loop taken step by step, to be looked at on the way."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from openprompt_meta.learners.adaptation import Adaptation
from openprompt_meta.learners.base_learner import OpenTasks
from openprompt_meta.prompts import PromptPool

__all__ = ["InnerLoop"]


class InnerLoop:
    """Tasks on their way from the meta-parameters to parameters of their own. Looking changes nothing."""

    def __init__(self, opened: OpenTasks, adaptation: Adaptation) -> None:
        self.steps_taken = 0
        self._opened = opened
        self._adaptation = adaptation

    @property
    def pools(self) -> Sequence[PromptPool]:
        """Each task's pool as it is now."""
        return self._adaptation.pools

    def support_losses(self) -> list[float]:
        """The loss of each support set as it is now; nothing is learned."""
        return [loss.item() for loss in self._opened.apart().support_losses(self.pools, self.steps_taken)]

    def step(self) -> list[float]:
        """Take an inner step for each task; the support losses before it."""
        losses = self._opened.support_losses(self.pools, self.steps_taken)
        self._adaptation.step(losses)
        self.steps_taken += 1
        return [loss.item() for loss in losses]

    @torch.no_grad()
    def judge(self) -> tuple[list[Tensor], list[float]]:
        """Log-probabilities ``[n, C]`` of each query set and its loss, if adaptation ended here; it may go on."""
        opened = self._opened.apart()
        predicted = opened.query_log_probabilities(self.pools, self.steps_taken)
        return predicted, [loss.item() for loss in opened.query_losses(predicted)]
