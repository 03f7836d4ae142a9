"""Methods without an inner loop: a network reads a task's support set and predicts its query set, in one pass."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from openprompt_meta.learners.inner import require_finite, task_randomness
from openprompt_meta.learners.task import (
    MetaLearner,
    MetaStep,
    Task,
    TaskOutcome,
    accuracy_of,
    clipped_gradient_norm,
)
from openprompt_meta.prompts.query import evaluation_mode


class EpisodicLearner(MetaLearner):
    """Learns a network across tasks by the cross-entropy of their query sets; inside a task nothing is stepped.

    Args:
        network: from a :class:`Task` to logits ``[n, C]`` of its query set. It is left in training mode.
        optimizer: over its parameters.
        seed: of what is random in a task, such as dropout.
        longest_gradient: a longer gradient is shortened to this.
    """

    def __init__(
        self,
        network: nn.Module,
        optimizer: torch.optim.Optimizer,
        seed: int = 0,
        longest_gradient: float | None = None,
    ) -> None:
        self.meta_parameters = network.train()
        self.optimizer = optimizer
        self.seed = seed
        self.longest_gradient = longest_gradient

    def meta_step(self, tasks: Sequence[Task]) -> MetaStep:
        """One step of the optimiser on the loss of the tasks, averaged over them."""
        self.optimizer.zero_grad()
        losses, accuracies = [], []
        for task in tasks:
            with task_randomness(self.seed, task):
                loss, logits = self.loss(task)
            require_finite(loss, task, "the loss")
            (loss / len(tasks)).backward()
            losses.append(loss.item())
            accuracies.append(accuracy_of(logits, task))
        return self.stepped(tasks, losses, accuracies)

    def loss(self, task: Task) -> tuple[Tensor, Tensor]:
        """What is learned from a task, and logits ``[n, C]`` of its query set."""
        logits: Tensor = self.meta_parameters(task)
        return F.cross_entropy(logits, task.query["label"]), logits

    def stepped(self, tasks: Sequence[Task], losses: Sequence[float], accuracies: Sequence[float]) -> MetaStep:
        """Take the step whose gradients are there, and say what it was."""
        norm = clipped_gradient_norm(self.meta_parameters.parameters(), tasks, self.longest_gradient)
        self.optimizer.step()
        return MetaStep(sum(losses) / len(losses), sum(accuracies) / len(accuracies), [], norm)

    @torch.no_grad()
    def evaluate_batch(self, tasks: Sequence[Task], steps: int) -> list[TaskOutcome]:
        """Predict each query set; there are no steps to take."""
        outcomes = []
        with evaluation_mode(self.meta_parameters):
            for task in tasks:
                predicted = self.meta_parameters(task).log_softmax(dim=-1)
                loss = F.nll_loss(predicted, task.query["label"]).item()
                outcomes.append(TaskOutcome(task.index, accuracy_of(predicted, task), loss, [], predicted.cpu()))
        return outcomes
