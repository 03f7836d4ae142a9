"""What a user would do instead, on the same frozen encoder: a classifier of its features, with no training at all."""

from __future__ import annotations

from openprompt_meta.config import RunConfig
from openprompt_meta.data import TextDataset
from openprompt_meta.learners.feature_classifiers import (
    FeatureLearner,
    Fit,
    class_means,
    logistic_regression,
    nearest_neighbours,
)
from openprompt_meta.methods.bare_texts import MaskFeatures, MeanFeatures
from openprompt_meta.methods.engine import build_texts
from openprompt_meta.methods.method import Method
from openprompt_meta.methods.prompting import pool_template, task_sources
from openprompt_meta.model import LoadedMLM

__all__ = [
    "build_logistic_regression",
    "build_mask_prototypes",
    "build_mean_prototypes",
    "build_nearest_neighbours",
]


def build_mask_prototypes(
    config: RunConfig, loaded: LoadedMLM, dataset: TextDataset, seed: int, show_progress: bool = False
) -> Method:
    """Class means of the [MASK]'s features; arguments as for ``registry.build_method``."""
    template = pool_template(config, loaded, dataset, seed)
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
    """Class means of mean-pooled features."""
    return _of_mean_features(config, loaded, dataset, seed, class_means(), 0)


def build_logistic_regression(
    config: RunConfig, loaded: LoadedMLM, dataset: TextDataset, seed: int, show_progress: bool = False
) -> Method:
    """A logistic regression of mean-pooled features."""
    weights = config.meta.way * (loaded.model.config.hidden_size + 1)
    return _of_mean_features(
        config, loaded, dataset, seed, logistic_regression(config.logistic_regression.strength), weights
    )


def build_nearest_neighbours(
    config: RunConfig, loaded: LoadedMLM, dataset: TextDataset, seed: int, show_progress: bool = False
) -> Method:
    """The nearest neighbours among mean-pooled features."""
    neighbours = config.nearest_neighbours.neighbours or config.meta.shot
    return _of_mean_features(config, loaded, dataset, seed, nearest_neighbours(neighbours), 0)


def _of_mean_features(
    config: RunConfig, loaded: LoadedMLM, dataset: TextDataset, seed: int, fit: Fit, num_parameters: int
) -> Method:
    sources = task_sources(
        config, dataset, seed, lambda texts: MeanFeatures(texts, loaded, config.dataset.max_seq_length)
    )
    return Method(FeatureLearner(fit), sources, num_parameters, eval_steps=0)
