"""Which classes use which prompts: the paper's heat map of average attention weights."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from openprompt_meta.report.figure import FigureKind, canvas, heat_map
from openprompt_meta.report.finished_run import FinishedRun, learner_of, pool_of
from openprompt_meta.report.workbench import Workbench

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["ATTENTION", "AttentionWeights"]


@dataclass(frozen=True)
class AttentionWeights:
    """``weights[y][i]``: how much support texts of meta-training class y attend to prompt i, rows summing to one.

    The mean over tasks τ with class y of the mean over y's support texts of softmax(K q / √d_o), K being the keys as
    adapted to τ by J steps.
    """

    seed: int
    tasks: int
    classes: list[str]
    weights: list[list[float]]


def measure(runs: Sequence[FinishedRun], bench: Workbench) -> AttentionWeights:
    """Adapt the pool to meta-training tasks and average its attention by class."""
    (run,) = runs
    seed, steps = run.seeds[0], run.config.meta.inner_steps
    method = run.method(seed)
    learner, source = learner_of(method), method.sources["train"]
    pool_of(method)
    by_class: dict[str, list[list[float]]] = {}
    with bench.bar(bench.effort.tasks, "attention in training tasks") as bar:
        for group in learner.inner_loop.in_groups(source[index] for index in range(bench.effort.tasks)):
            with learner.adapting(group) as adaptation:
                for _ in range(steps):
                    adaptation.step()
                pools = adaptation.pools
            for task, pool in zip(group, pools, strict=True):
                episode = source.episodes[task.index]
                with torch.no_grad():
                    attention = pool.attention(method.template.queries(task.support).to(pool.keys.dtype)).double()
                labels = torch.tensor(episode.support_labels, device=attention.device)
                for number, name in enumerate(episode.classes):
                    by_class.setdefault(name, []).append(attention[labels == number].mean(dim=0).tolist())
            bar.update(len(group))
    classes = [name for name in run.dataset.train.classes if name in by_class]
    return AttentionWeights(seed, bench.effort.tasks, classes, [_mean(by_class[name]) for name in classes])


def _mean(rows: Sequence[Sequence[float]]) -> list[float]:
    return [math.fsum(column) / len(rows) for column in zip(*rows, strict=True)]


def draw(numbers: AttentionWeights) -> Figure:
    """Classes down, prompts across."""
    prompts = len(numbers.weights[0])
    figure, panel = canvas(3.4 + 0.42 * prompts, max(2.8, 1.4 + 0.24 * len(numbers.classes)))
    digits = 2 if prompts <= 16 else None
    names = [str(i + 1) for i in range(prompts)]
    heat_map(panel, numbers.weights, numbers.classes, names, "average attention weight", digits, vmin=0)
    panel.set(xlabel="prompt", ylabel="meta-training class")
    return figure


def caption(numbers: AttentionWeights) -> str:
    """How much classes differ in it."""
    entropies = [-math.fsum(w * math.log(w) for w in row if w > 0) for row in numbers.weights]
    used = math.exp(math.fsum(entropies) / len(entropies))
    favourites = len({row.index(max(row)) for row in numbers.weights})
    return (
        f"Mean over {numbers.tasks} meta-training tasks (seed {numbers.seed}) of the attention of a class's support "
        f"texts, with keys adapted to the task. Evenly spread it would be {1 / len(numbers.weights[0]):.3f} "
        f"everywhere; a class uses {used:.1f} of {len(numbers.weights[0])} prompts (exponential of the entropy), and "
        f"{favourites} of them are the favourite of some class."
    )


ATTENTION = FigureKind(
    "attention", "Attention by class", "Which classes use which prompts?", AttentionWeights, measure, draw, caption
)
