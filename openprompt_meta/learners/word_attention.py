"""Attention over a text's words, and a ridge regression of what is attended to: DS and MLADA."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from openprompt_meta.learners.episodic import EpisodicLearner
from openprompt_meta.learners.inner import require_finite, task_randomness
from openprompt_meta.learners.task import Batch, MetaStep, Task, accuracy_of

# -- Ridge regression in closed form (Bertinetto et al., 2019) --------------------------------------------------------


def ridge_weights(features: Tensor, targets: Tensor, penalty: Tensor | float) -> Tensor:
    """The ``W`` ``[d, C]`` at the least of ``‖features W - targets‖² + penalty ‖W‖²``.

    By its dual, a system of as many unknowns as there are examples, of which a task has few.

    Args:
        features: ``[n, d]``.
        targets: ``[n, C]``.
        penalty: above 0.
    """
    kernel = features @ features.T  # [n, n]
    identity = torch.eye(len(features), dtype=features.dtype, device=features.device)
    solved: Tensor = torch.linalg.solve(kernel + penalty * identity, targets)
    return features.T @ solved


class RidgeHead(nn.Module):
    """Logits ``10^α Φ_q W`` with ``W`` fitted to the support set under the penalty ``10^λ``; both are learned."""

    def __init__(self) -> None:
        super().__init__()
        self.log_penalty = nn.Parameter(torch.tensor(-1.0))
        self.log_scale = nn.Parameter(torch.tensor(0.0))

    def forward(self, support: Tensor, labels: Tensor, query: Tensor, classes: int) -> Tensor:
        """Logits ``[m, C]`` of query features ``[m, d]`` from support features ``[n, d]`` and labels ``[n]``."""
        targets = F.one_hot(labels, classes).to(support.dtype)
        weights = ridge_weights(support, targets, 10**self.log_penalty)
        logits: Tensor = 10**self.log_scale * (query @ weights)
        return logits


# -- Reading a text's words -------------------------------------------------------------------------------------------


def states_of_words(lstm: nn.LSTM, inputs: Tensor, is_word: Tensor) -> Tensor:
    """An LSTM's states ``[B, L, h]`` at the words of each text; zero at padding, which no direction passes."""
    lengths = is_word.sum(dim=1).cpu()
    packed = pack_padded_sequence(inputs, lengths, batch_first=True, enforce_sorted=False)
    states, _ = pad_packed_sequence(lstm(packed)[0], batch_first=True, total_length=inputs.shape[1])
    return states


def attention_of(scores: Tensor, is_word: Tensor) -> Tensor:
    """Scores ``[B, L]`` as weights that add up to one over the words of each text."""
    return scores.masked_fill(~is_word, -torch.inf).softmax(dim=-1)


class _WordNetwork(nn.Module):
    """Has frozen word vectors, which are no part of what is learned or saved."""

    vectors: Tensor

    def __init__(self, vectors: Tensor) -> None:
        super().__init__()
        self.register_buffer("vectors", vectors, persistent=False)


# -- DS (Bao et al., 2020): attention by how rare a word is, and how much it tells of the task's classes --------------


class WordFrequencies:
    """How often each word stands in the texts of each training class.

    Args:
        rows: the training texts as numbers of words.
        labels: the class of each.
        size: of the vocabulary.
    """

    def __init__(self, rows: Sequence[Tensor], labels: Sequence[str], size: int) -> None:
        by_class: dict[str, list[Tensor]] = {}
        for row, name in zip(rows, labels, strict=True):
            by_class.setdefault(name, []).append(row)
        self._counts = {name: torch.cat(own).bincount(minlength=size) for name, own in by_class.items()}
        self._total = torch.stack(list(self._counts.values())).sum(dim=0)

    def outside(self, classes: Sequence[str]) -> Tensor:
        """P(w) ``[V]`` in the training texts of all other classes; zero if there is no other."""
        own = [self._counts[name] for name in classes if name in self._counts]
        counts = self._total - torch.stack(own).sum(dim=0) if own else self._total
        return counts / counts.sum().clamp_min(1)


class DistributionalSignatures(_WordNetwork):
    """From a task to logits of its query set.

    Args:
        vectors: ``[V, d]`` of the words.
        frequencies: of the words in the training texts.
        epsilon: ε of s(w) = ε / (ε + P(w)).
        hidden: states of the LSTM each way.
        dropout: between its states and the attention.
    """

    def __init__(
        self, vectors: Tensor, frequencies: WordFrequencies, epsilon: float, hidden: int, dropout: float
    ) -> None:
        super().__init__(vectors)
        self.frequencies = frequencies
        self.epsilon = epsilon
        self.lstm = nn.LSTM(2, hidden, batch_first=True, bidirectional=True)
        self.score = nn.Sequential(nn.Dropout(dropout), nn.Linear(2 * hidden, 1))
        self.head = RidgeHead()

    def forward(self, task: Task) -> Tensor:
        """Logits ``[m, C]``."""
        classes = len(task.classes)
        rarity = self.rarity(task.classes)
        directions = self.class_directions(task.support, classes)
        support, query = (self._read(batch, rarity, directions) for batch in (task.support, task.query))
        logits: Tensor = self.head(support, task.support["label"], query, classes)
        return logits

    def rarity(self, classes: Sequence[str]) -> Tensor:
        """s(w) ``[V]``, near 1 for words that are rare outside of the task's classes."""
        often = self.frequencies.outside(classes).to(self.vectors)
        return self.epsilon / (self.epsilon + often)

    def class_directions(self, support: Batch, classes: int) -> Tensor:
        """W ``[d, C]``: a ridge regression of mean word vectors, with penalty 1."""
        is_word = support["is_word"].unsqueeze(-1)
        means = (self.vectors[support["words"]] * is_word).sum(dim=1) / is_word.sum(dim=1)
        return ridge_weights(means, F.one_hot(support["label"], classes).to(means.dtype), 1.0)

    def _read(self, batch: Batch, rarity: Tensor, directions: Tensor) -> Tensor:
        """Φ ``[B, d]``: word vectors, weighted by attention."""
        vectors = self.vectors[batch["words"]]  # [B, L, d]
        telling = (vectors @ directions).abs().amax(dim=-1)  # t(w) [B, L]
        signatures = torch.stack([rarity[batch["words"]], telling], dim=-1)
        scores = self.score(states_of_words(self.lstm, signatures, batch["is_word"])).squeeze(-1)
        weights = attention_of(scores, batch["is_word"])
        return (weights.unsqueeze(1) @ vectors).squeeze(1)


# -- MLADA (Han et al., 2021): attention that a discriminator cannot tell the domain from -----------------------------


class Mlada(_WordNetwork):
    """From a task to logits of its query set, by a generator of word weights and a ridge regression.

    Args:
        vectors: ``[V, d]`` of the words.
        longest: words of the longest text, which is what the discriminator is wide.
        masks_padding: weights are of words alone; without it padding, whose vectors are zero, has its share of them.
        hidden: states of the LSTM each way.
        dropout: of the discriminator.
    """

    def __init__(
        self, vectors: Tensor, longest: int, masks_padding: bool = True, hidden: int = 128, dropout: float = 0.2
    ) -> None:
        super().__init__(vectors)
        self.longest = longest
        self.masks_padding = masks_padding
        self.lstm = nn.LSTM(vectors.shape[1], hidden, batch_first=True, bidirectional=True)
        self.score = nn.Linear(2 * hidden, 1)
        self.head = RidgeHead()
        sizes = (longest, 256, 64, 2)
        layers: list[nn.Module] = []
        for before, after in pairwise(sizes):
            layers += [nn.Dropout(dropout), nn.Linear(before, after), nn.ReLU()]
        self.discriminator = nn.Sequential(*layers[:-1])

    def word_weights(self, batch: Batch) -> Tensor:
        """The generator's attention ``[B, L]`` over the words of each text."""
        states = states_of_words(self.lstm, self.vectors[batch["words"]], batch["is_word"])
        scores = self.score(states).squeeze(-1)
        return attention_of(scores, batch["is_word"]) if self.masks_padding else scores.softmax(dim=-1)

    def classify(self, task: Task, support: Tensor, query: Tensor) -> Tensor:
        """Logits ``[m, C]`` from word weights of support and query."""
        read = [
            (weights.unsqueeze(1) @ self.vectors[batch["words"]]).squeeze(1)
            for weights, batch in ((support, task.support), (query, task.query))
        ]
        logits: Tensor = self.head(read[0], task.support["label"], read[1], len(task.classes))
        return logits

    def domain_loss(self, query: Tensor, source: Tensor) -> Tensor:
        """How badly the discriminator tells word weights of the query set (1) from those of source texts (0)."""
        losses = []
        for weights, domain in ((query, 1), (source, 0)):
            logits = self.discriminator(F.pad(weights, (0, self.longest - weights.shape[1])))
            losses.append(F.cross_entropy(logits, torch.full_like(logits[:, 0], domain, dtype=torch.long)))
        return torch.stack(losses).sum()

    def forward(self, task: Task) -> Tensor:
        """Logits ``[m, C]``; the discriminator has no say in them."""
        return self.classify(task, self.word_weights(task.support), self.word_weights(task.query))


class MladaLearner(EpisodicLearner):
    """Two steps a meta-iteration: the discriminator's, and then the generator's against it.

    Args:
        network: generator, ridge regression, discriminator.
        sources: texts of other classes, for each task of meta-training.

    Others as for :class:`~openprompt_meta.learners.episodic.EpisodicLearner`; one optimiser takes both steps, since it
    passes over what has no gradient.
    """

    def __init__(self, network: Mlada, *others: Any, sources: Callable[[Task], Batch], **more: Any) -> None:
        super().__init__(network, *others, **more)
        self.network = network
        self.sources = sources

    def meta_step(self, tasks: Sequence[Task]) -> MetaStep:
        """Lower L_D by the discriminator, then CE - L_D by generator and ridge regression."""
        network = self.network
        with task_randomness(self.seed, tasks[0]):
            weights = [
                tuple(network.word_weights(batch) for batch in (task.support, task.query, self.sources(task)))
                for task in tasks
            ]
            self.optimizer.zero_grad()
            for task, (_, query, source) in zip(tasks, weights, strict=True):
                domain_loss = network.domain_loss(query.detach(), source.detach())
                require_finite(domain_loss, task, "the discriminator's loss")
                (domain_loss / len(tasks)).backward()
            self.optimizer.step()
            self.optimizer.zero_grad()
            losses, accuracies = [], []
            for task, (support, query, source) in zip(tasks, weights, strict=True):
                logits = network.classify(task, support, query)
                loss = F.cross_entropy(logits, task.query["label"])
                require_finite(loss, task, "the loss")
                ((loss - network.domain_loss(query, source)) / len(tasks)).backward()
                losses.append(loss.item())
                accuracies.append(accuracy_of(logits, task))
            network.discriminator.zero_grad()
        return self.stepped(tasks, losses, accuracies)
