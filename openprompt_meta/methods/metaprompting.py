"""MetaPrompting (Hou et al., 2022): one meta-learned soft prompt, and the whole language model with it."""

from __future__ import annotations

from typing import Any

from openprompt_meta.config.schema import RunConfig
from openprompt_meta.data.dataset import TextDataset
from openprompt_meta.encoder.classifier import MaskClassifier
from openprompt_meta.encoder.loading import LoadedMLM
from openprompt_meta.learners.adapters import InPlace, PoolClones
from openprompt_meta.learners.meta import GradientLearner
from openprompt_meta.learners.optim import InnerSteps
from openprompt_meta.methods import MetaPromptingSection
from openprompt_meta.methods.building import (
    inner_loop,
    meta_learner,
    pool_template,
    task_sources,
    verbalizer_of,
)
from openprompt_meta.methods.language_model import (
    TunedParameters,
    build_classifier,
    build_texts,
    own_copy,
    tokens_at_once,
)
from openprompt_meta.methods.method import Method
from openprompt_meta.prompts.pool import PromptPool


def build_metaprompting(
    config: RunConfig, loaded: LoadedMLM, dataset: TextDataset, seed: int, show_progress: bool = False
) -> Method:
    """A pool of one prompt, whose key plays no part and is not learned; the language model is tuned if asked for.

    Arguments as for :func:`~openprompt_meta.methods.method.build_method`.
    """
    tunes = config.settings(MetaPromptingSection).tune_model
    if tunes:
        loaded = own_copy(loaded)
    template = pool_template(config, loaded, dataset, seed, num_prompts=1, top_n=None)
    classifier = build_classifier(config, loaded, template, verbalizer_of(config, loaded, seed), tuned=tunes)
    pool: PromptPool = template.pool
    learner = _both(config, classifier, pool, seed) if tunes else _prompt(config, classifier, pool, seed)
    return Method(
        learner=learner,
        sources=task_sources(
            config,
            dataset,
            seed,
            lambda texts: build_texts(config, loaded, texts, template, show_progress, queries=False),
        ),
        num_parameters=pool.prompts.numel()
        + sum(p.numel() for p in loaded.model.parameters() if tunes)
        + len(config.verbalizer_section.learned),
        eval_steps=config.meta.inner_steps_eval,
        classifier=classifier,
    )


def _both(config: RunConfig, classifier: MaskClassifier, pool: PromptPool, seed: int) -> GradientLearner:
    """Prompt and language model, each with step sizes of its own."""
    section, meta = config.settings(MetaPromptingSection), config.meta
    model = list(classifier.plm.parameters())
    adapter = InPlace(
        pool,
        [InnerSteps([pool.prompts], meta.inner_lr), InnerSteps(model, section.model_lr, section.model_optimizer)],
    )
    learned = TunedParameters({"model": classifier.plm}, prompts=pool.prompts)
    groups: list[dict[str, Any]] = [{"params": [pool.prompts]}, {"params": model, "lr": section.model_outer_lr}]
    return meta_learner(config, learned, inner_loop(config, classifier, seed), adapter, groups)


def _prompt(config: RunConfig, classifier: MaskClassifier, pool: PromptPool, seed: int) -> GradientLearner:
    """The prompt alone."""
    meta = config.meta
    adapter = PoolClones(pool, meta.inner_lr, meta.first_order, "prompts")
    base = inner_loop(config, classifier, seed, tokens_at_once(config))
    return meta_learner(config, pool, base, adapter, [{"params": [pool.prompts]}])
