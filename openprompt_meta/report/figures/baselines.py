"""The run against what needs no training, on the same test tasks and the same frozen encoder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from openprompt_meta.report.figure import (
    COLOURS,
    HATCHES,
    PERCENT,
    FigureKind,
    canvas,
)
from openprompt_meta.report.finished_run import FinishedRun
from openprompt_meta.report.workbench import Workbench
from openprompt_meta.runs.evaluation import TasksSummary, evaluate_tasks, summarise_tasks

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["BASELINES", "Baselines"]

_UNTRAINED = {
    "mask_prototypes": "[MASK] of the bare template, class means",
    "mean_prototypes": "mean over tokens, class means",
}


@dataclass(frozen=True)
class Baselines:
    """Accuracy task by task of the run and of what one would do instead, the first seed's first test tasks."""

    seed: int
    chance: float
    run: list[float]
    without_training: dict[str, list[float]]

    @property
    def best(self) -> str:
        """The best of what needs no training."""
        return max(self.without_training, key=lambda name: sum(self.without_training[name]))

    def gain_over(self, name: str) -> TasksSummary:
        """The run's accuracy minus the other's, over the same tasks."""
        return summarise_tasks([own - other for own, other in zip(self.run, self.without_training[name], strict=True)])


def measure(runs: Sequence[FinishedRun], bench: Workbench) -> Baselines:
    """Evaluate class means of the frozen encoder's features on the tasks that the run was tested on."""
    (run,) = runs
    seed = run.seeds[0]
    own = run.accuracies[seed][: bench.effort.tasks]
    found: dict[str, list[float]] = {}
    with bench.bar(len(own) * len(_UNTRAINED), "without training") as bar:
        for name, title in _UNTRAINED.items():
            method = run.method(seed, name=name)
            outcomes = evaluate_tasks(method.learner, method.sources["test"], len(own), method.eval_steps, bar)
            found[title] = [outcome.accuracy for outcome in outcomes]
    return Baselines(seed, 1 / run.config.meta.way, own, found)


def draw(numbers: Baselines) -> Figure:
    """Bars from left to right with 95 % intervals over tasks."""
    figure, panel = canvas(6.6, 2.3)
    rows = {"this run": numbers.run, **numbers.without_training}
    for number, values in enumerate(reversed(list(rows.values()))):
        summary, place = summarise_tasks(values), len(rows) - 1 - number
        panel.barh(
            number,
            100 * summary.mean,
            xerr=100 * (summary.interval or 0.0),
            capsize=3,
            height=0.65,
            color=COLOURS[0] if place == 0 else "#d0d0d0",
            hatch=HATCHES[place],
            edgecolor="black",
            lw=0.6,
        )
        panel.annotate(
            str(summary),
            (100 * (summary.mean + (summary.interval or 0.0)), number),
            xytext=(4, 0),
            textcoords="offset points",
            va="center",
            size=8,
        )
    panel.set_yticks(range(len(rows)), list(reversed(rows)))
    panel.axvline(100 * numbers.chance, color="black", ls=":", lw=0.9)
    panel.text(
        100 * numbers.chance,
        len(rows) - 0.5,
        "chance",
        ha="center",
        size=7,
        bbox={"fc": "white", "ec": "none", "pad": 1},
    )
    panel.set(
        xlabel=f"{PERCENT}, 95 % interval over {len(numbers.run)} tasks", xlim=(0, 122), xticks=range(0, 101, 20)
    )
    panel.set_ylim(-0.5, len(rows) - 0.3)
    panel.grid(False, axis="y")
    return figure


def caption(numbers: Baselines) -> str:
    """By how much the run wins or loses."""
    gains = [f"{numbers.gain_over(name)} points against {name}" for name in numbers.without_training]
    return (
        f"Mean over the first {len(numbers.run)} test tasks (seed {numbers.seed}). The run's gain over what needs no "
        f"training, paired by task: {'; '.join(gains)}."
    )


BASELINES = FigureKind(
    "baselines", "Against no training at all", "Was meta-learning worth it?", Baselines, measure, draw, caption
)
