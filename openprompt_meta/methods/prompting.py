"""What methods that prompt have in common: template, verbalizer, base learner, meta-learner, tasks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import torch
from torch import nn

from openprompt_meta.config import RunConfig
from openprompt_meta.data import EpisodeSampler, TextDataset
from openprompt_meta.learners import (
    Adapter,
    BaseLearner,
    BmgLearner,
    GradientLearner,
    MamlLearner,
    ReptileLearner,
)
from openprompt_meta.learners.gradient_steps import new_optimizer
from openprompt_meta.methods.language_model import product_precision
from openprompt_meta.methods.task_source import TaskSource, Texts
from openprompt_meta.model import LoadedMLM, MaskClassifier
from openprompt_meta.prompts import EpisodicVerbalizer, PromptPoolTemplate
from openprompt_meta.prompts.registry import VERBALIZERS

__all__ = ["base_learner", "meta_learner", "pool_template", "task_sources", "verbalizer_of"]


def pool_template(
    config: RunConfig, loaded: LoadedMLM, dataset: TextDataset, seed: int, **others: Any
) -> PromptPoolTemplate:
    """The template of the configuration's section, with ``others`` in place of what stands there."""
    # What the prompts start from must not know the classes they will be tested on.
    words = {name: dataset.label_words[name] for name in dataset.train.classes if name in dataset.label_words}
    settings = {**asdict(config.prompt_pool_template), "label_words": words, **others}
    template: PromptPoolTemplate = PromptPoolTemplate(
        loaded.model, loaded.tokenizer, **settings, seed=seed, max_seq_length=config.dataset.max_seq_length
    ).to(loaded.model.device)
    return template


def verbalizer_of(config: RunConfig, loaded: LoadedMLM, seed: int) -> EpisodicVerbalizer:
    """The chosen verbalizer; classes and their words come with each task."""
    settings: dict[str, Any] = asdict(getattr(config, config.verbalizer))
    with torch.random.fork_rng():
        torch.manual_seed(seed)  # for a verbalizer that starts at random
        verbalizer: EpisodicVerbalizer = VERBALIZERS[config.verbalizer](
            tokenizer=loaded.tokenizer, model=loaded.model, **settings
        )
    return verbalizer


def base_learner(config: RunConfig, classifier: MaskClassifier, seed: int, tokens_at_once: int = 0) -> BaseLearner:
    """What is done inside a task."""
    meta = config.meta
    return BaseLearner(
        classifier,
        meta.loss,
        meta.label_embeddings,
        meta.first_order,
        seed,
        tokens_at_once,
        products=product_precision(config),
    )


def meta_learner(
    config: RunConfig,
    learned: nn.Module,
    base: BaseLearner,
    adapter: Adapter,
    groups: Sequence[Mapping[str, Any]] | None = None,
) -> GradientLearner:
    """The outer loop that ``meta.learner`` names.

    Args:
        config: the run.
        learned: what it learns.
        base: what is done inside a task.
        adapter: how tasks adapt what is learned.
        groups: for the optimiser, if not all parameters are learned at ``meta.outer_lr``.
    """
    meta = config.meta
    parameters: Any = learned.parameters() if groups is None else [dict(group) for group in groups]
    optimizer = new_optimizer(meta.optimizer, parameters, meta.outer_lr)
    common: dict[str, Any] = {"inner_steps": meta.inner_steps, "adapter": adapter}
    if meta.learner == "bmg":
        return BmgLearner(learned, base, optimizer, target_steps=meta.bmg_steps, **common)
    kind = ReptileLearner if meta.learner == "reptile" else MamlLearner
    return kind(learned, base, optimizer, **common)


def task_sources(
    config: RunConfig, dataset: TextDataset, seed: int, encode: Callable[[Sequence[str]], Texts]
) -> dict[str, TaskSource]:
    """The tasks of every split, which depend on data, sizes and seed alone: all methods see the same ones.

    With ``meta.test_classes: valid`` those of the test are of the validation classes.

    Args:
        config: the run.
        dataset: the texts.
        seed: of the tasks.
        encode: the texts of a split in the form that the method's learner takes.
    """
    meta = config.meta
    splits = (dataset.train, dataset.valid, *([dataset.test] if meta.test_classes == "test" else []))
    sources = {
        split.name: TaskSource(
            EpisodeSampler(split, meta.way, meta.shot, meta.query, seed), encode(split.texts), dataset.label_words
        )
        for split in splits
    }
    return {**sources, "test": sources[meta.test_classes]}
