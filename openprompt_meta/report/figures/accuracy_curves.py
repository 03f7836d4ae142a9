"""Accuracy against the number of prompts K and their length L_p (the paper's ablations), and against shots."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from openprompt_meta.errors import RunError
from openprompt_meta.report.figure import FigureKind, FigureNumbers
from openprompt_meta.report.finished_run import FinishedRun, by_setting
from openprompt_meta.report.numbers_cache import NumbersCache
from openprompt_meta.report.plotting import PERCENT, canvas, curve, log_axis
from openprompt_meta.runs.evaluation import evaluate_tasks, summarise_tasks

if TYPE_CHECKING:
    from matplotlib.figure import Figure


# -- the size of the pool: a run a point ------------------------------------------------------------------------------


@dataclass(frozen=True)
class PoolSizeCurve:
    """Runs on one kind of task, by growing value."""

    setting: str
    values: list[int]
    means: list[float]
    intervals: list[float]


@dataclass(frozen=True)
class PoolSizeCurves(FigureNumbers):
    """Accuracy against one key of the prompt pool."""

    key: str
    curves: list[PoolSizeCurve]

    def draw(self) -> Figure:
        """A curve for each kind of task with 95 % intervals over tasks, on a log scale."""
        figure, panel = canvas(5.2, 3.3)
        for number, one in enumerate(self.curves):
            curve(panel, number, one.values, one.means, one.intervals, label=one.setting)
        log_axis(panel, [value for one in self.curves for value in one.values], _AXES[self.key], base=2)
        panel.set_ylabel(PERCENT)
        panel.legend()
        return figure

    def caption(self) -> str:
        best = []
        for one in self.curves:
            top = max(range(len(one.values)), key=lambda place: one.means[place])
            best.append(f"{one.setting}: {100 * one.means[top]:.1f} % at {one.values[top]}")
        return f"Test accuracy with 95 % intervals over tasks, one run a point. Highest: {'; '.join(best)}."


_AXES = {"num_prompts": "prompts in the pool, K", "prompt_length": "positions of a prompt, $L_p$"}


def _measure_sizes(runs: Sequence[FinishedRun], key: str) -> PoolSizeCurves:
    def size(run: FinishedRun) -> int:
        return int(getattr(run.config.prompt_pool_template, key))

    if len({size(run) for run in runs}) < 2:
        raise RunError(
            f"All {len(runs)} runs have prompt_pool_template.{key} = {size(runs[0])}; a curve needs runs that "
            f"differ in it, e.g. openprompt-meta train YAML prompt_pool_template.{key}=4 run.folder=…"
        )
    curves = []
    for setting, own in by_setting(sorted(runs, key=size)).items():
        accuracies = [run.accuracy for run in own]
        means, intervals = [one.mean for one in accuracies], [one.interval or 0.0 for one in accuracies]
        curves.append(PoolSizeCurve(setting, [size(run) for run in own], means, intervals))
    return PoolSizeCurves(key, curves)


def _against_pool_size(name: str, key: str, title: str) -> FigureKind[PoolSizeCurves]:
    return FigureKind(
        name,
        title,
        "How much does it matter?",
        PoolSizeCurves,
        lambda runs, cache: _measure_sizes(runs, key),
        several=True,
        fits=lambda runs: len({getattr(run.config.prompt_pool_template, key) for run in runs}) > 1,
    )


NUM_PROMPTS = _against_pool_size("num-prompts", "num_prompts", "Accuracy against K")
PROMPT_LENGTH = _against_pool_size("prompt-length", "prompt_length", "Accuracy against L_p")

# -- examples a class: one run evaluated with fewer and more ----------------------------------------------------------


@dataclass(frozen=True)
class ShotsCurve:
    """One run: ``accuracies[s][t]`` of task t with ``shots[s]`` examples a class."""

    label: str
    trained_shots: int
    shots: list[int]
    accuracies: list[list[float]]


@dataclass(frozen=True)
class ShotsCurves(FigureNumbers):
    """All runs."""

    curves: list[ShotsCurve]

    def draw(self) -> Figure:
        """A curve for each run with 95 % intervals over tasks, the trained number of shots filled."""
        figure, panel = canvas(5.6, 3.4)
        for number, one in enumerate(self.curves):
            summaries = [summarise_tasks(values) for values in one.accuracies]
            means, halves = [each.mean for each in summaries], [each.interval or 0.0 for each in summaries]
            line = curve(panel, number, one.shots, means, halves, mfc="white", label=one.label)
            trained = 100 * means[one.shots.index(one.trained_shots)]
            panel.plot([one.trained_shots], [trained], line.get_marker(), color=line.get_color(), zorder=5)
        log_axis(panel, [shot for one in self.curves for shot in one.shots], "support examples a class")
        panel.set_ylabel(PERCENT)
        panel.legend(loc="lower right")
        return figure

    def caption(self) -> str:
        ends = []
        for one in self.curves:
            first, last = (summarise_tasks(one.accuracies[end]) for end in (0, -1))
            ends.append(f"{one.label}: {first} % with {one.shots[0]}, {last} % with {one.shots[-1]}")
        tasks = len(self.curves[0].accuracies[0])
        return (
            f"The first {tasks} test tasks with the same classes and queries and more and more examples; 95 % "
            f"intervals over tasks. The pool was trained with the filled point's number. {'; '.join(ends)}."
        )


def _measure_shots(runs: Sequence[FinishedRun], cache: NumbersCache) -> ShotsCurves:
    """Evaluate the same classes and queries with fewer and more examples, as many as the smallest class allows."""
    return ShotsCurves([_shots_curve(run, cache) for run in runs])


def _shots_curve(run: FinishedRun, cache: NumbersCache) -> ShotsCurve:
    seed, meta, wanted = run.seeds[0], run.config.meta, cache.options.shots
    # Every split's classes have to be large enough, or the method cannot be put together.
    room = min(size for split in run.dataset for size in split.sizes.values()) - meta.query
    shots = sorted({shot for shot in (*wanted, meta.shot) if shot <= room})
    if not shots:
        raise RunError(f"{run.label}: no class has room for any of {list(wanted)} shots.")
    count = min(cache.options.tasks, len(run.accuracies[seed]))
    accuracies = []
    with cache.progress_bar(count * (len(shots) - 1), "accuracy against shots") as bar:
        for shot in shots:
            if shot == meta.shot:  # these tasks are the test's
                accuracies.append(run.accuracies[seed][:count])
                continue
            method = run.method(seed, shots=shot)
            outcomes = evaluate_tasks(method.learner, method.sources["test"], count, method.eval_steps, bar)
            accuracies.append([outcome.accuracy for outcome in outcomes])
    return ShotsCurve(run.label, meta.shot, shots, accuracies)


SHOTS = FigureKind(
    "shots",
    "Accuracy against shots",
    "How many examples a class are enough?",
    ShotsCurves,
    _measure_shots,
    several=True,
    fits=lambda runs: not any(run.config.method_section.fixes_shots for run in runs),
    slow=True,
)
