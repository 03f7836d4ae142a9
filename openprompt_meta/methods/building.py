"""What methods that prompt have in common: template, verbalizer, inner loop, meta-learner, tasks."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import torch
from torch import nn

from openprompt_meta.components import meta_learners, verbalizers
from openprompt_meta.config.schema import RunConfig
from openprompt_meta.data.classes import text_of_words, words_of_class_name
from openprompt_meta.data.dataset import Split, TextDataset
from openprompt_meta.data.episodes import Episodes, EpisodeSampler, VariedEpisodeSampler
from openprompt_meta.encoder.classifier import MaskClassifier
from openprompt_meta.encoder.loading import LoadedMLM
from openprompt_meta.encoder.texts import OpenPromptTexts, TokenizedTexts
from openprompt_meta.learners.adapters import Adapter
from openprompt_meta.learners.inner import InnerLoop
from openprompt_meta.learners.meta import GradientLearner
from openprompt_meta.learners.optim import new_optimizer
from openprompt_meta.methods.language_model import TunedParameters, product_precision
from openprompt_meta.methods.method import TaskSource, Texts
from openprompt_meta.pools import learned_classes
from openprompt_meta.prompts.pool_template import PromptPoolTemplate
from openprompt_meta.prompts.pooling import feature_size, suited_features
from openprompt_meta.verbalizers.base import EpisodicVerbalizer

logger = logging.getLogger(__name__)


def pool_template(
    config: RunConfig, loaded: LoadedMLM, dataset: TextDataset, seed: int, **others: Any
) -> PromptPoolTemplate:
    """The template of the configuration's section, with ``others`` in place of what stands there."""
    # What the prompts start from must not know the classes they will be tested on.
    words = {name: dataset.label_words[name] for name in dataset.train.classes if name in dataset.label_words}
    settings = {**config.prompt_pool_template.model_dump(), "label_words": words, **others}
    if settings["init"] == "general":
        _warn_of_classes_that_were_learned(dataset)
    template: PromptPoolTemplate = PromptPoolTemplate(
        loaded.model, loaded.tokenizer, **settings, seed=seed, max_seq_length=config.dataset.max_seq_length
    ).to(loaded.model.device)
    return template


def _warn_of_classes_that_were_learned(dataset: TextDataset) -> None:
    """Say so if the pool that ships has learned classes that this run calls unseen: other splits than the usual do."""
    learned = set(learned_classes())
    for split in (dataset.valid, dataset.test):
        both = [name for name in split.classes if name in learned or f"{dataset.name}/{name}" in learned]
        if both:
            logger.warning(
                "The pool that ships, which init: general starts from, was learned on %d of the %s classes (%s): what "
                "is measured on them is no measure of unseen classes. Use the default splits, or another init.",
                len(both),
                split.name,
                ", ".join(both[:5]),
            )


def verbalizer_of(config: RunConfig, loaded: LoadedMLM, seed: int) -> EpisodicVerbalizer:
    """The chosen verbalizer; classes and their words come with each task."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)  # for a verbalizer that starts at random
        made = verbalizers()[config.verbalizer].load()
        settings = config.verbalizer_section.model_dump()
        if "feature_size" in inspect.signature(made).parameters:
            template = config.prompt_pool_template
            settings["feature_size"] = feature_size(loaded.model, suited_features(template.features, loaded.model))
        verbalizer: EpisodicVerbalizer = made(tokenizer=loaded.tokenizer, model=loaded.model, **settings)
    return verbalizer


def inner_loop(config: RunConfig, classifier: MaskClassifier, seed: int, tokens_at_once: int = 0) -> InnerLoop:
    """What is done inside a task."""
    meta = config.meta
    return InnerLoop(
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
    base: InnerLoop,
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
    verbalizer: EpisodicVerbalizer = base.classifier.verbalizer
    scalars = list(verbalizer.scalars.parameters()) if verbalizer.scalars else []
    if scalars and verbalizer.scalars:
        own = [{"params": list(learned.parameters())}] if groups is None else parameters
        parameters = [*own, {"params": scalars, "lr": meta.scalar_lr, "weight_decay": 0.0}]
        learned = TunedParameters(
            {"verbalizer": verbalizer.scalars},
            dict(learned.named_buffers()),
            **dict(learned.named_parameters()),
        )
    optimizer = new_optimizer(meta.optimizer, parameters, meta.outer_lr, meta.weight_decay)
    declaration = meta_learners()[meta.learner]
    learner: GradientLearner = declaration.load()(
        learned,
        base,
        optimizer,
        inner_steps=meta.inner_steps,
        longest_gradient=meta.outer_clip,
        adapter=adapter,
        **config.section_of(declaration).model_dump(),
    )
    return learner


M = TypeVar("M", bound=nn.Module)


def started_at_random(seed: int, made: Callable[[], M], device: torch.device | str = "cpu") -> M:
    """A network whose weights start at random, the same for the same seed."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return made().to(device)


def episodic_options(
    config: RunConfig, network: nn.Module, seed: int
) -> tuple[torch.optim.Optimizer, int, float | None]:
    """Optimiser, seed and longest gradient of an :class:`~openprompt_meta.learners.episodic.EpisodicLearner`."""
    meta = config.meta
    optimizer = new_optimizer(meta.optimizer, network.parameters(), meta.outer_lr, meta.weight_decay)
    return optimizer, seed, meta.outer_clip


def task_sources(
    config: RunConfig,
    dataset: TextDataset,
    seed: int,
    encode: Callable[[Sequence[str]], Texts],
    reads_names: bool | None = None,
) -> dict[str, TaskSource]:
    """The tasks of every split, which depend on data, sizes and seed alone: all methods see the same ones.

    With ``meta.test_classes: valid`` those of the test are of the validation classes.

    Args:
        config: the run.
        dataset: the texts.
        seed: of the tasks.
        encode: the texts of a split in the form that the method's learner takes.
        reads_names: whether tasks bring the names of their classes; by default if the verbalizer reads them.
    """
    reads_names = config.reads_names if reads_names is None else reads_names
    meta = config.meta
    splits = (dataset.train, dataset.valid, *([dataset.test] if meta.test_classes == "test" else []))
    varied = bool(meta.train_ways or meta.train_shots)
    sources = {}
    for split in splits:
        trains = split is dataset.train
        episodes: Episodes
        if trains and varied:
            episodes = VariedEpisodeSampler(
                split, _bounds(meta.train_ways, meta.way), _bounds(meta.train_shots, meta.shot), meta.train_texts, seed
            )
        else:
            episodes = EpisodeSampler(split, meta.way, meta.shot, meta.query, seed)
        sources[split.name] = TaskSource(
            episodes,
            encode(split.texts),
            dataset.label_words,
            _names(dataset, split, encode, several=trains and varied) if reads_names else None,
            meta.train_names if trains else 1.0,
        )
    return {**sources, "test": sources[meta.test_classes]}


def _bounds(given: Sequence[int], otherwise: int) -> tuple[int, int]:
    low, high = given or (otherwise, otherwise)
    return low, high


def _names(
    dataset: TextDataset, split: Split, encode: Callable[[Sequence[str]], Texts], several: bool
) -> tuple[Texts, dict[str, list[int]]]:
    """The words of each class of a split as a text, and where those of which class are.

    With ``several`` a class has texts in each style that people write names in: its words, and its own name.
    """
    texts: list[str] = []
    places: dict[str, list[int]] = {}
    for name in split.classes:
        own = words_of_class_name(name.rpartition("/")[2] if split.domains else name)
        words = dataset.label_words.get(name) or own
        styles = (text_of_words(words), " ".join(words), " ".join(own)) if several else (text_of_words(words),)
        distinct = list(dict.fromkeys(styles))
        places[name] = list(range(len(texts), len(texts) + len(distinct)))
        texts += distinct
    return encode(texts), places


_MOST_QUERIES = 4096  # are enough for a mean and a few centres
_AT_ONCE = 64


@torch.no_grad()
def start_from_texts(template: PromptPoolTemplate, source: TaskSource, seed: int) -> None:
    """Let the pool start from the queries of meta-training texts, if its attention or its keys do."""
    if not template.starts_from_queries:
        return
    texts = source.texts
    assert isinstance(texts, TokenizedTexts | OpenPromptTexts)  # noqa: S101 - for the type checker
    chosen = torch.randperm(len(texts), generator=torch.Generator().manual_seed(seed))[:_MOST_QUERIES].tolist()
    parts = [chosen[start : start + _AT_ONCE] for start in range(0, len(chosen), _AT_ONCE)]
    template.start_from_queries(torch.cat([texts.queries(part) for part in parts]), seed)
