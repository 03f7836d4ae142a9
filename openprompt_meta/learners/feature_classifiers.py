"""Classifiers of fixed features: class means, logistic regression, nearest neighbours."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import torch
import torch.nn.functional as F
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from torch import Tensor

from openprompt_meta.learners.meta_learner import TaskLearner, TaskOutcome, accuracy_of
from openprompt_meta.learners.task import Task
from openprompt_meta.prompts import RepVerbalizer

__all__ = ["FeatureLearner", "Fit", "class_means", "logistic_regression", "nearest_neighbours"]

Fit: TypeAlias = Callable[[Tensor, Tensor], Callable[[Tensor], Tensor]]
"""From support features ``[n, d]`` and labels ``[n]`` to what turns features ``[B, d]`` into log-probabilities."""
_LEAST = 1e-6  # a neighbour's absence is no proof: no class is impossible, or one text would make the loss infinite


@dataclass(frozen=True)
class FeatureLearner(TaskLearner):
    """Fits a classifier to a task's support features; nothing else is tuned, and no steps are taken.

    Attributes:
        fit: the classifier. Batches bring ``features`` ``[n, d]``.
    """

    fit: Fit

    def judge_together(self, tasks: Sequence[Task], steps: int) -> list[TaskOutcome]:
        """Fit to each support set and judge the query set."""
        outcomes = []
        for task in tasks:
            predict = self.fit(task.support["features"], task.support["label"])
            predicted = predict(task.query["features"])
            loss = F.nll_loss(predicted, task.query["label"]).item()
            outcomes.append(TaskOutcome(task.index, accuracy_of(predicted, task), loss, [], predicted.cpu()))
        return outcomes


def class_means() -> Fit:
    """Cosine with the class means, as the representative verbalizer compares."""

    def fit(features: Tensor, labels: Tensor) -> Callable[[Tensor], Tensor]:
        verbalizer = RepVerbalizer()
        verbalizer.begin_task([str(label) for label in range(int(labels.max()) + 1)])
        verbalizer.fit_support(features, None, labels)
        return lambda judged: verbalizer.log_probabilities(judged, None)

    return fit


def logistic_regression(strength: float = 10.0) -> Fit:
    """scikit-learn's, on features of length one.

    Args:
        strength: C.
    """

    def fit(features: Tensor, labels: Tensor) -> Callable[[Tensor], Tensor]:
        # With scikit-learn's own tolerance log-probabilities are off by half a per cent.
        model = LogisticRegression(C=strength, max_iter=1000, tol=1e-6)
        model.fit(_of_length_one(features), labels.cpu().numpy())
        return lambda judged: _log(model.predict_proba(_of_length_one(judged)), judged)

    return fit


def nearest_neighbours(neighbours: int) -> Fit:
    """scikit-learn's, by cosine distance, the nearer the more.

    Args:
        neighbours: how many have a say; all there are if there are fewer.
    """

    def fit(features: Tensor, labels: Tensor) -> Callable[[Tensor], Tensor]:
        count = min(neighbours, len(labels))
        model = KNeighborsClassifier(count, weights="distance", metric="cosine", algorithm="brute")
        model.fit(features.double().cpu().numpy(), labels.cpu().numpy())
        return lambda judged: _log(model.predict_proba(judged.double().cpu().numpy()), judged)

    return fit


def _of_length_one(features: Tensor) -> np.ndarray:
    return F.normalize(features.double(), dim=-1).cpu().numpy()


def _log(probabilities: np.ndarray, judged: Tensor) -> Tensor:
    """Log-probabilities on the device of what was judged."""
    kept = torch.from_numpy(probabilities).clamp_min(_LEAST)
    return (kept / kept.sum(dim=-1, keepdim=True)).log().to(judged.device)
