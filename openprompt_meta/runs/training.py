"""The training loop of one seed: meta-iterations, validation, the best checkpoint, resuming."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from openprompt_meta.config.schema import MetaSection
from openprompt_meta.learners.task import MetaLearner
from openprompt_meta.methods.method import Method
from openprompt_meta.progress import ProgressBar, progress_bar
from openprompt_meta.runs.checkpoint import Progress, read_checkpoint, write_checkpoint
from openprompt_meta.runs.evaluation import Interrupted, evaluate_tasks, summarise_tasks
from openprompt_meta.runs.folder import SeedFolder
from openprompt_meta.runs.process import Overdue

logger = logging.getLogger(__name__)


@dataclass
class Training:
    """Meta-trains a method in a folder, from the folder's last checkpoint if there is one.

    Tasks are numbered and drawn by number, and nothing else is random, so pool, optimiser and the number of the next
    iteration are all there is to resume from.

    Attributes:
        method: what is trained.
        learner: the method's own.
        meta: how.
        folder: where checkpoints and metrics go.
        checkpoint_every: iterations between checkpoints.
        stop: asked after every iteration and validation task; true ends the loop after saving. An
            :class:`~openprompt_meta.runs.process.Overdue` breaks a step off; the iterations before it are saved.
        show_progress: draw progress bars on stderr.
        on_record: told of every record that is logged.
    """

    method: Method
    learner: MetaLearner
    meta: MetaSection
    folder: SeedFolder
    checkpoint_every: int = 50
    stop: Callable[[], bool] = lambda: False
    show_progress: bool = True
    on_record: Callable[[dict[str, Any]], None] = lambda record: None
    progress: Progress = field(default_factory=Progress)
    _settled: tuple[int, ...] | None = field(default=None, init=False)

    def run(self) -> bool:
        """Train to the end, or until asked to stop.

        Returns:
            Whether training is finished; if not, another call goes on from here.
        """
        self.folder.create()
        if self.folder.last_checkpoint.exists():
            self.progress = read_checkpoint(self.folder.last_checkpoint, self.learner)
        else:
            self.method.start()
        self.folder.forget_after(self.progress.iteration, self.progress.validated)
        self._settled = self._versions()
        try:
            self._loop()
        except Overdue:
            if self._settled == self._versions():
                self._save()
            raise
        self._save()
        return self._is_finished() and not self._validation_is_due()

    def _versions(self) -> tuple[int, ...]:
        """How often each tensor of the state was written to: the same numbers, the same state."""
        states = self.learner.optimizer.state.values()
        kept = [value for state in states for value in state.values() if isinstance(value, Tensor)]
        return tuple(value._version for value in (*self.learner.meta_parameters.state_dict().values(), *kept))

    def _loop(self) -> None:
        with self._bar(self.meta.iterations, "meta-training", "it", initial=self.progress.iteration) as bar:
            while True:
                if self._validation_is_due():
                    try:
                        self._validate(bar)
                    except Interrupted:
                        break
                if self._is_finished() or self.stop():
                    break
                self._step(bar)

    def _is_finished(self) -> bool:
        patience = self.meta.patience
        out_of_patience = patience is not None and self.progress.stale_validations >= patience
        return self.progress.iteration >= self.meta.iterations or out_of_patience

    def _validation_is_due(self) -> bool:
        at = self.progress.iteration
        return at > self.progress.validated and (at % self.meta.validate_every == 0 or at >= self.meta.iterations)

    def _step(self, bar: ProgressBar) -> None:
        first = self.progress.iteration * self.meta.meta_batch
        started = time.perf_counter()
        source = self.method.sources["train"]
        if self.meta.outer_decay != "none" or self.meta.outer_warmup > 0:
            self._set_step_sizes(step_share(self.meta, self.progress.iteration))
        step = self.learner.meta_step([source[first + i] for i in range(self.meta.meta_batch)])
        self._settled = None  # until all that belongs to the iteration is noted
        self.progress.iteration += 1
        self._log(
            kind="step",
            iteration=self.progress.iteration,
            loss=step.loss,
            accuracy=step.accuracy,
            inner_losses=step.inner_losses,
            gradient_norm=step.gradient_norm,
            seconds=time.perf_counter() - started,
        )
        self._settled = self._versions()
        bar.update()
        bar.set_postfix(loss=f"{step.loss:.3f}", accuracy=f"{100 * step.accuracy:.1f}", best=self._best())
        if self.progress.iteration % self.checkpoint_every == 0:
            self._save()

    def _set_step_sizes(self, share: float) -> None:
        """Let the optimiser take a share of the steps that it was made for; it depends on the iteration alone."""
        for group in self.learner.optimizer.param_groups:
            group["lr"] = share * group.setdefault("initial_lr", group["lr"])

    def _validate(self, bar: ProgressBar) -> None:
        started = time.perf_counter()
        with self._bar(self.meta.valid_tasks, "validation", "task", leave=False) as inner:
            outcomes = evaluate_tasks(
                self.learner,
                self.method.sources["valid"],
                self.meta.valid_tasks,
                self.method.eval_steps,
                inner,
                self.stop,
            )
        accuracy = summarise_tasks([outcome.accuracy for outcome in outcomes])
        self._settled = None
        now = self.progress
        now.validated = now.iteration
        gained = accuracy.mean > now.best_accuracy + self.meta.min_gain
        now.stale_validations = 0 if gained else now.stale_validations + 1
        if accuracy.mean > now.best_accuracy:
            now.best_iteration, now.best_accuracy = now.iteration, accuracy.mean
            write_checkpoint(self.folder.best_checkpoint, self.learner, now)
        self._log(
            kind="validation",
            iteration=now.iteration,
            accuracy=accuracy.mean,
            interval=accuracy.interval,
            loss=sum(outcome.loss for outcome in outcomes) / len(outcomes),
            seconds=time.perf_counter() - started,
        )
        logger.info("Iteration %d: validation accuracy %s (best %s).", now.iteration, accuracy, self._best())
        bar.set_postfix(validation=f"{100 * accuracy.mean:.1f}", best=self._best())
        self._save()
        self._settled = self._versions()

    def _best(self) -> str:
        return f"{100 * self.progress.best_accuracy:.1f}" if self.progress.best_iteration >= 0 else "-"

    def _save(self) -> None:
        write_checkpoint(self.folder.last_checkpoint, self.learner, self.progress)

    def _log(self, **record: Any) -> None:
        self.folder.log(record)
        self.on_record(record)

    def _bar(self, total: int, title: str, unit: str, **options: Any) -> ProgressBar:
        return progress_bar(total=total, title=title, unit=unit, show=self.show_progress, **options)


def step_share(meta: MetaSection, iteration: int) -> float:
    """The part of η that an iteration, counted from 0, takes: it rises, and then stays or falls."""
    warmup = meta.outer_warmup * meta.iterations
    if iteration < warmup:
        return iteration / warmup
    if meta.outer_decay == "linear":
        return 1 - (iteration - warmup) / (meta.iterations - warmup)
    if meta.outer_decay == "tenths":
        return float(0.1 ** (3 * iteration // meta.iterations))
    return 1.0
