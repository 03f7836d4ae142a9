"""A verbalizer by itself: a discrete prompt, and all parameters fine-tuned on each task from the same weights."""

from __future__ import annotations

from openprompt_meta.config.schema import RunConfig
from openprompt_meta.data.dataset import TextDataset
from openprompt_meta.encoder.loading import LoadedMLM
from openprompt_meta.learners.adapters import InPlace
from openprompt_meta.learners.meta import AdaptingLearner
from openprompt_meta.learners.optim import InnerSteps
from openprompt_meta.methods import VerbalizerTuningSection
from openprompt_meta.methods.building import inner_loop, task_sources, verbalizer_of
from openprompt_meta.methods.language_model import build_classifier, build_texts, own_copy
from openprompt_meta.methods.method import Method
from openprompt_meta.prompts.pool_template import DiscreteTemplate


def build_verbalizer_tuning(
    config: RunConfig, loaded: LoadedMLM, dataset: TextDataset, seed: int, show_progress: bool = False
) -> Method:
    """Language model and verbalizer are tuned in each task; arguments as for ``build_method``."""
    section = config.settings(VerbalizerTuningSection)
    loaded = own_copy(loaded)
    template = DiscreteTemplate(
        loaded.model,
        loaded.tokenizer,
        config.prompt_pool_template.text,
        config.dataset.max_seq_length,
        config.prompt_pool_template.features,
    ).to(loaded.model.device)
    classifier = build_classifier(config, loaded, template, verbalizer_of(config, loaded, seed), tuned=True)
    model = list(loaded.model.parameters())
    adapter = InPlace(
        template.pool, [InnerSteps(model, section.lr, section.optimizer)], (section.lr, section.optimizer)
    )
    return Method(
        learner=AdaptingLearner(inner_loop(config, classifier, seed), adapter),
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
