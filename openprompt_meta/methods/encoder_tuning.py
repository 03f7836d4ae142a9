"""What a user would do instead, on an encoder tuned in each task: a classification head, or contrastive pairs."""

from __future__ import annotations

from typing import Any

from openprompt_meta.config import RunConfig
from openprompt_meta.data import TextDataset
from openprompt_meta.learners import TaskLearner
from openprompt_meta.learners.encoder_tuning import ContrastiveLearner, HeadLearner
from openprompt_meta.learners.feature_classifiers import logistic_regression
from openprompt_meta.methods.bare_texts import BareTexts
from openprompt_meta.methods.language_model import product_precision
from openprompt_meta.methods.method import Method
from openprompt_meta.methods.prompting import task_sources
from openprompt_meta.methods.tuned_model import own_copy, parameters_of
from openprompt_meta.model import LoadedMLM

__all__ = ["build_contrastive", "build_fine_tuning"]


def build_fine_tuning(
    config: RunConfig, loaded: LoadedMLM, dataset: TextDataset, seed: int, show_progress: bool = False
) -> Method:
    """The encoder and a linear head; arguments as for ``registry.build_method``."""
    section = config.fine_tuning
    loaded = own_copy(loaded)
    learner = HeadLearner(loaded.model.base_model, section.lr, section.head_lr, **_common(config, seed))
    return _method(config, loaded, dataset, seed, learner, section.steps)


def build_contrastive(
    config: RunConfig, loaded: LoadedMLM, dataset: TextDataset, seed: int, show_progress: bool = False
) -> Method:
    """The encoder on pairs of texts, and a logistic regression of its features."""
    section = config.contrastive
    loaded = own_copy(loaded)
    fit = logistic_regression(config.logistic_regression.strength)
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
    encoder = sum(parameter.numel() for parameter in parameters_of(loaded.model.base_model))
    return Method(learner, sources, encoder + config.meta.way * (loaded.model.config.hidden_size + 1), steps)
