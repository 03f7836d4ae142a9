"""MetaPrompter: a frozen language model, a meta-learned pool of prompts, a verbalizer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass

import torch

from openprompt_meta.config import RunConfig
from openprompt_meta.data import EpisodeSampler, TextDataset
from openprompt_meta.learners import BaseLearner, MamlLearner, MetaLearner
from openprompt_meta.methods.engine import build_classifier, build_texts, tokens_at_once
from openprompt_meta.methods.task_source import TaskSource
from openprompt_meta.methods.verbalizer import build_verbalizer
from openprompt_meta.model import LoadedMLM, MaskClassifier
from openprompt_meta.prompts import PromptPoolTemplate

__all__ = ["MetaPrompter", "build_metaprompter"]

_OPTIMIZERS = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}


@dataclass(frozen=True)
class MetaPrompter:
    """A method ready to be trained and tested.

    Attributes:
        learner: the meta-learner around the pool.
        classifier: the frozen language model with template and verbalizer.
        sources: tasks of the splits ``train``, ``valid`` and ``test``.
    """

    learner: MetaLearner
    classifier: MaskClassifier
    sources: Mapping[str, TaskSource]

    @property
    def num_parameters(self) -> int:
        """Meta-parameters, those of the pool."""
        return sum(parameter.numel() for parameter in self.learner.pool.parameters())


def build_metaprompter(
    config: RunConfig, loaded: LoadedMLM, dataset: TextDataset, seed: int, show_progress: bool = False
) -> MetaPrompter:
    """Put the method together for one seed.

    Args:
        config: the whole run.
        loaded: from ``load_language_model``; it is read, never changed, so seeds may share it.
        dataset: the texts.
        seed: of the pool's start and of the tasks.
        show_progress: draw a progress bar while query vectors are computed.
    """
    meta = config.meta
    # What the prompts start from must not know the classes they will be tested on.
    words = {name: dataset.label_words[name] for name in dataset.train.classes if name in dataset.label_words}
    template = PromptPoolTemplate(
        loaded.model,
        loaded.tokenizer,
        **{**asdict(config.prompt_pool_template), "label_words": words},
        seed=seed,
        max_seq_length=config.dataset.max_seq_length,
    ).to(loaded.model.device)
    classifier = build_classifier(config, loaded, template, build_verbalizer(config, loaded, seed))
    base_learner = BaseLearner(
        classifier, meta.loss, meta.label_embeddings, meta.first_order, seed, tokens_at_once(config)
    )
    optimizer = _OPTIMIZERS[meta.optimizer](template.pool.parameters(), lr=meta.outer_lr)
    learner = MamlLearner(template.pool, base_learner, optimizer, meta.inner_lr, meta.inner_steps, meta.first_order)
    sources = {
        split.name: TaskSource(
            EpisodeSampler(split, meta.way, meta.shot, meta.query, seed),
            build_texts(config, loaded, split.texts, template, show_progress),
            dataset.label_words,
        )
        for split in (dataset.train, dataset.valid, dataset.test)
    }
    return MetaPrompter(learner, classifier, sources)
