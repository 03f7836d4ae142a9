"""Adapting a pool to a few labelled texts, as meta-testing does, and what comes of it: values in, values out."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TypeAlias

import torch
from torch import Tensor

from openprompt_meta.classifier.inputs import Label
from openprompt_meta.classifier.pretrained import BaseModel, MetaLearned, Tensors, template_with, tensors_of
from openprompt_meta.config.schema import RunConfig
from openprompt_meta.data.classes import telling_words, text_of_words, words_of_class_name
from openprompt_meta.encoder.batching import groups_by_length
from openprompt_meta.encoder.classifier import EncoderOutput, MaskClassifier
from openprompt_meta.encoder.queries import query_vectors
from openprompt_meta.encoder.wrapping import TokenRows, wrap_texts
from openprompt_meta.learners.adapters import PoolClones
from openprompt_meta.learners.inner import InnerLoop, task_randomness
from openprompt_meta.learners.meta import take_inner_steps
from openprompt_meta.learners.task import Batch, Task
from openprompt_meta.methods.building import verbalizer_of
from openprompt_meta.methods.language_model import build_classifier
from openprompt_meta.prompts.pool import PromptPool
from openprompt_meta.prompts.pool_template import PromptPoolTemplate

# Learning draws from torch's one generator, so two adaptations at a time would share it. Taken before a model's
# ``tokenizing``, never after it.
ONE_AT_A_TIME = threading.Lock()

_TOKENS = 8192  # that go through the model at a time without gradient


def wrapped(base: BaseModel, config: RunConfig, template: PromptPoolTemplate, texts: Sequence[str]) -> TokenRows:
    """The texts wrapped and tokenised; one thread at a time, which is what a fast tokenizer takes."""
    wrapper = base.loaded.wrapper(tokenizer=base.loaded.tokenizer, max_seq_length=config.dataset.max_seq_length)
    with base.tokenizing:
        return wrap_texts(texts, template, wrapper)


@dataclass(frozen=True)
class Support:
    """Labelled texts to adapt to; ``labels[i]`` is a position in ``classes``, ``names`` are those that are read."""

    texts: Sequence[str]
    labels: Sequence[int]
    classes: Sequence[str]
    label_words: Mapping[str, Sequence[str]]
    names: Mapping[str, str]


@dataclass(frozen=True)
class Adapted:
    """What adaptation gives, as tensors on the CPU.

    Attributes:
        pool: the adapted pool.
        verbalizer: the verbalizer fitted to the support set as that pool shows it.
        features: the support set's features under that pool, ``[n, d_o]``.
        inner_losses: the support loss before each inner step.
    """

    pool: Tensors
    verbalizer: Tensors
    features: Tensor
    inner_losses: Sequence[float]


@dataclass(frozen=True)
class FittedTask:
    """What :meth:`MetaPromptClassifier.fit` learned. It never changes.

    Attributes:
        meta: what it was learned from.
        classes: the classes, sorted.
        labels: the class of each support example, as a position in ``classes``.
        texts: the support examples; ``None`` if they were left out when it was saved.
        label_words: words of each class by its name, if the user gave some.
        adapted: pool, verbalizer and the features of the support examples, of which there are none without texts.
    """

    meta: MetaLearned
    classes: tuple[Label, ...]
    labels: tuple[int, ...]
    texts: tuple[str, ...] | None
    label_words: Mapping[str, Sequence[str]] | None
    adapted: Adapted

    @property
    def class_names(self) -> list[str]:
        """The classes as strings."""
        return [str(name) for name in self.classes]

    @property
    def words(self) -> dict[str, Sequence[str]]:
        """Words of each class: the user's, or those in its name."""
        return words_of(self.class_names, self.label_words)

    @property
    def counts(self) -> list[int]:
        """Support examples of each class."""
        return [self.labels.count(i) for i in range(len(self.classes))]


def words_of(names: Sequence[str], given: Mapping[str, Sequence[str]] | None) -> dict[str, Sequence[str]]:
    """Words of each class: those given, or those in its name."""
    known = given or {}
    return {name: known.get(name) or words_of_class_name(name) for name in names}


def names_to_read(
    names: Sequence[str], given: Mapping[str, Sequence[str]] | None, every: bool = False
) -> dict[str, str]:
    """What is read of the classes as texts: the words given, or the class's name if that says something of it.

    Args:
        names: of the classes.
        given: words of some of them.
        every: take names that say nothing too, for a verbalizer that does without none.
    """
    known = given or {}
    texts = {
        name: text_of_words(known[name])
        if name in known
        else " ".join(words_of_class_name(name) if every else telling_words(name))
        for name in names
    }
    return {name: text for name, text in texts.items() if text}


KnownTexts: TypeAlias = Mapping[str, Tensor]
"""Features ``[d_o]`` of texts that were read before, under the pool as it is."""


def known_texts(task: FittedTask) -> KnownTexts:
    """What a fitted task knows of the texts it was fitted to: nothing, if its pool was adapted to them.

    A name is read as any text is, and is the only one of its class, so the average that is kept of it is its feature.
    """
    config = task.meta.config
    if config.meta.inner_steps_eval > 0 or config.verbalizer_section.needs_vocabulary_head:
        return {}
    found = dict(zip(task.texts or (), task.adapted.features, strict=True))
    features = task.adapted.verbalizer.get("name_features")
    if features is not None:
        every = not config.verbalizer_section.does_without_names
        read = names_to_read(task.class_names, task.label_words, every)
        own = dict(zip(task.class_names, features, strict=True))
        found |= {text: own[name] for name, text in read.items()}
    return found


def adapt_pool(
    base: BaseModel,
    config: RunConfig,
    pool: Tensors,
    support: Support,
    seed: int,
    most: int,
    known: KnownTexts = MappingProxyType({}),
) -> Adapted:
    """Adapt a copy of a pool to a support set as meta-testing does, and fit the verbalizer.

    Without inner steps the pool stays as it is: each text is read once, and none that is known.

    Args:
        base: the language model.
        config: inner loop, template and verbalizer.
        pool: where to start; it is not changed.
        support: the task.
        seed: of whatever is random on the way.
        most: texts that take part in the gradient steps at most (each class at least once); the verbalizer is fitted
            to all of them either way.
        known: of :func:`known_texts`; without inner steps only.

    Raises:
        NotFiniteError: the loss ran away.
        VerbalizerError: label words are missing or of no use to the tokenizer.
    """
    with ONE_AT_A_TIME:
        with base.tokenizing:
            template = template_with(base, config, pool)
            classifier = build_classifier(config, base.loaded, template, verbalizer_of(config, base.loaded, seed))
        if config.meta.inner_steps_eval == 0 or not support.texts:
            features = _fit_once(base, config, classifier, support, seed, known)
            return Adapted(tensors_of(template.pool), tensors_of(classifier.verbalizer), features.cpu(), [])
        task = _task(base, config, classifier, support)
        part = _part(task, most, seed)
        learner = InnerLoop(classifier, config.meta.loss, config.meta.label_embeddings, seed=seed)
        adapter = PoolClones(template.pool, config.meta.inner_lr, adapted=config.meta.inner_parameters)
        steps = config.meta.inner_steps_eval
        with task_randomness(seed, task):
            opened = learner.open([part])
            with adapter.begin(opened, learns=False) as adaptation:
                (losses,) = take_inner_steps(opened, adaptation, steps)
                (adapted,) = adaptation.pools
            refit = config.meta.label_embeddings == "adapted" or part is not task
            features = _fit(classifier, adapted, task, refit)
        return Adapted(tensors_of(adapted), tensors_of(classifier.verbalizer), features.cpu(), losses)


@torch.no_grad()
def leave_one_out(base: BaseModel, task: FittedTask, most: int) -> tuple[int, int] | None:
    """How many of a task's examples are classified rightly by all the others, and of how many.

    The verbalizer is fitted anew without each example; the features are those of the fit, which is right where no
    example had a part in another's features.

    Args:
        base: the language model.
        task: what was fitted.
        most: examples that are left out at most, of each class in turn, drawn by the task's seed.

    Returns:
        ``None`` where it cannot be had: a class has one example or none, the pool was adapted to the examples, they
        were left out when it was saved, or words are predicted by the vocabulary head, whose logits are not kept.
    """
    config = task.meta.config
    kept = len(task.adapted.features) == len(task.labels)
    if not kept or min(task.counts) < 2 or config.meta.inner_steps_eval > 0:
        return None
    with ONE_AT_A_TIME:
        with base.tokenizing:
            verbalizer = verbalizer_of(config, base.loaded, task.meta.seed)
            if verbalizer.needs_vocabulary_head:
                return None
            verbalizer.begin_task(task.class_names, task.words)
        features, labels = task.adapted.features, torch.tensor(task.labels)
        right = 0
        chosen = in_turns(task.labels, most, task.meta.seed)
        for row in chosen:
            others = torch.arange(len(labels)) != row
            fitted = verbalizer.clone()
            fitted.load_state_dict(dict(task.adapted.verbalizer))  # the names as they were read
            fitted.eval().fit_support(features[others], None, labels[others])
            right += int(fitted.log_probabilities(features[row : row + 1], None).argmax()) == task.labels[row]
    return right, len(chosen)


@torch.no_grad()
def _fit_once(
    base: BaseModel,
    config: RunConfig,
    classifier: MaskClassifier,
    support: Support,
    seed: int,
    known: KnownTexts,
) -> Tensor:
    """Fit the verbalizer to the support set as the pool shows it without a step; the support set's features."""
    verbalizer, device = classifier.verbalizer, base.loaded.model.device
    with task_randomness(seed, Task(0, support.classes, support.label_words, support={}, query={})):
        verbalizer.begin_task(support.classes, support.label_words)
    names = support.names if config.reads_names else {}
    if config.verbalizer_section.needs_vocabulary_head:  # logits, which nobody keeps
        known = {}
    texts = [*support.texts, *names.values()]
    new = [text for text in dict.fromkeys(texts) if text not in known]
    reading = None if not new else _read(classifier, classifier.template.pool, _batch(base, config, classifier, new))
    rows = {text: row for row, text in enumerate(new)}

    def of(own: Sequence[str]) -> EncoderOutput:
        if not own:
            return EncoderOutput(torch.zeros(0, classifier.template.feature_size, device=device), None)
        logits = None
        if reading is not None and reading.logits is not None:  # then nothing is known
            logits = reading.logits[[rows[text] for text in own]]
        features = [
            known[text].to(device) if reading is None or text not in rows else reading.features[rows[text]]
            for text in own
        ]
        return EncoderOutput(torch.stack(features), logits)

    if names:
        verbalizer.fit_names(
            of(list(names.values())).features,
            torch.tensor([support.classes.index(name) for name in names], device=device),
        )
    elif verbalizer.reads_names:
        verbalizer.leave_out_names()
    own = of(support.texts)
    verbalizer.fit_support(own.features, own.logits, torch.tensor(support.labels, dtype=torch.long, device=device))
    return own.features


def _batch(base: BaseModel, config: RunConfig, classifier: MaskClassifier, texts: Sequence[str]) -> dict[str, Tensor]:
    """The texts wrapped, with their queries if the pool asks for them: once for all steps, they never change."""
    template = classifier.template
    rows = wrapped(base, config, template, texts)
    batch = rows.batch(range(len(rows)))
    if template.asks_queries:
        batch["query"] = query_vectors(rows, template.query_function)
    return {key: value.to(base.loaded.model.device) for key, value in batch.items()}


def _task(base: BaseModel, config: RunConfig, classifier: MaskClassifier, support: Support) -> Task:
    def batch_of(texts: Sequence[str], labels: Sequence[int]) -> dict[str, Tensor]:
        batch = _batch(base, config, classifier, texts)
        return {**batch, "label": torch.tensor(list(labels), device=base.loaded.model.device)}

    batch = batch_of(support.texts, support.labels)
    names = None
    if config.reads_names and support.names:
        names = batch_of(list(support.names.values()), [support.classes.index(name) for name in support.names])
    return Task(0, support.classes, support.label_words, support=batch, query=batch, names=names)


def _part(task: Task, most: int, seed: int) -> Task:
    """The task with at most ``most`` support texts, drawn by the seed, of each class in turn."""
    labels = task.support["label"]
    most = max(most, len(task.classes))
    if len(labels) <= most:
        return task
    rows = torch.tensor(in_turns(labels.tolist(), most, seed), device=labels.device)
    batch = {key: value[rows] for key, value in task.support.items()}
    return replace(task, support=batch, query=batch)


def in_turns(labels: Sequence[int], most: int, seed: int) -> list[int]:
    """At most ``most`` rows, ascending, drawn by the seed, of each class in turn."""
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed)).tolist()
    turns: dict[int, int] = {}
    ranked = []
    for row in order:
        ranked.append((turns.setdefault(labels[row], 0), row))
        turns[labels[row]] += 1
    return sorted(row for _, row in sorted(ranked)[:most])


@torch.no_grad()
def _fit(classifier: MaskClassifier, pool: PromptPool, task: Task, refit: bool) -> Tensor:
    """Features of the support set under ``pool``; the verbalizer is fitted to them if asked for."""
    if refit and task.names is not None:
        classifier.verbalizer.fit_names(_read(classifier, pool, task.names).features, task.names["label"])
    reading = _read(classifier, pool, task.support)
    if refit:
        classifier.verbalizer.fit_support(reading.features, reading.logits, task.support["label"])
    return reading.features


def _read(classifier: MaskClassifier, pool: PromptPool, batch: Batch) -> EncoderOutput:
    """What the language model says of a batch of any size."""
    groups = list(groups_by_length(batch["attention_mask"].sum(dim=1).tolist(), _TOKENS))
    parts = [{key: value[group] for key, value in batch.items()} for group in groups]
    readings = [classifier.encode(classifier.prepare([part]), [pool])[0] for part in parts]
    place = torch.tensor([row for group in groups for row in group]).argsort()
    logits = [reading.logits for reading in readings if reading.logits is not None]
    return EncoderOutput(
        torch.cat([reading.features for reading in readings])[place], torch.cat(logits)[place] if logits else None
    )
