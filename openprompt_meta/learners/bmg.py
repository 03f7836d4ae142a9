"""Bootstrapped meta-gradients (Flennerhag et al., 2022): predict now what one would predict some steps later."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from openprompt_meta.learners.adaptation import Adaptation
from openprompt_meta.learners.adapting import GradientLearner, adapt
from openprompt_meta.learners.base_learner import OpenTasks

__all__ = ["BmgLearner"]


class BmgLearner(GradientLearner):
    """The adapted parameters are matched with a target that goes L steps further, by KL(target ‖ adapted) on queries.

    The target takes L - 1 more steps on the support set and a last one on the query set. It is a target only: no
    gradient flows through it.

    Args:
        target_steps: L.

    Others as for :class:`~openprompt_meta.learners.adapting.GradientLearner`.
    """

    def __init__(self, *args: Any, target_steps: int = 5, **others: Any) -> None:
        super().__init__(*args, **others)
        self.target_steps = target_steps

    def learn(self, tasks: OpenTasks, adaptation: Adaptation, share: float) -> list[Tensor]:
        """The meta-gradient of the divergence."""
        targets = self._targets(tasks, adaptation)
        predicted = tasks.query_log_probabilities(adaptation.pools, self.inner_steps)
        reduction = "batchmean" if self.base_learner.loss == "mean" else "sum"
        divergences = [
            F.kl_div(one, target, reduction=reduction, log_target=True)
            for one, target in zip(predicted, targets, strict=True)
        ]
        adaptation.learn_from(share * torch.stack(divergences).sum())
        return [one.detach() for one in predicted]

    def _targets(self, tasks: OpenTasks, adaptation: Adaptation) -> list[Tensor]:
        """Log-probabilities of the query sets, L steps further."""
        tasks = tasks.apart()  # with verbalizers of its own, which learn further too
        with adaptation.further():
            adapt(tasks, adaptation, self.target_steps - 1, self.inner_steps)
            taken = self.inner_steps + self.target_steps - 1
            adaptation.step(tasks.query_losses(tasks.query_log_probabilities(adaptation.pools, taken)))
            with torch.no_grad():
                return tasks.query_log_probabilities(adaptation.pools, taken + 1)
