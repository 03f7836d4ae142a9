"""MAML: the query loss after adaptation, seen from where adaptation started."""

from __future__ import annotations

import torch
from torch import Tensor

from openprompt_meta.learners.adaptation import Adaptation
from openprompt_meta.learners.adapting import GradientLearner
from openprompt_meta.learners.base_learner import OpenTasks

__all__ = ["MamlLearner"]


class MamlLearner(GradientLearner):
    """Algorithm 2 of the paper."""

    def learn(self, tasks: OpenTasks, adaptation: Adaptation, share: float) -> list[Tensor]:
        """The meta-gradient of the query losses."""
        predicted = tasks.query_log_probabilities(adaptation.pools, self.inner_steps)
        adaptation.learn_from(share * torch.stack(tasks.query_losses(predicted)).sum())
        return [one.detach() for one in predicted]
