"""Runs side by side, task by task on the same tasks, and against what needs no training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from openprompt_meta.config.schema import DatasetSection, RunConfig, describe
from openprompt_meta.errors import RunError
from openprompt_meta.report.figure import FigureKind, FigureNumbers
from openprompt_meta.report.finished_run import FinishedRun, by_setting
from openprompt_meta.report.numbers_cache import NumbersCache
from openprompt_meta.report.plotting import COLOURS, HATCHES, PERCENT, canvas, note
from openprompt_meta.runs.evaluation import TasksSummary, evaluate_tasks, summarise_tasks

if TYPE_CHECKING:
    from matplotlib.figure import Figure


# -- runs as bars, grouped by task: with and without tuning (the paper's first figure), or others ---------------------

# Where a run stands, not what it does.
_ELSEWHERE = ("dataset.", "run.", "meta.way", "meta.shot", "meta.test_tasks")


@dataclass(frozen=True)
class RunAccuracy:
    """One run: ``group`` is its kind of task, ``name`` what sets it apart from the others of the group."""

    group: str
    name: str
    label: str
    mean: float
    interval: float


@dataclass(frozen=True)
class RunAccuracies(FigureNumbers):
    """All runs, in their order."""

    bars: list[RunAccuracy]

    def draw(self) -> Figure:
        """A group for each kind of task, a shade and a hatch for each kind of run."""
        groups = list(dict.fromkeys(bar.group for bar in self.bars))
        names = list(dict.fromkeys(bar.name for bar in self.bars))
        figure, panel = canvas(max(5.0, 2.0 + 0.75 * len(groups) * len(names)), 3.6)
        width = 0.8 / len(names)
        shown = set()
        for bar in self.bars:
            which = names.index(bar.name)
            place = groups.index(bar.group) + (which - (len(names) - 1) / 2) * width
            panel.bar(
                place,
                100 * bar.mean,
                width * 0.92,
                yerr=100 * bar.interval,
                capsize=3,
                hatch=HATCHES[which % len(HATCHES)],
                color=COLOURS[(3, 1, 5, 6, 0, 4, 7, 2)[which % 8]],
                label=None if bar.name in shown else bar.name,
            )
            note(
                panel, f"{100 * bar.mean:.1f}", (place, 100 * (bar.mean + bar.interval)), (0, 2), ha="center", size=7.5
            )
            shown.add(bar.name)
        panel.set_xticks(range(len(groups)), groups)
        panel.set(ylabel=PERCENT, ylim=(0, 108), yticks=range(0, 101, 20))
        panel.grid(False, axis="x")
        if names != ["accuracy"]:
            figure.legend(loc="outside upper center", ncols=1 if max(map(len, names)) > 30 else min(3, len(names)))
        return figure

    def caption(self) -> str:
        best = max(self.bars, key=lambda bar: bar.mean)
        return (
            "Accuracy on unseen classes with 95 % intervals over tasks. Highest: "
            f"{best.label}, {100 * best.mean:.2f} ± {100 * best.interval:.2f} % ({best.group})."
        )

    def table(self) -> list[list[str]]:
        rows = [
            [bar.label, bar.group, bar.name, f"{100 * bar.mean:.2f} ± {100 * bar.interval:.2f}"] for bar in self.bars
        ]
        return [["run", "task", "what sets it apart", PERCENT], *rows]


def _differing_keys(configs: Sequence[RunConfig]) -> set[str]:
    paths = [key.path for key in describe()]
    return {path for path in paths if any(one.value_at(path) != configs[0].value_at(path) for one in configs[1:])}


def _measure_runs(runs: Sequence[FinishedRun], cache: NumbersCache) -> RunAccuracies:
    """Name the runs by the keys in which those on the same tasks differ; by their labels if that is not enough."""
    groups = by_setting(runs).values()
    differing = {path for own in groups for path in _differing_keys([run.config for run in own])}
    keys = [key.path for key in describe() if key.path in differing and not key.path.startswith(_ELSEWHERE)]
    names = {run.label: ", ".join(f"{path}={run.config.value_at(path)}" for path in keys) for run in runs}
    if any(len({names[run.label] for run in own}) < len(own) for own in groups):
        names = {run.label: run.label for run in runs}
    bars = []
    for run in runs:
        accuracy, name = run.accuracy, names[run.label] or "accuracy"
        bars.append(RunAccuracy(run.setting, name, run.label, accuracy.mean, accuracy.interval or 0.0))
    return RunAccuracies(bars)


TUNING = FigureKind(
    "tuning",
    "Runs side by side",
    "Which is better on which task?",
    RunAccuracies,
    _measure_runs,
    several=True,
    fits=lambda runs: len(runs) > 1,
)

# -- differences to the first run, task by task -----------------------------------------------------------------------


@dataclass(frozen=True)
class TaskDifferences:
    """A run's accuracy minus the reference's on each task that both were tested on, as shares."""

    label: str
    differences: list[float]

    @property
    def summary(self) -> TasksSummary:
        """Mean and 95 % interval."""
        return summarise_tasks(self.differences)

    @property
    def wins(self) -> tuple[int, int, int]:
        """Tasks on which the run is better, equal, worse."""
        signs = [(value > 0) - (value < 0) for value in self.differences]
        return signs.count(1), signs.count(0), signs.count(-1)


@dataclass(frozen=True)
class PairedRuns(FigureNumbers):
    """Every run against the first one."""

    reference: str
    pairs: list[TaskDifferences]

    def draw(self) -> Figure:
        """A row for each run: every task as a dot, its mean with the 95 % interval below them."""
        figure, panel = canvas(6.8, 1.3 + 0.85 * len(self.pairs))
        names = []
        for number, pair in enumerate(self.pairs):
            places: dict[float, int] = {}
            for value in sorted(pair.differences):
                above = places[value] = places.get(value, -1) + 1  # equal values beside one another, not upon
                height = number + 0.05 + min(above, 16) * 0.035
                panel.plot(100 * value, height, "o", ms=3, color=COLOURS[3], mec="black", mew=0.3)
            mean, half = pair.summary.mean, pair.summary.interval or 0.0
            panel.errorbar(100 * mean, number - 0.18, xerr=100 * half, fmt="D", color="black", capsize=4, ms=5)
            better, equal, worse = pair.wins
            names.append(f"{pair.label}\n{better} better, {equal} equal, {worse} worse")
        panel.axvline(0, color="black", lw=0.9)
        panel.set_yticks(range(len(names)), names)
        panel.set(xlabel=f"accuracy minus that of {self.reference}\non the same task, points")
        panel.set_ylim(-0.45, len(names) - 0.25)
        panel.grid(False, axis="y")
        return figure

    def caption(self) -> str:
        sentences = []
        for pair in self.pairs:
            summary = pair.summary
            sure = summary.interval is not None and abs(summary.mean) > summary.interval
            verdict = "more than chance" if sure else "not told from chance"
            sentences.append(f"{pair.label}: {summary} points over {summary.tasks} tasks, {verdict}")
        return (
            f"Each dot is a test task, the diamond the mean with its 95 % interval over tasks. Against "
            f"{self.reference}: {'; '.join(sentences)}. Tasks are the sample: the interval does "
            "not cover other trainings."
        )


def _measure_pairs(runs: Sequence[FinishedRun], cache: NumbersCache) -> PairedRuns:
    """Pair the tests of the runs by seed and task."""
    first, *others = runs
    if not others:
        raise RunError("Paired differences compare a run with others: name two run folders or more.")
    pairs = []
    for run in others:
        reason = _why_not_the_same_tasks(first, run)
        if reason:
            raise RunError(f"{first.label} and {run.label} were tested on different tasks: {reason}.")
        differences = [
            theirs - ours
            for seed in first.seeds
            if seed in run.seeds
            for ours, theirs in zip(first.accuracies[seed], run.accuracies[seed], strict=False)
        ]
        pairs.append(TaskDifferences(run.label, differences))
    return PairedRuns(first.label, pairs)


def _why_not_the_same_tasks(one: FinishedRun, two: FinishedRun) -> str:
    if _texts(one) != _texts(two):
        return "their dataset sections differ"
    for key in ("way", "query"):
        values = [getattr(run.config.meta, key) for run in (one, two)]
        if values[0] != values[1]:
            return f"meta.{key} is {values[0]} in one and {values[1]} in the other"
    if not set(one.seeds) & set(two.seeds):
        return f"their seeds are {one.seeds} and {two.seeds}"
    return ""


def _texts(run: FinishedRun) -> DatasetSection:
    """What decides which texts a task has; how long they may be and which words label them does not."""
    return run.config.dataset.model_copy(
        update={"max_seq_length": DatasetSection().max_seq_length, "label_words": None}
    )


def _are_comparable(runs: Sequence[FinishedRun]) -> bool:
    return len(runs) > 1 and not any(_why_not_the_same_tasks(runs[0], run) for run in runs[1:])


PAIRED = FigureKind(
    "paired",
    "Paired differences",
    "Which is better, and how sure is it?",
    PairedRuns,
    _measure_pairs,
    several=True,
    fits=_are_comparable,
)

# -- one run against what needs no training, on the same test tasks and the same frozen encoder -----------------------

_UNTRAINED = {
    "mask_prototypes": "[MASK] of the bare template, class means",
    "mean_prototypes": "mean over tokens, class means",
}


@dataclass(frozen=True)
class Baselines(FigureNumbers):
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

    def draw(self) -> Figure:
        """Bars from left to right with 95 % intervals over tasks."""
        figure, panel = canvas(6.6, 2.3)
        rows = {"this run": self.run, **self.without_training}
        for number, values in enumerate(reversed(rows.values())):
            summary, place = summarise_tasks(values), len(rows) - 1 - number
            half = summary.interval or 0.0
            colour = COLOURS[0] if place == 0 else "#d0d0d0"
            panel.barh(
                number, 100 * summary.mean, xerr=100 * half, capsize=3, height=0.65, color=colour, hatch=HATCHES[place]
            )
            note(panel, str(summary), (100 * (summary.mean + half), number), (4, 0), va="center", size=8)
        panel.set_yticks(range(len(rows)), list(reversed(rows)))
        chance, box = 100 * self.chance, {"fc": "white", "ec": "none", "pad": 1}
        panel.axvline(chance, color="black", ls=":", lw=0.9)
        panel.text(chance, len(rows) - 0.5, "chance", ha="center", size=7, bbox=box)
        panel.set(
            xlabel=f"{PERCENT}, 95 % interval over {len(self.run)} tasks", xlim=(0, 122), xticks=range(0, 101, 20)
        )
        panel.set_ylim(-0.5, len(rows) - 0.3)
        panel.grid(False, axis="y")
        return figure

    def caption(self) -> str:
        """By how much the run wins or loses."""
        gains = [f"{self.gain_over(name)} points against {name}" for name in self.without_training]
        return (
            f"Mean over the first {len(self.run)} test tasks (seed {self.seed}). The run's gain over what needs no "
            f"training, paired by task: {'; '.join(gains)}."
        )


def _measure_baselines(runs: Sequence[FinishedRun], cache: NumbersCache) -> Baselines:
    """Evaluate class means of the frozen encoder's features on the tasks that the run was tested on."""
    (run,) = runs
    seed = run.seeds[0]
    own = run.accuracies[seed][: cache.options.tasks]
    found: dict[str, list[float]] = {}
    with cache.progress_bar(len(own) * len(_UNTRAINED), "without training") as bar:
        for name, title in _UNTRAINED.items():
            method = run.method(seed, name=name)
            outcomes = evaluate_tasks(method.learner, method.sources["test"], len(own), method.eval_steps, bar)
            found[title] = [outcome.accuracy for outcome in outcomes]
    return Baselines(seed, 1 / run.config.meta.way, own, found)


BASELINES = FigureKind(
    "baselines", "Against no training at all", "Was meta-learning worth it?", Baselines, _measure_baselines
)
