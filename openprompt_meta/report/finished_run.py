"""A run folder opened for looking at: what it stores, and the trained method for what it does not."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from torch import Tensor

from openprompt_meta.config.schema import RunConfig
from openprompt_meta.data.dataset import TextDataset
from openprompt_meta.data.loading import open_dataset
from openprompt_meta.encoder.loading import LoadedMLM
from openprompt_meta.errors import RunError
from openprompt_meta.learners.meta import AdaptingLearner, GradientLearner
from openprompt_meta.learners.task import MetaLearner, Task
from openprompt_meta.methods.language_model import load_language_model
from openprompt_meta.methods.method import Method, build_method
from openprompt_meta.prompts.pool import PromptPool
from openprompt_meta.runs.checkpoint import load_pool
from openprompt_meta.runs.evaluation import SeedsSummary, summarise_seeds
from openprompt_meta.runs.folder import RunFolder
from openprompt_meta.runs.process import set_threads
from openprompt_meta.runs.run import load_run_config

_CELL = re.compile(r"[0-9a-f]{16}")
"""The folder of a table's cell, whose name says nothing to a reader."""


class FinishedRun:
    """A run that was trained and tested.

    Data and language model are loaded when they are first asked for, so that what is stored is had at once.

    Args:
        path: the run folder.
        label: what to call it in figures; its folder's name by default.

    Raises:
        RunError: it is no run folder, or its test is not done.
    """

    def __init__(self, path: str | Path, label: str | None = None) -> None:
        self.folder = RunFolder(path)
        self.config: RunConfig = load_run_config(path)
        self.label = label or self.folder.path.resolve().name
        missing = [seed for seed in self.seeds if not self.folder.seed(seed).test_file.is_file()]
        if missing:
            raise RunError(
                f"{path} is not finished: seed {', '.join(map(str, missing))} has no test results. "
                f"Go on with: openprompt-meta resume {path}"
            )

    @property
    def file_label(self) -> str:
        """The label as a part of file names."""
        return re.sub(r"[^\w.-]+", "-", self.label).strip("-")

    @property
    def seeds(self) -> list[int]:
        """One training for each."""
        return self.config.run.seeds

    @property
    def setting(self) -> str:
        """Data and task in words, e.g. ``demo, 5-way 5-shot``."""
        meta = self.config.meta
        return f"{self.config.dataset.name}, {meta.way}-way {meta.shot}-shot"

    # -- what is stored -------------------------------------------------------------------------------------------

    @cached_property
    def accuracies(self) -> dict[int, list[float]]:
        """Accuracy of every test task by seed."""
        return {seed: self.folder.seed(seed).test()["accuracies"] for seed in self.seeds}

    @property
    def accuracy(self) -> SeedsSummary:
        """Accuracy on unseen classes with its uncertainty."""
        return summarise_seeds(list(self.accuracies.values()))

    def best_iteration(self, seed: int) -> int:
        """Which checkpoint was tested."""
        return int(self.folder.seed(seed).test()["best_iteration"])

    def metrics(self, seed: int, kind: str) -> list[dict[str, Any]]:
        """Records of ``step`` or ``validation``, in their order."""
        return [record for record in self.folder.seed(seed).metrics() if record["kind"] == kind]

    @cached_property
    def results(self) -> dict[str, Any]:
        """``results.json``; empty if the run was not carried to it."""
        return _read_or_empty(self.folder.results_file)

    @cached_property
    def versions(self) -> dict[str, str]:
        """What it was run with; empty if that was not noted."""
        return _read_or_empty(self.folder.versions_file)

    @cached_property
    def fingerprint(self) -> str:
        """Changes when configuration, checkpoints or test results do."""
        digest = hashlib.sha256(self.folder.config_file.read_bytes())
        for seed in self.seeds:
            folder = self.folder.seed(seed)
            for file in (folder.best_checkpoint, folder.metrics_file, folder.test_file):
                digest.update(file.read_bytes() if file.is_file() else b"none")
        return digest.hexdigest()[:16]

    # -- what has to be computed again ------------------------------------------------------------------------------

    @cached_property
    def dataset(self) -> TextDataset:
        """The texts."""
        return open_dataset(self.config.dataset)

    @cached_property
    def loaded(self) -> LoadedMLM:
        """The frozen language model."""
        set_threads(self.config.run.threads)
        return load_language_model(self.config)

    def method(
        self, seed: int, verbalizer: str | None = None, shots: int | None = None, name: str | None = None
    ) -> Method:
        """The method as it was tested, with the best checkpoint if it is one that learns across tasks.

        Args:
            seed: of the training, and of the tasks.
            name: another method than the run's own, on the same tasks.
            verbalizer: another one than the run's own, with the settings that the run's configuration has for it.
            shots: other tasks than the run's own, with the same classes and queries.
        """
        changes = {"method": name, "verbalizer": verbalizer, "meta.shot": shots}
        config = self.config.with_values({key: value for key, value in changes.items() if value is not None})
        method = build_method(config, self.loaded, self.dataset, seed)
        if isinstance(method.learner, MetaLearner):
            load_pool(self.folder.seed(seed).best_checkpoint, method.learner.meta_parameters)
        return method


def open_runs(paths: Sequence[str | Path]) -> list[FinishedRun]:
    """Runs by their folders, with labels that tell them apart."""
    resolved = [Path(path).resolve() for path in paths]
    if len(set(resolved)) != len(resolved):
        raise RunError("The same run folder was given twice. Name each run once.")
    depth = 1
    while len({path.parts[-depth:] for path in resolved}) < len(resolved):
        depth += 1
    runs = [FinishedRun(path, "/".join(real.parts[-depth:])) for path, real in zip(paths, resolved, strict=True)]
    for run in runs:
        if _CELL.fullmatch(run.label):
            run.label = f"{_described(run.config)} ({run.label[:4]})"
    return runs


def by_setting(runs: Sequence[FinishedRun]) -> dict[str, list[FinishedRun]]:
    """Runs that were tested on the same kind of task together."""
    groups: dict[str, list[FinishedRun]] = {}
    for run in runs:
        groups.setdefault(run.setting, []).append(run)
    return groups


def _described(config: RunConfig) -> str:
    """The method in words that tell it from others of a table."""
    verbalizer = f", {config.verbalizer}" if config.method_declaration.uses_verbalizer else ""
    return f"{config.method}{verbalizer}"


def _read_or_empty(file: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found


def pool_of(method: Method) -> PromptPool:
    """The method's pool; a :class:`RunError` if what it learned is something else."""
    learned = method.learner.meta_parameters if isinstance(method.learner, MetaLearner) else None
    classifier = method.classifier
    frozen = classifier is not None and not any(p.requires_grad for p in classifier.plm.parameters())
    if learned is not None and frozen:  # the pool, with the verbalizer's scalars or without
        pool: PromptPool = method.template.pool
        return pool
    raise RunError(f"This figure looks into a prompt pool; the run has learned a {type(learned).__name__}.")


def meta_learner_of(method: Method) -> GradientLearner:
    """The method's meta-learner; a :class:`RunError` if nothing is learned across tasks by an inner loop."""
    learner = method.learner
    if not isinstance(learner, GradientLearner):
        raise RunError(f"This figure takes an inner loop apart; {type(learner).__name__} has none.")
    return learner


def learner_of(method: Method) -> AdaptingLearner:
    """The method's learner, whose inner loop can be watched; a :class:`RunError` if it has none."""
    learner = method.learner
    if not isinstance(learner, AdaptingLearner):
        raise RunError(f"This figure watches an inner loop of gradient steps; {type(learner).__name__} has none.")
    return learner


def query_accuracy(log_probabilities: Tensor, task: Task) -> float:
    """Share of the task's queries that are classified rightly, in double precision."""
    return (log_probabilities.argmax(dim=-1) == task.query["label"]).double().mean().item()
