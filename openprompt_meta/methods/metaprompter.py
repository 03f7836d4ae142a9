"""MetaPrompter: a frozen language model, a meta-learned pool of prompts, a verbalizer."""

from __future__ import annotations

from dataclasses import dataclass

from openprompt_meta.config.schema import RunConfig
from openprompt_meta.data.dataset import TextDataset
from openprompt_meta.encoder.classifier import MaskClassifier
from openprompt_meta.encoder.loading import LoadedMLM
from openprompt_meta.learners.adapters import PoolClones
from openprompt_meta.learners.meta import GradientLearner
from openprompt_meta.methods.building import (
    inner_loop,
    meta_learner,
    pool_template,
    start_from_texts,
    task_sources,
    verbalizer_of,
)
from openprompt_meta.methods.language_model import build_classifier, build_texts, tokens_at_once
from openprompt_meta.methods.method import Method


@dataclass(frozen=True)
class MetaPrompter(Method):
    """The method with what it is known to have: a learner of a pool, and a classifier."""

    learner: GradientLearner
    classifier: MaskClassifier


def build_metaprompter(
    config: RunConfig, loaded: LoadedMLM, dataset: TextDataset, seed: int, show_progress: bool = False
) -> MetaPrompter:
    """Only the pool is tuned; arguments as for :func:`~openprompt_meta.methods.method.build_method`."""
    meta = config.meta
    template = pool_template(config, loaded, dataset, seed)
    classifier = build_classifier(config, loaded, template, verbalizer_of(config, loaded, seed))
    adapter = PoolClones(template.pool, meta.inner_lr, meta.first_order, meta.inner_parameters)
    base = inner_loop(config, classifier, seed, tokens_at_once(config))
    learner = meta_learner(config, template.pool, base, adapter)
    sources = task_sources(
        config,
        dataset,
        seed,
        lambda texts: build_texts(config, loaded, texts, template, show_progress, queries=template.asks_queries),
    )
    return MetaPrompter(
        learner=learner,
        sources=sources,
        num_parameters=sum(parameter.numel() for parameter in learner.meta_parameters.parameters()),
        eval_steps=meta.inner_steps_eval,
        classifier=classifier,
        start=lambda: start_from_texts(template, sources["train"], seed),
    )
