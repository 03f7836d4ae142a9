"""The inner loop: what is done inside a task (paper, Algorithm 2, steps 3 to 12), for several tasks side by side."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from openprompt_meta.encoder.classifier import EncoderOutput, MaskClassifier, matmul_precision
from openprompt_meta.errors import NotFiniteError
from openprompt_meta.learners.task import Batch, Task
from openprompt_meta.prompts.pool import PromptPool
from openprompt_meta.verbalizers.base import EpisodicVerbalizer


@contextmanager
def task_randomness(seed: int, task: Task) -> Iterator[None]:
    """Randomness inside that depends on the run's seed and the task alone, and leaves torch's own state as it was.

    Dropout and the random start of a task's label embeddings are then the same whatever was done before, which is
    what lets an interrupted run resume to the same bits.
    """
    with torch.random.fork_rng():
        torch.manual_seed(seed * 1_000_003 + task.index)
        yield


@dataclass
class InnerLoop:
    """Adapts pools to the support sets of tasks, and evaluates their query sets with them.

    Attributes:
        classifier: the language model with template and verbalizer.
        loss: mean or sum over the examples of a set.
        label_embeddings: at the meta step and in prediction, ``adapted`` fits the verbalizer to the support set as the
            adapted pool shows it; ``last_inner_step`` keeps the fit of the last inner step.
        detach_last_fit: for ``last_inner_step``, drop the gradient through that fit (first-order learning does).
        seed: of whatever is random inside a task.
        tokens_at_once: tasks go through the language model side by side as long as their support sets have no more
            tokens than this together; 0 takes one task at a time.
        products: what the language model's matrix products are computed in, its weights being in float32.
    """

    classifier: MaskClassifier
    loss: Literal["mean", "sum"] = "mean"
    label_embeddings: Literal["adapted", "last_inner_step"] = "adapted"
    detach_last_fit: bool = True
    seed: int = 0
    tokens_at_once: int = 0
    products: torch.dtype = torch.float32
    _verbalizers: list[EpisodicVerbalizer] = field(default_factory=list, repr=False)

    def in_groups(self, tasks: Iterable[Task]) -> Iterator[list[Task]]:
        """The tasks in their order, as many together as go through the language model side by side."""
        group: list[Task] = []
        tokens = 0
        for task in tasks:
            own = int(task.support["attention_mask"].sum())
            if group and tokens + own > self.tokens_at_once:
                yield group
                group, tokens = [], 0
            group.append(task)
            tokens += own
        if group:
            yield group

    def encode(
        self, prepared: Any, pools: Sequence[PromptPool], verbalizers: Sequence[EpisodicVerbalizer]
    ) -> list[EncoderOutput]:
        """What the language model says of batches that were laid out."""
        with matmul_precision(self.products, self.classifier.plm.device):
            return self.classifier.encode(prepared, pools, verbalizers)

    def known_features(self) -> KnownFeatures | None:
        """Where to keep what is read of texts while the pool stays as it is.

        There is nothing to keep if verbalizers look at words' logits, which differ from task to task. The plain engine
        reads every text of every task, as OpenPrompt does.
        """
        reads_all = self.tokens_at_once == 0 or self.classifier.verbalizer.needs_vocabulary_head
        return None if reads_all else KnownFeatures()

    def open(self, tasks: Sequence[Task], known: KnownFeatures | None = None) -> TaskBatch:
        """Begin tasks: lay out their texts, and tell a verbalizer of each of its classes.

        Args:
            tasks: of one source if features are kept.
            known: features of texts that need not be read again.
        """
        if not self._verbalizers:
            self._verbalizers.append(self.classifier.verbalizer)
        while len(self._verbalizers) < len(tasks):
            self._verbalizers.append(self._verbalizers[0].clone())
        verbalizers = self._verbalizers[: len(tasks)]
        for task, verbalizer in zip(tasks, verbalizers, strict=True):
            with task_randomness(self.seed, task):
                verbalizer.begin_task(task.classes, task.label_words)
            if task.names is None and verbalizer.reads_names:
                verbalizer.leave_out_names()
        return TaskBatch(self, tasks, verbalizers, known)


class KnownFeatures:
    """Features of a source's texts as one pool shows them, so that no text is read twice."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, int], Tensor] = {}

    def of(
        self,
        batches: Sequence[Batch],
        texts: Sequence[Sequence[tuple[str, int]]],
        read: Callable[[Sequence[Batch]], Sequence[EncoderOutput]],
    ) -> list[EncoderOutput]:
        """What ``read`` would give for the batches; it is called for the texts that it was not called for before.

        Args:
            batches: wrapped.
            texts: for each batch, which text each of its rows is.
            read: reads batches.
        """
        new: list[Batch] = []
        asked: dict[tuple[str, int], None] = {}  # in their order
        for batch, own in zip(batches, texts, strict=True):
            before = len(asked)
            rows = [row for row, key in enumerate(own) if key not in self._known and key not in asked]
            asked.update((own[row], None) for row in rows)
            if len(asked) > before:
                chosen = torch.tensor(rows, device=batch["attention_mask"].device)
                new.append({key: value[chosen] for key, value in batch.items()})
        if new:
            features = torch.cat([reading.features for reading in read(new)])
            self._known.update(zip(asked, features, strict=True))
        return [EncoderOutput(torch.stack([self._known[key] for key in own]), None) for own in texts]


class _Part(NamedTuple):
    """Texts of a task that are read together."""

    task: int
    kind: Literal["support", "names", "query"]
    batch: Batch


_Readings = Mapping[tuple[int, str], EncoderOutput]
"""What was read of the parts, by task and kind."""


@dataclass(eq=False)
class TaskBatch:
    """Tasks that are being learned side by side, with a verbalizer each.

    The verbalizers belong to the inner loop: opening other tasks ends these.
    """

    _learner: InnerLoop
    tasks: Sequence[Task]
    verbalizers: Sequence[EpisodicVerbalizer]
    _known: KnownFeatures | None = None

    def apart(self) -> TaskBatch:
        """The same tasks with copies of the verbalizers, so that what is fitted there changes nothing here."""
        verbalizers = [verbalizer.clone() for verbalizer in self.verbalizers]
        return TaskBatch(self._learner, self.tasks, verbalizers, self._known)

    @cached_property
    def _examples(self) -> list[_Part]:
        """What is learned from: the support sets, if they have a text, then the names, if the task brings any."""
        tasks = list(enumerate(self.tasks))
        support = [_Part(i, "support", task.support) for i, task in tasks if len(task.support["label"])]
        return [*support, *(_Part(i, "names", task.names) for i, task in tasks if task.names is not None)]

    @cached_property
    def _queries(self) -> list[_Part]:
        return [_Part(i, "query", task.query) for i, task in enumerate(self.tasks)]

    @cached_property
    def _prepared(self) -> Any:
        return self._learner.classifier.prepare([part.batch for part in self._examples])

    def _encode(self, prepared: Any, pools: Sequence[PromptPool], parts: Sequence[_Part]) -> _Readings:
        """Read parts that were laid out, each with the pool and the verbalizer of its task."""
        of_tasks = [part.task for part in parts]
        readings = self._learner.encode(
            prepared, [pools[i] for i in of_tasks], [self.verbalizers[i] for i in of_tasks]
        )
        return {(part.task, part.kind): reading for part, reading in zip(parts, readings, strict=True)}

    def _read(self, parts: Sequence[_Part], pools: Sequence[PromptPool]) -> _Readings:
        """Read parts; of texts that are known only what is kept of them is taken."""
        if self._known is None or any(task.text_ids is None for task in self.tasks):
            return self._encode(self._learner.classifier.prepare([part.batch for part in parts]), pools, parts)

        def read(some: Sequence[Batch]) -> list[EncoderOutput]:
            # Nothing differs between tasks where texts are kept: neither their pools nor what verbalizers look at.
            prepared = self._learner.classifier.prepare(some)
            return self._learner.encode(prepared, [pools[0]] * len(some), [self.verbalizers[0]] * len(some))

        found = self._known.of([part.batch for part in parts], [self._texts_of(part) for part in parts], read)
        return {(part.task, part.kind): reading for part, reading in zip(parts, found, strict=True)}

    def _texts_of(self, part: _Part) -> list[tuple[str, int]]:
        """Which text each row of a part is."""
        ids = self.tasks[part.task].text_ids
        assert ids is not None  # noqa: S101 - for the type checker
        support, query, names = ids
        own = {"support": support, "query": query, "names": names}[part.kind]
        return [("name" if part.kind == "names" else "text", i) for i in own]

    def _take_names(self, readings: _Readings) -> None:
        """Hand each verbalizer the features of its classes' names."""
        for i, (task, verbalizer) in enumerate(zip(self.tasks, self.verbalizers, strict=True)):
            if task.names is not None:
                verbalizer.fit_names(readings[i, "names"].features, task.names["label"])

    def _support(self, i: int, readings: _Readings) -> EncoderOutput:
        """What was read of a task's support set; of one without a text, features of no text."""
        if (i, "support") in readings:
            return readings[i, "support"]
        some = next(iter(readings.values()))
        return EncoderOutput(some.features[:0], None if some.logits is None else some.logits[:0])

    def support_losses(self, pools: Sequence[PromptPool], step: int = 0) -> list[Tensor]:
        """-log P of each support set under its pool, the verbalizer being fitted to it on the way.

        Args:
            pools: one for each task.
            step: how many steps the pools have been adapted by, for messages.

        Raises:
            NotFiniteError: a loss is not a number, with the task's index and the step.
        """
        readings = self._encode(self._prepared, pools, self._examples)
        self._take_names(readings)
        losses = []
        for i, (task, verbalizer) in enumerate(zip(self.tasks, self.verbalizers, strict=True)):
            loss = self._support_loss(task, verbalizer, self._support(i, readings))
            require_finite(loss, task, f"inner step {step + 1}")
            losses.append(loss)
        return losses

    def _support_loss(self, task: Task, verbalizer: EpisodicVerbalizer, reading: EncoderOutput) -> Tensor:
        """Of one task that has examples: the configuration lets no inner step meet one that has none."""
        labels = task.support["label"]
        verbalizer.fit_support(reading.features, reading.logits, labels)
        log_probabilities = verbalizer.support_log_probabilities(reading.features, reading.logits)
        if self._learner.label_embeddings == "last_inner_step" and self._learner.detach_last_fit:
            verbalizer.detach_fit()
        return F.nll_loss(log_probabilities, labels, reduction=self._learner.loss)

    def query_log_probabilities(self, pools: Sequence[PromptPool], steps_taken: int) -> list[Tensor]:
        """Give log P of each query set's classes, ``[n, C]``, under pools adapted by ``steps_taken`` steps."""
        learner, tasks, verbalizers = self._learner, self.tasks, self.verbalizers
        if learner.label_embeddings == "adapted" or steps_taken == 0:
            readings = self._read([*self._examples, *self._queries], pools)
            self._take_names(readings)
            for i, (task, verbalizer) in enumerate(zip(tasks, verbalizers, strict=True)):
                support = self._support(i, readings)
                verbalizer.fit_support(support.features, support.logits, task.support["label"])
        else:
            prepared = learner.classifier.prepare([part.batch for part in self._queries])
            readings = self._encode(prepared, pools, self._queries)
        of_queries = [readings[i, "query"] for i in range(len(tasks))]
        return [
            verbalizer.log_probabilities(reading.features, reading.logits)
            for verbalizer, reading in zip(verbalizers, of_queries, strict=True)
        ]

    def query_losses(self, log_probabilities: Sequence[Tensor]) -> list[Tensor]:
        """-log P of each query set, from what :meth:`query_log_probabilities` gave."""
        losses = []
        for task, predicted in zip(self.tasks, log_probabilities, strict=True):
            loss = F.nll_loss(predicted, task.query["label"], reduction=self._learner.loss)
            require_finite(loss, task, "the query loss")
            losses.append(loss)
        return losses


def require_finite(loss: Tensor, task: Task, where: str) -> None:
    """:class:`NotFiniteError` with the task's index if a loss is not a number; ``where`` says which loss."""
    value = loss.item()
    if not math.isfinite(value):
        raise NotFiniteError(
            f"Task {task.index}: {where} is {value}. The last checkpoint is as it was. Lower inner_lr (or "
            "outer_lr if it grew over many iterations), or look at the task's texts."
        )
