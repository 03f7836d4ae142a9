"""[MASK] features and label embeddings of one task on a plane, for three verbalizers: the paper's second figure."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from openprompt_meta.components import verbalizers
from openprompt_meta.learners.task import Task
from openprompt_meta.report.figure import FigureKind, FigureNumbers
from openprompt_meta.report.finished_run import FinishedRun, learner_of, query_accuracy
from openprompt_meta.report.numbers_cache import NumbersCache
from openprompt_meta.report.plotting import COLOURS, canvas
from openprompt_meta.verbalizers.proto import ProtoVerbalizer

if TYPE_CHECKING:
    from matplotlib.figure import Figure


# All of them crosses, and told apart in grey.
CROSSES = ("x", "+", "1", "2", "3", "4", "|", "_")
_VERBALIZERS = ("warp_verbalizer", "proto_verbalizer", "rep_verbalizer")
"""Those of the paper's figure, in its order."""


@dataclass(frozen=True)
class VerbalizerMap:
    """One verbalizer's view of the task.

    ``texts`` and ``label_embeddings`` are places on the plane; silhouette and distance are those of the space itself,
    by cosine.
    """

    name: str
    texts: list[list[float]]
    label_embeddings: list[list[float]]
    silhouette: float
    label_distance: float
    accuracy: float


@dataclass(frozen=True)
class LabelMap(FigureNumbers):
    """The task: support texts first, then queries, with their labels."""

    seed: int
    task: int
    classes: list[str]
    labels: list[int]
    maps: list[VerbalizerMap]

    def draw(self) -> Figure:
        """Crosses are texts, circles label embeddings; classes by colour, and by their number in the circle."""
        figure, panels = canvas(10.2, 4.1, 1, len(self.maps))
        labels = np.array(self.labels)
        for panel, one in zip(panels, self.maps, strict=True):
            texts, circles = np.array(one.texts), np.array(one.label_embeddings)
            for number, name in enumerate(self.classes):
                colour, cross = COLOURS[number % len(COLOURS)], CROSSES[number % len(CROSSES)]
                own = texts[labels == number].T
                panel.scatter(*own, marker=cross, s=28, lw=1.1, color=colour, label=f"{number + 1} {name}")
            for number, place in enumerate(circles):
                colour = COLOURS[number % len(COLOURS)]
                panel.scatter(*place, marker="o", s=150, fc="white", ec=colour, lw=2.2, zorder=3)
                panel.annotate(str(number + 1), place, ha="center", va="center", size=7.5, zorder=4)
            panel.set(xticks=[], yticks=[], title=one.name)
            panel.spines[:].set_visible(True)
            panel.set_xlabel(
                f"silhouette {one.silhouette:.2f}\nlabel to its class {one.label_distance:.2f} (cosine distance)\n"
                f"query accuracy {100 * one.accuracy:.0f} %"
            )
        figure.legend(*panels[0].get_legend_handles_labels(), loc="outside upper center", ncols=3)
        return figure

    def caption(self) -> str:
        best = max(self.maps, key=lambda one: one.silhouette)
        nearest = min(self.maps, key=lambda one: one.label_distance)
        return (
            f"t-SNE (cosine) of test task {self.task}, seed {self.seed}: [MASK] features of support and query texts "
            "(crosses) and label embeddings (circles, numbered by class). Each verbalizer adapts this run's pool to "
            "the same task, WARP and ProtoVerb with the settings of this run's configuration; ProtoVerb's features "
            "are those after its projection. Only neighbourhoods mean something on the plane; the figures below are "
            f"of the full space. Best separated: {best.name} (silhouette {best.silhouette:.2f}); label embeddings "
            f"nearest to their classes: {nearest.name} ({nearest.label_distance:.2f})."
        )


def _measure(runs: Sequence[FinishedRun], cache: NumbersCache) -> LabelMap:
    """Adapt the run's pool to the task with each verbalizer, and look at features and label embeddings."""
    (run,) = runs
    seed, index = run.seeds[0], cache.options.task
    maps = []
    classes: list[str] = []
    labels: list[int] = []
    with cache.progress_bar(len(_VERBALIZERS), "label map", "verbalizer") as bar:
        for verbalizer in _VERBALIZERS:
            method = run.method(seed, verbalizer=verbalizer)
            task = method.sources["test"][index]
            classes = list(task.classes)
            labels = [*task.support["label"].tolist(), *task.query["label"].tolist()]
            features, label_embeddings, accuracy = _adapted(method, task, method.eval_steps)
            title = verbalizers()[verbalizer].title
            maps.append(_map(title, features, label_embeddings, np.array(labels), accuracy, seed))
            bar.update()
    return LabelMap(seed, index, classes, labels, maps)


def _adapted(method: Any, task: Task, steps: int) -> tuple[np.ndarray, np.ndarray, float]:
    """Features of all texts ``[n, d]`` and label embeddings ``[C, d]`` where they are compared, and the accuracy."""
    learner, classifier = learner_of(method), method.classifier
    verbalizer = classifier.verbalizer
    with learner.adapting([task]) as adaptation:
        for _ in range(steps):
            adaptation.step()
        pool = adaptation.pools[0]
        with torch.no_grad():
            batches = [task.support, task.query, *([] if task.names is None else [task.names])]
            support, query, *names = learner.inner_loop.encode(
                classifier.prepare(batches), [pool] * len(batches), [verbalizer] * len(batches)
            )
            if learner.inner_loop.label_embeddings == "adapted" or steps == 0:
                if task.names is not None:
                    verbalizer.fit_names(names[0].features, task.names["label"])
                verbalizer.fit_support(support.features, support.logits, task.support["label"])
            predicted = verbalizer.log_probabilities(query.features, query.logits)
            features = torch.cat([support.features, query.features])
            if isinstance(verbalizer, ProtoVerbalizer):
                features, labels = verbalizer.head(features), verbalizer.proto
            else:
                labels = verbalizer.label_embeddings
    return _array(features), _array(labels), query_accuracy(predicted, task)


def _array(values: Tensor) -> np.ndarray:
    array: np.ndarray = values.detach().double().cpu().numpy()
    return array


def _map(
    name: str, features: np.ndarray, label_embeddings: np.ndarray, labels: np.ndarray, accuracy: float, seed: int
) -> VerbalizerMap:
    from sklearn.manifold import TSNE
    from sklearn.metrics import silhouette_score

    together = np.concatenate([features, label_embeddings])
    perplexity = min(30.0, (len(together) - 1) / 3)
    tsne = TSNE(perplexity=perplexity, metric="cosine", init="random", random_state=seed, n_jobs=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        places = tsne.fit_transform(together).astype(float).tolist()
    return VerbalizerMap(
        name=name,
        texts=places[: len(features)],
        label_embeddings=places[len(features) :],
        silhouette=float(silhouette_score(features, labels, metric="cosine")),
        label_distance=label_distance(features, label_embeddings, labels),
        accuracy=accuracy,
    )


def label_distance(features: np.ndarray, label_embeddings: np.ndarray, labels: np.ndarray) -> float:
    """Mean cosine distance between the label embedding of a text's class and the text, 0 to 2."""
    features = features / np.linalg.norm(features, axis=1, keepdims=True)
    label_embeddings = label_embeddings / np.linalg.norm(label_embeddings, axis=1, keepdims=True)
    return float((1 - (features * label_embeddings[labels]).sum(axis=1)).mean())


LABEL_MAP = FigureKind(
    "label-map", "Texts and label embeddings", "Do label embeddings sit among their texts?", LabelMap, _measure
)
