"""What a user would do instead: classifiers of frozen features, and an encoder tuned in each task."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from openprompt_meta.config.schema import RunConfig
from openprompt_meta.data.dataset import TextDataset
from openprompt_meta.encoder.loading import LoadedMLM
from openprompt_meta.encoder.texts import OpenPromptTexts, TokenizedTexts
from openprompt_meta.learners.baselines import (
    ContrastiveLearner,
    FeatureLearner,
    Fit,
    HeadLearner,
    class_means,
    logistic_regression,
    mean_pooled,
    nearest_neighbours,
)
from openprompt_meta.learners.task import TaskLearner
from openprompt_meta.methods import (
    ContrastiveSection,
    FineTuningSection,
    LogisticRegressionSection,
    MeanPrototypesSection,
    NearestNeighboursSection,
)
from openprompt_meta.methods.building import pool_template, task_sources
from openprompt_meta.methods.language_model import build_texts, own_copy, product_precision
from openprompt_meta.methods.method import Method
from openprompt_meta.prompts.pool_files import READ_AT_MASK

# -- Texts without any template, and fixed features of texts, for methods that do not prompt --------------------------


@dataclass(frozen=True)
class BareTexts:
    """Texts as the tokenizer of ``loaded`` gives them; those of more than ``max_length`` tokens are cut."""

    texts: Sequence[str]
    loaded: LoadedMLM
    max_length: int

    def batch(self, indices: Sequence[int], labels: Sequence[int] | None = None) -> dict[str, Tensor]:
        """``input_ids`` and what else the encoder takes, ``[B, L]`` with ``L`` the longest of them, and ``label``."""
        encoded: Any = self.loaded.tokenizer(
            [self.texts[index] for index in indices],
            truncation=True,
            max_length=self.max_length,
            padding=True,
            return_tensors="pt",
        )
        return _labelled(dict(encoded), labels, self.loaded)


class MeanFeatures:
    """Hidden states of bare texts averaged over their tokens, as sentence encoders do; kept once computed.

    Arguments as for :class:`BareTexts`; the language model is frozen.
    """

    def __init__(self, texts: Sequence[str], loaded: LoadedMLM, max_length: int) -> None:
        self._bare = BareTexts(texts, loaded, max_length)
        self._loaded = loaded
        self._known: dict[int, Tensor] = {}

    def batch(self, indices: Sequence[int], labels: Sequence[int] | None = None) -> dict[str, Tensor]:
        """``features`` ``[B, d_o]`` and ``label``."""
        features = torch.cat([self._feature(index) for index in indices])
        return _labelled({"features": features}, labels, self._loaded)

    @torch.no_grad()
    def _feature(self, index: int) -> Tensor:
        # One text at a time: the last bits then do not depend on which tasks were evaluated before.
        if index not in self._known:
            self._known[index] = mean_pooled(self._loaded.model.base_model, self._bare.batch([index])).float()
        return self._known[index]


@dataclass(frozen=True)
class MaskFeatures:
    """The [MASK]'s hidden states under the template without the pool: the pool's own query vectors."""

    texts: TokenizedTexts | OpenPromptTexts
    loaded: LoadedMLM

    def batch(self, indices: Sequence[int], labels: Sequence[int] | None = None) -> dict[str, Tensor]:
        """``features`` ``[B, d_o]`` and ``label``."""
        return _labelled({"features": self.texts.queries(indices)}, labels, self.loaded)


def _labelled(batch: dict[str, Tensor], labels: Sequence[int] | None, loaded: LoadedMLM) -> dict[str, Tensor]:
    if labels is not None:
        batch["label"] = torch.tensor(list(labels), dtype=torch.long)
    return {key: value.to(loaded.model.device) for key, value in batch.items()}


# -- What a user would do instead, on the same frozen encoder: a classifier of its features, with no training at all --


def build_mask_prototypes(
    config: RunConfig, loaded: LoadedMLM, dataset: TextDataset, seed: int, show_progress: bool = False
) -> Method:
    """Class means of the [MASK]'s features; arguments as for ``build_method``."""
    # Only its query is asked, whatever the section says of the pool.
    template = pool_template(config, loaded, dataset, seed, **READ_AT_MASK, num_prompts=1, top_n=None, init="random")
    sources = task_sources(
        config,
        dataset,
        seed,
        lambda texts: MaskFeatures(build_texts(config, loaded, texts, template, show_progress), loaded),
    )
    return Method(FeatureLearner(class_means()), sources, num_parameters=0, eval_steps=0)


def build_mean_prototypes(
    config: RunConfig, loaded: LoadedMLM, dataset: TextDataset, seed: int, show_progress: bool = False
) -> Method:
    """Class means of mean-pooled features, and the names of the classes if they count."""
    section = config.settings(MeanPrototypesSection)
    means = class_means(section.name_weight, section.assignment_rounds)
    return _of_mean_features(config, loaded, dataset, seed, means, 0, reads_names=section.name_weight > 0)


def build_logistic_regression(
    config: RunConfig, loaded: LoadedMLM, dataset: TextDataset, seed: int, show_progress: bool = False
) -> Method:
    """A logistic regression of mean-pooled features."""
    weights = config.meta.way * (loaded.model.config.hidden_size + 1)
    return _of_mean_features(
        config,
        loaded,
        dataset,
        seed,
        logistic_regression(config.settings(LogisticRegressionSection).strength),
        weights,
    )


def build_nearest_neighbours(
    config: RunConfig, loaded: LoadedMLM, dataset: TextDataset, seed: int, show_progress: bool = False
) -> Method:
    """The nearest neighbours among mean-pooled features."""
    neighbours = config.settings(NearestNeighboursSection).neighbours or config.meta.shot
    return _of_mean_features(config, loaded, dataset, seed, nearest_neighbours(neighbours), 0)


def _of_mean_features(
    config: RunConfig,
    loaded: LoadedMLM,
    dataset: TextDataset,
    seed: int,
    fit: Fit,
    num_parameters: int,
    reads_names: bool = False,
) -> Method:
    sources = task_sources(
        config, dataset, seed, lambda texts: MeanFeatures(texts, loaded, config.dataset.max_seq_length), reads_names
    )
    return Method(FeatureLearner(fit), sources, num_parameters, eval_steps=0)


# -- What a user would do instead, on an encoder tuned in each task: a classification head, or contrastive pairs ------


def build_fine_tuning(
    config: RunConfig, loaded: LoadedMLM, dataset: TextDataset, seed: int, show_progress: bool = False
) -> Method:
    """The encoder and a linear head; arguments as for ``build_method``."""
    section = config.settings(FineTuningSection)
    loaded = own_copy(loaded)
    learner = HeadLearner(loaded.model.base_model, section.lr, section.head_lr, **_common(config, seed))
    return _method(config, loaded, dataset, seed, learner, section.steps)


def build_contrastive(
    config: RunConfig, loaded: LoadedMLM, dataset: TextDataset, seed: int, show_progress: bool = False
) -> Method:
    """The encoder on pairs of texts, and a logistic regression of its features."""
    section = config.settings(ContrastiveSection)
    loaded = own_copy(loaded)
    fit = logistic_regression(config.settings(LogisticRegressionSection).strength)
    learner = ContrastiveLearner(loaded.model.base_model, section.lr, fit, section.pairs, **_common(config, seed))
    return _method(config, loaded, dataset, seed, learner, section.steps)


def _common(config: RunConfig, seed: int) -> dict[str, Any]:
    return {"seed": seed, "dropout": config.plm.dropout, "products": product_precision(config)}


def _method(
    config: RunConfig, loaded: LoadedMLM, dataset: TextDataset, seed: int, learner: TaskLearner, steps: int
) -> Method:
    sources = task_sources(
        config, dataset, seed, lambda texts: BareTexts(texts, loaded, config.dataset.max_seq_length)
    )
    encoder = sum(parameter.numel() for parameter in loaded.model.base_model.parameters())
    return Method(learner, sources, encoder + config.meta.way * (loaded.model.config.hidden_size + 1), steps)
