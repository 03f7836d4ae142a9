"""Training the low-rank update and the head: steps, judging, checkpoints that go on to the same numbers."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

from openprompt_meta.encoder.classifier import matmul_precision
from openprompt_meta.errors import CheckpointError, NotFiniteError
from openprompt_meta.files import write_atomic
from openprompt_meta.progress import progress_bar
from openprompt_meta.runs.checkpoint import checked_state, state_tensors
from openprompt_meta.tensor_files import DamagedFile, read_tensors, write_tensors
from tools.minilm_mlm.corpus import Corpus
from tools.minilm_mlm.judging import judge, scores
from tools.minilm_mlm.low_rank import learned_tensors
from tools.minilm_mlm.masking import Masking
from tools.minilm_mlm.settings import FitSettings

_FORMAT = "openprompt_meta.fit_mlm.1"
_SMOOTHING = 0.98


def learning_rate_at(step: int, settings: FitSettings) -> float:
    """The learning rate of a step, counted from zero: up in a line, down in a line to zero after the last."""
    rising = (step + 1) / settings.warmup if settings.warmup else 1.0
    falling = (settings.steps - step) / max(1, settings.steps - settings.warmup)
    return settings.learning_rate * min(1.0, rising, falling)


@dataclass
class Fitting:
    """Trains a model of :func:`~tools.minilm_mlm.low_rank.learner_from` in a folder.

    Texts and hidden words of a step follow from its number, so what was learned, the optimiser's state and the number
    of the next step are all there is to resume from.

    Attributes:
        model: what is trained.
        tokenizer: its tokenizer.
        corpus: what from, and what it is judged on.
        settings: how.
        folder: where the checkpoint and the log go.
        stop: asked after every step; true ends the loop after saving.
        show_progress: draw a progress bar on stderr.
        on_record: told of every record that is logged.
    """

    model: Any
    tokenizer: Any
    corpus: Corpus
    settings: FitSettings
    folder: Path
    stop: Callable[[], bool] = lambda: False
    show_progress: bool = True
    on_record: Callable[[dict[str, Any]], None] = lambda record: None
    step: int = field(default=0, init=False)
    _loss: float = field(default=0.0, init=False)

    def __post_init__(self) -> None:
        self.learned = learned_tensors(self.model)
        matrices = [value for value in self.learned.values() if value.ndim > 1]
        vectors = [value for value in self.learned.values() if value.ndim <= 1]
        groups = [
            {"params": matrices, "weight_decay": self.settings.weight_decay},
            {"params": vectors, "weight_decay": 0.0},
        ]
        self.optimizer = torch.optim.AdamW(groups, lr=self.settings.learning_rate, betas=(0.9, 0.98))
        self.masking = Masking.of(self.corpus.train, self.settings.mask_rate, self.tokenizer)

    @property
    def checkpoint(self) -> Path:
        """Where training goes on from."""
        return self.folder / "last.safetensors"

    @property
    def log(self) -> Path:
        """What was judged when."""
        return self.folder / "log.jsonl"

    def run(self) -> bool:
        """Train to the last step, or until asked to stop; whether the last step is done.

        Raises:
            CheckpointError: the folder's checkpoint is damaged or of other settings.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        self.restore()
        total = self.settings.steps
        with progress_bar(
            total=total, initial=self.step, title="learning", unit="step", show=self.show_progress
        ) as bar:
            while self.step < total and not self.stop():
                loss = self._learn()
                self._loss = loss if self.step == 1 else _SMOOTHING * self._loss + (1 - _SMOOTHING) * loss
                bar.update()
                bar.set_postfix(loss=f"{self._loss:.3f}")
                if self.step % self.settings.judge_every == 0:
                    self._judge()
                if self.step % self.settings.checkpoint_every == 0:
                    self._save()
        self._save()
        return self.step >= total

    def restore(self) -> int:
        """Go back to the folder's checkpoint, if there is one; how many steps are done."""
        if self.step == 0 and self.checkpoint.exists():
            self._read_checkpoint()
        return self.step

    def _learn(self) -> float:
        settings = self.settings
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate_at(self.step, settings)
        length = settings.lengths[self.step % len(settings.lengths)]
        puzzle = self.masking.draw(settings.seed, self.step, max(1, settings.tokens_per_step // length), length)
        with self._precision():
            logits = scores(self.model, puzzle)
        loss = F.cross_entropy(logits.float().flatten(0, 1), puzzle.answers.flatten())
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        length_of_gradient = torch.nn.utils.clip_grad_norm_(self.learned.values(), settings.clip)
        if not torch.isfinite(length_of_gradient):
            raise NotFiniteError(
                f"Step {self.step + 1} has the loss {loss.item()} and no finite gradient. Lower learning_rate; the "
                f"checkpoint in {self.folder} is of an earlier step."
            )
        self.optimizer.step()
        self.step += 1
        return loss.item()

    def _judge(self) -> None:
        with self._precision():
            found = judge(self.model, self.corpus.held_out, self.tokenizer, self.settings.judge_tokens)
        record = {"step": self.step, "loss": self._loss, "held_out_loss": found.loss, "accuracy": found.accuracy}
        with self.log.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")
        self.on_record(record)

    def _precision(self) -> AbstractContextManager[object]:
        return matmul_precision(getattr(torch, self.settings.precision), self.model.device)

    def _save(self) -> None:
        kept, which = state_tensors(self.optimizer)
        progress = json.dumps({"step": self.step, "loss": self._loss})
        write_tensors(self.checkpoint, {**self.learned, **kept}, {**self._kind(), **which, "progress": progress})

    def _read_checkpoint(self) -> None:
        try:
            tensors, metadata = read_tensors(self.checkpoint)
        except (OSError, DamagedFile) as error:
            raise self._unreadable(error) from None
        if not self._kind().items() <= metadata.items():
            raise CheckpointError(
                f"{self.checkpoint} is of other settings: {metadata.get('settings')}. Go on with those, or choose "
                "another folder."
            )
        try:
            state = checked_state(self.optimizer, tensors, metadata)
            progress = json.loads(metadata["progress"])
            step, loss = int(progress["step"]), float(progress["loss"])
            with torch.no_grad():
                for name, parameter in self.learned.items():
                    parameter.copy_(tensors[name])
        except (DamagedFile, KeyError, TypeError, ValueError, RuntimeError) as error:
            raise self._unreadable(error) from None
        self.optimizer.load_state_dict({**self.optimizer.state_dict(), "state": state})
        self.step, self._loss = step, loss
        self._forget_later_records()

    def _unreadable(self, error: Exception) -> CheckpointError:
        return CheckpointError(f"{self.checkpoint} cannot be read: {error}. Take it away to start anew.")

    def _forget_later_records(self) -> None:
        """What was judged after the checkpoint is judged again."""
        if self.log.exists():
            lines = self.log.read_text(encoding="utf-8").splitlines(keepends=True)
            write_atomic(self.log, "".join(line for line in lines if json.loads(line)["step"] <= self.step))

    def _kind(self) -> dict[str, str]:
        return {"format": _FORMAT, "settings": json.dumps(self.settings.to_mapping(), sort_keys=True)}
