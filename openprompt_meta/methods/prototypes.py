"""What a user would do instead: prototypes of the frozen encoder's features, with no training at all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from openprompt_meta.data import Episode
from openprompt_meta.methods.task_source import TaskSource, Texts
from openprompt_meta.model import LoadedMLM
from openprompt_meta.prompts import RepVerbalizer

__all__ = ["Features", "mask_features", "mean_features", "plain_features", "prototype_accuracy"]

Features = Callable[[Sequence[int]], Tensor]
"""From positions in a split's texts to features ``[n, d_o]``."""


def mask_features(texts: Texts) -> Features:
    """The [MASK]'s hidden states under the template without the pool: the pool's own query vectors."""
    return texts.queries


def plain_features(source: TaskSource, texts: Sequence[str], loaded: LoadedMLM) -> dict[str, Features]:
    """Both kinds of features for the texts of a split, by name."""
    return {
        "[MASK] of the bare template, class means": mask_features(source.texts),
        "mean over tokens, class means": mean_features(loaded, texts, source.texts.max_seq_length),
    }


def mean_features(loaded: LoadedMLM, texts: Sequence[str], max_length: int) -> Features:
    """Hidden states of the bare text averaged over its tokens, as sentence encoders do; kept once computed."""
    known: dict[int, Tensor] = {}

    @torch.no_grad()
    def feature(position: int) -> Tensor:
        encoded: Any = loaded.tokenizer(
            texts[position], truncation=True, max_length=max_length, return_tensors="pt"
        ).to(loaded.model.device)
        hidden: Tensor = loaded.model.base_model(**encoded).last_hidden_state
        return hidden.float().mean(dim=1)  # one text, no padding

    def features(positions: Sequence[int]) -> Tensor:
        for position in positions:
            if position not in known:
                known[position] = feature(position)
        return torch.cat([known[position] for position in positions])

    return features


def prototype_accuracy(features: Features, episode: Episode) -> float:
    """Accuracy on a task's query set by cosine with the class means of its support set."""
    verbalizer = RepVerbalizer()
    verbalizer.begin_task(episode.classes)
    verbalizer.fit_support(features(episode.support), None, torch.tensor(episode.support_labels))
    predicted = verbalizer.log_probabilities(features(episode.query), None).argmax(dim=-1).cpu()
    return (predicted == torch.tensor(episode.query_labels)).float().mean().item()
