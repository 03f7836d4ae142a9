"""The quick start: meta-train on the data that ships, compare with doing without, classify a few sentences."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tqdm.auto import tqdm

from openprompt_meta.config.schema import RunConfig
from openprompt_meta.data.dataset import TextDataset
from openprompt_meta.data.loading import open_dataset
from openprompt_meta.encoder.loading import LoadedMLM
from openprompt_meta.methods.language_model import load_language_model
from openprompt_meta.methods.method import Method, build_method
from openprompt_meta.runs.checkpoint import load_pool
from openprompt_meta.runs.evaluation import TasksSummary, evaluate_tasks, summarise_tasks
from openprompt_meta.runs.folder import RunFolder
from openprompt_meta.runs.run import Run

__all__ = ["Classified", "QuickStart"]


@dataclass(frozen=True)
class Classified:
    """A sentence of an unseen class, classified from a handful of examples."""

    text: str
    predicted: str
    probability: float
    correct: str


class QuickStart:
    """One run and what to compare it with, on the same test tasks and the same frozen encoder.

    Args:
        config: the run, of ``method: metaprompter``; its first seed is used.
        folder: where the run goes; what is finished there is not done again.
    """

    def __init__(self, config: RunConfig, folder: str | Path) -> None:
        self.config = config
        self.folder = RunFolder(folder)
        self._seed = config.run.seeds[0]
        self._dataset: TextDataset = open_dataset(config.dataset)
        self._loaded: LoadedMLM = load_language_model(config)

    def without_training(self) -> Iterator[tuple[str, TasksSummary]]:
        """Accuracy on unseen classes of what needs no training, a name and a summary each."""
        yield (
            "[MASK] of the bare template, class means",
            self._evaluate(self._method("mask_prototypes"), "[MASK] features"),
        )
        yield "mean over tokens, class means", self._evaluate(self._method("mean_prototypes"), "mean features")
        yield "prompt pool before meta-training", self._evaluate(self._method(), "before meta-training")

    def train(self) -> TasksSummary | None:
        """Meta-train and test; ``None`` if interrupted."""
        results = Run(self.config, self.folder.path).train()
        if results is None:
            return None
        (summary,) = results["test_accuracy"].values()
        return TasksSummary(summary["mean"], summary["interval"], summary["tasks"])

    def save(self) -> Path:
        """Write the learned template as an artefact that any OpenPrompt project can load."""
        target = self.folder.path / "template"
        self._trained().template.save_pretrained(target)
        return target

    def classify_some(self, sentences: int = 6) -> tuple[list[str], list[Classified]]:
        """Classify a few sentences of one task of unseen classes, with its examples; the classes come first."""
        method = self._trained()
        source = method.sources["test"]
        episode = source.episodes[0]
        outcome = method.learner.evaluate(source[0], method.eval_steps)
        best = outcome.log_probabilities.exp().max(dim=-1)
        every = max(1, len(episode.query) // sentences)
        chosen = range(0, len(episode.query), every)[:sentences]
        classified = [
            Classified(
                text=self._dataset.test.texts[episode.query[i]],
                predicted=episode.classes[int(best.indices[i])],
                probability=float(best.values[i]),
                correct=episode.classes[episode.query_labels[i]],
            )
            for i in chosen
        ]
        return list(episode.classes), classified

    def _method(self, name: str = "metaprompter") -> Method:
        return build_method(self.config.with_values({"method": name}), self._loaded, self._dataset, self._seed)

    def _trained(self) -> Method:
        method = self._method()
        load_pool(self.folder.seed(self._seed).best_checkpoint, method.template.pool)
        return method

    def _evaluate(self, method: Method, title: str) -> TasksSummary:
        tasks = self.config.meta.test_tasks
        with tqdm(total=tasks, desc=title, unit="task", leave=False) as bar:
            outcomes = evaluate_tasks(method.learner, method.sources["test"], tasks, method.eval_steps, bar)
        return summarise_tasks([outcome.accuracy for outcome in outcomes])
