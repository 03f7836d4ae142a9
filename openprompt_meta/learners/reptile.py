"""Reptile (Nichol et al., 2018): the start moves towards where tasks have moved from it."""

from __future__ import annotations

from torch import Tensor

from openprompt_meta.learners.adaptation import Adaptation
from openprompt_meta.learners.adapting import GradientLearner
from openprompt_meta.learners.base_learner import OpenTasks

__all__ = ["ReptileLearner"]


class ReptileLearner(GradientLearner):
    """``start - adapted`` takes the gradient's place, so that SGD's step of size ε is Reptile's own.

    Reptile knows no query set; its steps go over all of a task's examples. After the inner steps on the support set
    there is one more, on the query set: without a step on other examples Reptile learns what the tasks have in
    common, but not how to adapt.
    """

    def learn(self, tasks: OpenTasks, adaptation: Adaptation, share: float) -> list[Tensor]:
        """The last step, and the way from the start."""
        predicted = tasks.query_log_probabilities(adaptation.pools, self.inner_steps)
        adaptation.step(tasks.query_losses(predicted))
        adaptation.learn_displacement(share)
        return [one.detach() for one in predicted]
