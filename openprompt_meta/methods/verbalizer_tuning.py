"""A verbalizer by itself: a discrete prompt, and all parameters fine-tuned on each task from the same weights."""

from __future__ import annotations

from openprompt_meta.config import RunConfig
from openprompt_meta.data import TextDataset
from openprompt_meta.learners import AdaptingLearner, InnerSteps, InPlace
from openprompt_meta.methods.engine import build_classifier, build_texts
from openprompt_meta.methods.method import Method
from openprompt_meta.methods.prompting import base_learner, task_sources, verbalizer_of
from openprompt_meta.methods.tuned_model import own_copy, parameters_of
from openprompt_meta.model import LoadedMLM
from openprompt_meta.prompts import DiscreteTemplate

__all__ = ["build_verbalizer_tuning"]


def build_verbalizer_tuning(
    config: RunConfig, loaded: LoadedMLM, dataset: TextDataset, seed: int, show_progress: bool = False
) -> Method:
    """Language model and verbalizer are tuned in each task; arguments as for ``registry.build_method``."""
    section = config.verbalizer_tuning
    loaded = own_copy(loaded)
    template = DiscreteTemplate(
        loaded.model, loaded.tokenizer, config.prompt_pool_template.text, config.dataset.max_seq_length
    ).to(loaded.model.device)
    classifier = build_classifier(config, loaded, template, verbalizer_of(config, loaded, seed), tuned=True)
    model = parameters_of(loaded.model)
    adapter = InPlace(
        template.pool, [InnerSteps(model, section.lr, section.optimizer)], (section.lr, section.optimizer)
    )
    return Method(
        learner=AdaptingLearner(base_learner(config, classifier, seed), adapter),
        sources=task_sources(
            config,
            dataset,
            seed,
            lambda texts: build_texts(config, loaded, texts, template, show_progress, queries=False),
        ),
        num_parameters=sum(parameter.numel() for parameter in model),
        eval_steps=section.steps,
        classifier=classifier,
    )
