"""MetaPrompter: a frozen language model, a meta-learned pool of prompts, a verbalizer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch

from openprompt_meta.config import RunConfig
from openprompt_meta.data import EpisodeSampler, TextDataset
from openprompt_meta.errors import ConfigError
from openprompt_meta.learners import BaseLearner, MamlLearner, MetaLearner
from openprompt_meta.methods.task_source import TaskSource
from openprompt_meta.model import LoadedMLM, MaskClassifier, MaskOnlyClassifier, load_mlm
from openprompt_meta.model.encoded_texts import EncodedTexts
from openprompt_meta.model.vocabulary_head import vocabulary_head
from openprompt_meta.prompts import EpisodicVerbalizer, PromptPoolTemplate
from openprompt_meta.prompts.registry import VERBALIZERS

__all__ = ["MetaPrompter", "build_metaprompter", "load_language_model"]

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


def load_language_model(config: RunConfig) -> LoadedMLM:
    """The language model that a configuration asks for, frozen, on its device.

    Attention is eager for second-order gradients, which torch's fused attention does not have on a CPU.
    """
    attention = config.plm.attn_implementation
    if attention is None and not config.meta.first_order:
        attention = "eager"
    loaded = load_mlm(config.plm.model_path, attention)
    loaded.model.requires_grad_(False)
    loaded.model.to(torch_device(config.run.device), getattr(torch, config.plm.precision))
    return loaded


def torch_device(name: str) -> torch.device:
    """The device of that name; ``auto`` is CUDA if there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    device = torch.device(name)
    try:
        torch.empty(0, device=device)
    except (AssertionError, RuntimeError) as error:
        raise ConfigError(
            f"run.device: {name} cannot be used here ({str(error).splitlines()[0]}). Use auto or cpu."
        ) from None
    return device


def build_metaprompter(config: RunConfig, loaded: LoadedMLM, dataset: TextDataset, seed: int) -> MetaPrompter:
    """Put the method together for one seed.

    Args:
        config: the whole run.
        loaded: from :func:`load_language_model`; it is read, never changed, so seeds may share it.
        dataset: the texts.
        seed: of the pool's start and of the tasks.
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
    with torch.random.fork_rng():
        torch.manual_seed(seed)  # for a verbalizer that starts at random
        verbalizer = _verbalizer(config, loaded)
    classifier = _classifier(loaded, template, verbalizer, config.plm.dropout)
    base_learner = BaseLearner(classifier, meta.loss, meta.label_embeddings, meta.first_order, seed)
    optimizer = _OPTIMIZERS[meta.optimizer](template.pool.parameters(), lr=meta.outer_lr)
    learner = MamlLearner(template.pool, base_learner, optimizer, meta.inner_lr, meta.inner_steps, meta.first_order)
    wrapper = loaded.wrapper(tokenizer=loaded.tokenizer, max_seq_length=config.dataset.max_seq_length)
    sources = {
        split.name: TaskSource(
            EpisodeSampler(split, meta.way, meta.shot, meta.query, seed),
            EncodedTexts(split.texts, template, wrapper, device=loaded.model.device),
            dataset.label_words,
        )
        for split in (dataset.train, dataset.valid, dataset.test)
    }
    return MetaPrompter(learner, classifier, sources)


def _verbalizer(config: RunConfig, loaded: LoadedMLM) -> EpisodicVerbalizer:
    settings: dict[str, Any] = asdict(getattr(config, config.verbalizer))
    # Classes and their words come with each task.
    verbalizer: EpisodicVerbalizer = VERBALIZERS[config.verbalizer](
        tokenizer=loaded.tokenizer, model=loaded.model, **settings
    )
    return verbalizer


def _classifier(
    loaded: LoadedMLM, template: PromptPoolTemplate, verbalizer: EpisodicVerbalizer, dropout: bool
) -> MaskClassifier:
    known = not verbalizer.needs_vocabulary_head or vocabulary_head(loaded.model) is not None
    kind = MaskOnlyClassifier if known else MaskClassifier
    classifier = kind(loaded.model, template, verbalizer, freeze_plm=True, plm_eval_mode=not dropout)
    classifier.to(loaded.model.device)
    classifier.train(dropout)
    return classifier
