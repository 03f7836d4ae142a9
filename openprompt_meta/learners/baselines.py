"""What one would do instead: classifiers of fixed features, and encoders tuned inside each task."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch
import torch.nn.functional as F
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from torch import Tensor, nn

from openprompt_meta.compat.versions import command_for_extra
from openprompt_meta.encoder.classifier import matmul_precision
from openprompt_meta.errors import CompatibilityError, NotFiniteError
from openprompt_meta.learners.adapters import Weights
from openprompt_meta.learners.inner import task_randomness
from openprompt_meta.learners.optim import GradientSteps, InnerSteps
from openprompt_meta.learners.task import Batch, Task, TaskLearner, TaskOutcome, accuracy_of
from openprompt_meta.prompts.pooling import mean_over_tokens
from openprompt_meta.prompts.query import evaluation_mode
from openprompt_meta.verbalizers.rep import RepVerbalizer

# -- Classifiers of fixed features: class means, logistic regression, nearest neighbours ------------------------------

Fit: TypeAlias = Callable[..., Callable[[Tensor], Tensor]]
"""From support features ``[n, d]``, labels ``[n]`` and, where tasks bring them, the features of the classes' names
``[C, d]`` to what turns features ``[B, d]`` into log-probabilities."""
_LEAST = 1e-6  # a neighbour's absence is no proof: no class is impossible, or one text would make the loss infinite


@dataclass(frozen=True)
class FeatureLearner(TaskLearner):
    """Fits a classifier to a task's support features; nothing else is tuned, and no steps are taken.

    Attributes:
        fit: the classifier. Batches bring ``features`` ``[n, d]``.
    """

    fit: Fit

    def evaluate_batch(self, tasks: Sequence[Task], steps: int) -> list[TaskOutcome]:
        """Fit to each support set and evaluate the query set."""
        outcomes = []
        for task in tasks:
            names = [] if task.names is None else [task.names["features"]]
            predict = self.fit(task.support["features"], task.support["label"], *names)
            predicted = predict(task.query["features"])
            loss = F.nll_loss(predicted, task.query["label"]).item()
            outcomes.append(TaskOutcome(task.index, accuracy_of(predicted, task), loss, [], predicted.cpu()))
        return outcomes


def class_means(name_weight: float = 0.0, assignment_rounds: int = 0) -> Fit:
    """Cosine with the class means, as the representative verbalizer compares; arguments are its own."""

    def fit(features: Tensor, labels: Tensor, names: Tensor | None = None) -> Callable[[Tensor], Tensor]:
        verbalizer = RepVerbalizer(name_weight=name_weight, assignment_rounds=assignment_rounds)
        verbalizer.begin_task([str(label) for label in range(int(labels.max()) + 1)])
        if names is not None:
            verbalizer.fit_names(names, torch.arange(len(names), device=names.device))
        verbalizer.fit_support(features, None, labels)
        return lambda evaluated: verbalizer.log_probabilities(evaluated, None)

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
        return lambda evaluated: _log(model.predict_proba(_of_length_one(evaluated)), evaluated)

    return fit


def nearest_neighbours(neighbours: int) -> Fit:
    """scikit-learn's, by cosine distance, the nearer the more.

    Args:
        neighbours: how many contribute; all there are if there are fewer.
    """

    def fit(features: Tensor, labels: Tensor) -> Callable[[Tensor], Tensor]:
        count = min(neighbours, len(labels))
        model = KNeighborsClassifier(count, weights="distance", metric="cosine", algorithm="brute")
        model.fit(features.double().cpu().numpy(), labels.cpu().numpy())
        return lambda evaluated: _log(model.predict_proba(evaluated.double().cpu().numpy()), evaluated)

    return fit


def _of_length_one(features: Tensor) -> np.ndarray:
    return F.normalize(features.double(), dim=-1).cpu().numpy()


def _log(probabilities: np.ndarray, evaluated: Tensor) -> Tensor:
    """Log-probabilities on the device of what was evaluated."""
    kept = torch.from_numpy(probabilities).clamp_min(_LEAST)
    return (kept / kept.sum(dim=-1, keepdim=True)).log().to(evaluated.device)


# -- The loss of pairs of texts, by `sentence-transformers`: the body and the loss that SetFit trains with ------------


class _Tokens(nn.Module):
    """The first module of a sentence transformer whose texts come as tokens."""

    def __init__(self, encoder: nn.Module) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(self, features: dict[str, Tensor], **ignored: Any) -> dict[str, Tensor]:
        return {**features, "token_embeddings": self.encoder(**_inputs(features)).last_hidden_state}


def pair_loss(encoder: nn.Module) -> Callable[[Batch, Batch, Tensor], Tensor]:
    """``loss(first, second, alike)``: how far the cosines of pairs of texts are from 1 (alike) and 0.

    Args:
        encoder: one of transformers', which is tuned; its hidden states are averaged over a text.

    Raises:
        CompatibilityError: sentence-transformers is not installed.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            from sentence_transformers import SentenceTransformer
            from sentence_transformers.sentence_transformer.losses import CosineSimilarityLoss
            from sentence_transformers.sentence_transformer.modules import Pooling
    except ImportError as error:
        raise CompatibilityError(
            f"method: contrastive needs sentence-transformers 5.7 or newer ({error}). Install it: "
            f"{command_for_extra('contrastive')}"
        ) from None
    configuration: Any = encoder.config
    width = int(configuration.hidden_size)
    device = next(encoder.parameters()).device
    body = SentenceTransformer(modules=[_Tokens(encoder), Pooling(width, "mean")], device=str(device))
    body.train(encoder.training)
    loss = CosineSimilarityLoss(body)

    def measured(first: Batch, second: Batch, alike: Tensor) -> Tensor:
        found: Tensor = loss([dict(first), dict(second)], alike)
        return found

    return measured


# -- Tuning a whole encoder on each task, without prompts: with a classification head, or on pairs of texts -----------


def mean_pooled(encoder: nn.Module, batch: Batch) -> Tensor:
    """Hidden states averaged over the tokens of each text, ``[B, d_o]``, as sentence encoders do; at least float32."""
    hidden: Tensor = encoder(**_inputs(batch)).last_hidden_state  # [B, L, d_o]
    return mean_over_tokens(hidden, batch["attention_mask"])


def _inputs(batch: Batch) -> dict[str, Tensor]:
    """What of a batch the encoder takes."""
    return {key: batch[key] for key in ("input_ids", "attention_mask", "token_type_ids") if key in batch}


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

    def evaluate_batch(self, tasks: Sequence[Task], steps: int) -> list[TaskOutcome]:
        """Tune by ``steps`` steps on each support set, and evaluate the query set."""
        return [self._evaluate(task, steps) for task in tasks]

    def _evaluate(self, task: Task, steps: int) -> TaskOutcome:
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
        return matmul_precision(self.products, next(self.encoder.parameters()).device)


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
    (:func:`~openprompt_meta.learners.baselines.pair_loss`). A class of one example is paired with itself.

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
    return {key: value[places] for key, value in _inputs(batch).items()}


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
