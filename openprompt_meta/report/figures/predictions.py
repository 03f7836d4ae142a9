"""What a run predicts for test tasks: accuracy by task and by class, confusions, calibration."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from openprompt_meta.report.figure import FigureKind, FigureNumbers
from openprompt_meta.report.finished_run import FinishedRun
from openprompt_meta.report.numbers_cache import NumbersCache
from openprompt_meta.report.plotting import COLOURS, PERCENT, canvas, heat_map, percents
from openprompt_meta.runs.evaluation import evaluate_tasks, summarise_tasks

if TYPE_CHECKING:
    from matplotlib.figure import Figure


# -- test tasks evaluated again with what a test leaves out: every text's probabilities -------------------------------


@dataclass(frozen=True)
class TaskPredictions:
    """One test task: ``probabilities[i][c]`` of query text ``i`` being of class ``classes[c]``."""

    index: int
    classes: list[str]
    labels: list[int]
    probabilities: list[list[float]]

    @property
    def predictions(self) -> list[int]:
        """The most probable class of each text."""
        return [row.index(max(row)) for row in self.probabilities]

    @property
    def hits(self) -> list[bool]:
        """Whether each text is classified rightly."""
        return [guess == label for guess, label in zip(self.predictions, self.labels, strict=True)]


@dataclass(frozen=True)
class RunPredictions:
    """The first test tasks of a run's first seed."""

    seed: int
    tasks: list[TaskPredictions]


def predictions_of(run: FinishedRun, cache: NumbersCache) -> RunPredictions:
    """Evaluate the first test tasks, no more than the run was tested on; kept for every figure that needs them."""
    return cache.get_or_compute(f"evaluated-{run.file_label}", RunPredictions, [run], lambda: _predict(run, cache))


def _predict(run: FinishedRun, cache: NumbersCache) -> RunPredictions:
    seed = run.seeds[0]
    count = min(cache.options.tasks, len(run.accuracies[seed]))
    method = run.method(seed)
    source = method.sources["test"]
    with cache.progress_bar(count, "test tasks, evaluated again") as bar:
        outcomes = evaluate_tasks(method.learner, source, count, method.eval_steps, bar)
    tasks = []
    for outcome, episode in zip(outcomes, source.episodes.take(count), strict=True):
        probabilities = outcome.log_probabilities.double().exp().tolist()
        tasks.append(TaskPredictions(outcome.index, list(episode.classes), list(episode.query_labels), probabilities))
    return RunPredictions(seed, tasks)


# -- accuracy task by task --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TaskAccuracies(FigureNumbers):
    """Accuracy of every test task by seed, as shares; ``hardest`` are numbers of tasks of the first seed."""

    by_seed: dict[int, list[float]]
    hardest: list[int]
    chance: float

    def draw(self) -> Figure:
        """A histogram over all tasks of all seeds."""
        figure, panel = canvas(6.2, 3.0)
        values = [value for of_seed in self.by_seed.values() for value in percents(of_seed)]
        low = max(0, 5 * math.floor(min(values) / 5) - 5)
        panel.hist(values, bins=range(low, 106, 5), color=COLOURS[3])
        mean = math.fsum(values) / len(values)
        panel.axvline(mean, color="black", ls="--", label=f"mean {mean:.1f} %")
        if 100 * self.chance >= low:
            panel.axvline(100 * self.chance, color="black", ls=":", label=f"chance {100 * self.chance:.0f} %")
        panel.set(xlabel=f"{PERCENT}, of one task", ylabel="test tasks", xlim=(low, 102))
        panel.yaxis.get_major_locator().set_params(integer=True)
        panel.legend()
        return figure

    def caption(self) -> str:
        pooled = summarise_tasks([value for of_seed in self.by_seed.values() for value in of_seed])
        return (
            f"{pooled.tasks} test tasks of unseen classes, {pooled} % on average (95 % interval). The hardest of the "
            f"first seed are tasks {', '.join(map(str, self.hardest))}."
        )


def _measure_tasks(runs: Sequence[FinishedRun], cache: NumbersCache) -> TaskAccuracies:
    (run,) = runs
    first = run.accuracies[run.seeds[0]]
    hardest = sorted(range(len(first)), key=lambda index: (first[index], index))[:5]
    return TaskAccuracies(run.accuracies, hardest, 1 / run.config.meta.way)


TASKS = FigureKind(
    "tasks", "Accuracy task by task", "How much does it depend on the task?", TaskAccuracies, _measure_tasks
)

# -- accuracy class by class ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ClassAccuracies(FigureNumbers):
    """``recalls[c]`` holds, for each evaluated task with class c, the share of its texts that were recognised."""

    seed: int
    classes: list[str]
    recalls: list[list[float]]

    def draw(self) -> Figure:
        """A row for each class: every task as a dot, their spread as a box, the hardest class below."""
        figure, panel = canvas(6.6, 0.9 + 0.28 * len(self.classes))
        rows = [percents(values) for values in self.recalls]
        boxes = panel.boxplot(
            rows,
            orientation="horizontal",
            whis=(0, 100),
            widths=0.6,
            patch_artist=True,
            showmeans=True,
            meanprops={"marker": "D", "markerfacecolor": "black", "markeredgecolor": "black", "markersize": 4},
            medianprops={"color": "black"},
        )
        for box in boxes["boxes"]:
            box.set(facecolor=COLOURS[3], alpha=0.6)
        names = [f"{name} ({len(values)})" for name, values in zip(self.classes, rows, strict=True)]
        panel.set_yticks(range(1, len(rows) + 1), names)
        panel.set(xlabel="texts of the class recognised in a task, %", xlim=(-2, 102))
        return figure

    def caption(self) -> str:
        return (
            "Share of a class's query texts that were recognised, over the tasks that it was drawn for (their number "
            f"in brackets; seed {self.seed}). Boxes are quartiles, whiskers the extremes, diamonds means. Hardest: "
            f"{self.classes[0]}; easiest: {self.classes[-1]}."
        )


def _measure_classes(runs: Sequence[FinishedRun], cache: NumbersCache) -> ClassAccuracies:
    (run,) = runs
    predicted = predictions_of(run, cache)
    recalls: dict[str, list[float]] = {}
    for task in predicted.tasks:
        for number, name in enumerate(task.classes):
            own = [hit for hit, label in zip(task.hits, task.labels, strict=True) if label == number]
            recalls.setdefault(name, []).append(sum(own) / len(own))
    names = sorted(recalls, key=lambda name: (math.fsum(recalls[name]) / len(recalls[name]), name))
    return ClassAccuracies(predicted.seed, names, [recalls[name] for name in names])


CLASSES = FigureKind(
    "classes", "Accuracy class by class", "Which classes are hard?", ClassAccuracies, _measure_classes
)

# -- which class is taken for which -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Confusion(FigureNumbers):
    """``counts[t][p]``: texts of class t that were taken for p; ``chances[t][p]``: those for which p was on offer.

    A task offers a few of the classes only, so counts alone would say how often two classes met.
    """

    seed: int
    classes: list[str]
    counts: list[list[int]]
    chances: list[list[int]]

    @property
    def rates(self) -> list[list[float]]:
        """Share of texts of class t, in tasks that offered p, that were taken for p; 0 where the two never met."""
        return [
            [count / chance if chance else 0.0 for count, chance in zip(row, possible, strict=True)]
            for row, possible in zip(self.counts, self.chances, strict=True)
        ]

    @property
    def worst(self) -> list[tuple[float, str, str]]:
        """The confusions, most frequent first: rate, class, what it was taken for."""
        pairs = [
            (rate, true, predicted)
            for true, row in zip(self.classes, self.rates, strict=True)
            for predicted, rate in zip(self.classes, row, strict=True)
            if true != predicted and rate > 0
        ]
        return sorted(pairs, key=lambda pair: (-pair[0], pair[1], pair[2]))

    def draw(self) -> Figure:
        """True classes down, predicted ones across."""
        many = len(self.classes)
        figure, panel = canvas(2.8 + 0.42 * many, max(3.0, 1.9 + 0.34 * many))
        rates = [percents(row) for row in self.rates]
        digits = 0 if many <= 20 else None
        heat_map(panel, rates, self.classes, self.classes, "share of texts, %", digits, vmin=0)
        panel.tick_params(axis="x", rotation=90)
        panel.set(xlabel="taken for", ylabel="true class")
        return figure

    def caption(self) -> str:
        worst = "; ".join(f"{true} for {taken} ({100 * rate:.0f} %)" for rate, true, taken in self.worst[:3])
        return (
            "Of the texts of a class, in tasks that offered the other class too, the share that was taken for it "
            f"(seed {self.seed}). " + (f"Most often taken: {worst}." if worst else "There was no confusion at all.")
        )


def _measure_confusion(runs: Sequence[FinishedRun], cache: NumbersCache) -> Confusion:
    (run,) = runs
    predicted = predictions_of(run, cache)
    classes = sorted({name for task in predicted.tasks for name in task.classes})
    position = {name: number for number, name in enumerate(classes)}
    counts = [[0] * len(classes) for _ in classes]
    chances = [[0] * len(classes) for _ in classes]
    for task in predicted.tasks:
        offered = [position[name] for name in task.classes]
        for label, guess in zip(task.labels, task.predictions, strict=True):
            counts[offered[label]][offered[guess]] += 1
            for other in offered:
                chances[offered[label]][other] += 1
    return Confusion(predicted.seed, classes, counts, chances)


CONFUSION = FigureKind("confusion", "Confusions", "What is taken for what?", Confusion, _measure_confusion)

# -- whether predicted probabilities can be believed ------------------------------------------------------------------

BINS = 10


@dataclass(frozen=True)
class Calibration(FigureNumbers):
    """Texts binned by the probability of the predicted class, equal widths from 0 to 1.

    Bin b holds ``counts[b]`` texts of mean probability ``confidences[b]`` and accuracy ``accuracies[b]``, both 0 if it
    is empty.
    """

    seed: int
    counts: list[int]
    confidences: list[float]
    accuracies: list[float]
    error: float
    """Expected calibration error: mean over texts of |accuracy - confidence| of their bin."""

    def draw(self) -> Figure:
        """Accuracy against confidence above, how many texts below."""
        figure, (above, below) = canvas(4.6, 4.6, 2, 1, sharex=True, height_ratios=(3, 1))
        filled = [b for b, count in enumerate(self.counts) if count]
        confidences, accuracies = percents(self.confidences), percents(self.accuracies)
        above.plot([0, 100], [0, 100], ":", color="black", label="as good as it says")
        above.plot(
            [confidences[b] for b in filled], [accuracies[b] for b in filled], "-o", color=COLOURS[0], label="this run"
        )
        above.set(ylabel=PERCENT, ylim=(-3, 103), title=f"Expected calibration error {100 * self.error:.1f} points")
        above.legend(loc="upper left")
        width = 100 / len(self.counts)
        below.bar([width * (b + 0.5) for b in range(len(self.counts))], self.counts, width, color=COLOURS[3])
        below.set(xlabel="probability of the predicted class, %", ylabel="texts", xlim=(0, 102))
        return figure

    def caption(self) -> str:
        total = sum(self.counts)
        sure = math.fsum(c * n for c, n in zip(self.confidences, self.counts, strict=True)) / total
        right = math.fsum(a * n for a, n in zip(self.accuracies, self.counts, strict=True)) / total
        verdict = "too sure of itself" if sure > right else "less sure than it could be"
        return (
            f"{total} texts (seed {self.seed}). On average it says {100 * sure:.1f} % and is right in "
            f"{100 * right:.1f} %: {verdict}. Expected calibration error {100 * self.error:.1f} points, "
            f"in {len(self.counts)} bins."
        )


def calibrate(confidences: Sequence[float], hits: Sequence[bool], seed: int = 0) -> Calibration:
    """Bin predictions by their confidence; a bin owns its upper edge."""
    members: list[list[int]] = [[] for _ in range(BINS)]
    for text, confidence in enumerate(confidences):
        members[min(max(math.ceil(confidence * BINS) - 1, 0), BINS - 1)].append(text)
    means = [math.fsum(confidences[i] for i in own) / len(own) if own else 0.0 for own in members]
    shares = [sum(hits[i] for i in own) / len(own) if own else 0.0 for own in members]
    gaps = [len(own) * abs(share - mean) for own, share, mean in zip(members, shares, means, strict=True)]
    return Calibration(seed, [len(own) for own in members], means, shares, math.fsum(gaps) / len(confidences))


def _measure_calibration(runs: Sequence[FinishedRun], cache: NumbersCache) -> Calibration:
    (run,) = runs
    predicted = predictions_of(run, cache)
    confidences = [max(row) for task in predicted.tasks for row in task.probabilities]
    return calibrate(confidences, [hit for task in predicted.tasks for hit in task.hits], predicted.seed)


CALIBRATION = FigureKind(
    "calibration", "Calibration", "Can its probabilities be believed?", Calibration, _measure_calibration
)
