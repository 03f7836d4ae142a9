"""From cells to a table: means and intervals, the paper's figures, the best, and paired comparisons."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy import stats

from openprompt_meta.errors import ConfigError, RunError
from openprompt_meta.runs.evaluation import SeedsSummary, summarise_seeds
from openprompt_meta.tables.cells import Cell, CellState, TableSettings
from openprompt_meta.tables.definitions import (
    PaperAccuracy,
    Table,
    TableRow,
    dataset_title,
    paper_accuracy,
    paper_millions,
)

# -- paired comparison: the same tasks evaluated by two methods, and what their difference is worth -------------------
#
# Two methods that see the same tasks share what makes a task hard. The differences task by task do not contain it, so
# they tell apart methods whose own intervals overlap.

LEVEL = 0.05
"""A difference is called significant below this, after Holm's correction."""
FLIPS = 10_000
_AT_ONCE = 1_000  # sign patterns in memory
_DECIMALS = 9  # of a sum: the same numbers in another order give the last digits differently; accuracies are coarser


@dataclass(frozen=True)
class PairedDifference:
    """Accuracy of a row minus that of the reference, over tasks that both were evaluated on."""

    mean: float
    interval: float | None
    """Half the width of the 95 % interval by the paired t distribution, of two tasks or more."""
    p: float
    """Two-sided, by flipping signs: how often chance alone gives a difference as large."""
    tasks: int


def compare(row: Sequence[float], reference: Sequence[float]) -> PairedDifference:
    """Compare accuracies task by task; ``row[i]`` and ``reference[i]`` are of the same task.

    Raises:
        RunError: there are not as many of one as of the other, or none.
    """
    if len(row) != len(reference) or not row:
        raise RunError(
            f"A paired comparison needs the same tasks on both sides; got {len(row)} and {len(reference)} tasks."
        )
    differences = np.asarray(row, dtype=np.float64) - np.asarray(reference, dtype=np.float64)
    return PairedDifference(
        mean=math.fsum(differences) / len(differences),
        interval=t_half_width(differences),
        p=sign_flip_p(differences),
        tasks=len(differences),
    )


def t_half_width(differences: Sequence[float] | np.ndarray) -> float | None:
    """Half the width of the 95 % t interval around the mean of ``differences``; ``None`` for fewer than two."""
    count = len(differences)
    if count < 2:
        return None
    quantile = stats.t.ppf(0.975, count - 1)
    return float(quantile * np.std(differences, ddof=1) / math.sqrt(count))


def sign_flip_p(differences: Sequence[float] | np.ndarray) -> float:
    """Two-sided p-value of a mean of zero, by flipping the sign of each difference.

    If the two methods were exchangeable, a difference would be as likely as its negative. All sign patterns are tried
    if there are no more than :data:`FLIPS`; else as many random ones, the observed one counted among them.
    """
    if len(differences) == 1:
        return 1.0  # both signs reach as far; scipy takes no fewer than two
    return float(
        stats.permutation_test(
            (np.asarray(differences, dtype=np.float64),),
            _distance_from_zero,
            permutation_type="samples",
            # Two-sided by the statistic: scipy's own would count one side and double it, with twice the error.
            alternative="greater",
            vectorized=True,
            n_resamples=FLIPS,
            batch=_AT_ONCE,
            rng=np.random.default_rng(0),
        ).pvalue
    )


def _distance_from_zero(differences: np.ndarray, axis: int) -> np.ndarray:
    distance: np.ndarray = np.abs(differences.sum(axis)).round(_DECIMALS)
    return distance


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's adjusted p-values in the order given: below a level with that chance of any false alarm among all."""
    adjusted = [0.0] * len(p_values)
    running = 0.0
    for rank, at in enumerate(sorted(range(len(p_values)), key=lambda index: p_values[index])):
        running = max(running, min(1.0, (len(p_values) - rank) * p_values[at]))
        adjusted[at] = running
    return adjusted


# -- From cells to a table: means and intervals, the paper's figures, the best, and what a difference is worth --------

INDUCTIVE, TRANSDUCTIVE = "inductive", "transductive"


@dataclass(frozen=True)
class Column:
    """Figures that may be compared: one data set, one number of shots, one kind."""

    dataset: str
    shot: int
    kind: str = INDUCTIVE

    @property
    def title(self) -> str:
        """As printed above it."""
        suffix = "" if self.kind == INDUCTIVE else f", {self.kind}"
        return f"{dataset_title(self.dataset)} {self.shot}-shot{suffix}"


@dataclass(frozen=True)
class Comparison:
    """A row against the column's reference, task by task."""

    against: str
    difference: PairedDifference
    holm_p: float

    @property
    def is_significant(self) -> bool:
        """Whether the difference is significant among all comparisons of the column."""
        return self.holm_p < LEVEL


@dataclass(frozen=True)
class Entry:
    """What a row has in a column."""

    summary: SeedsSummary | None = None
    mark: str = ""
    """``best``; ``within`` for a mean inside the best one's interval; else empty."""
    comparison: Comparison | None = None
    missing: str = ""
    """Why there is no figure, in a word or two; the whole reason is among the failures."""


@dataclass(frozen=True)
class ResultRow:
    """A row of the finished table."""

    row: TableRow
    parameters: int | None
    """Numbers tuned, as counted here."""
    paper_millions: float | None
    entries: Mapping[Column, Entry]
    paper: Mapping[tuple[str, int], PaperAccuracy]
    """The paper's figures by data set and shots."""


@dataclass(frozen=True)
class TableResult:
    """A table ready to be printed.

    Attributes:
        references: in each column, the row that the others are compared with.
        failures: what has no figure, and why.
    """

    table: Table
    settings: TableSettings
    columns: tuple[Column, ...]
    rows: tuple[ResultRow, ...]
    references: Mapping[Column, str]
    failures: tuple[str, ...]
    notes: tuple[str, ...]


def assemble(
    table: Table,
    rows: Sequence[TableRow],
    settings: TableSettings,
    states: Mapping[Cell, CellState],
    against: str | None = None,
) -> TableResult:
    """Put the table together.

    Args:
        table: its name and title.
        rows: those to print.
        settings: what they were run with.
        states: every cell of them.
        against: name of the row to compare the others with; by default the best of each column.
    """
    _require_runnable(against, rows)
    accuracies = _Accuracies(states)
    columns = _columns(settings, accuracies)
    entries: dict[str, dict[Column, Entry]] = {row.name: {} for row in rows}
    references = {}
    for column in columns:
        marks, best = _marks(column, rows, accuracies)
        reference = against if against is not None else best
        comparisons: Mapping[str, Comparison] = {}
        if reference is not None and accuracies.seeds(reference, column):
            references[column] = reference
            comparisons = _comparisons(column, rows, accuracies, reference)
        for name in entries:
            entries[name][column] = Entry(
                accuracies.summary(name, column),
                marks.get(name, ""),
                comparisons.get(name),
                accuracies.missing(name, column),
            )
    finished = tuple(
        ResultRow(
            row,
            accuracies.parameters.get(row.name),
            None if row.paper is None else paper_millions(*row.paper, settings.shots[0]),
            entries[row.name],
            _paper(row, settings),
        )
        for row in rows
    )
    return TableResult(
        table, settings, columns, finished, references, _failures(states), _notes(rows, settings, columns, states)
    )


class _Accuracies:
    """Per-task accuracies by row, column and seed."""

    def __init__(self, states: Mapping[Cell, CellState]) -> None:
        self.by_row: dict[tuple[str, Column], dict[int, tuple[float, ...]]] = {}
        self.parameters: dict[str, int] = {}
        self._missing: dict[tuple[str, str, int], str] = {}
        for cell, state in states.items():
            if state.outcome is None:
                word = "not run" if state.reason is None else "failed"
                self._missing[cell.row.name, cell.dataset, cell.shot] = word
                continue
            column = Column(cell.dataset, cell.shot, state.outcome.kind)
            self.by_row.setdefault((cell.row.name, column), {})[cell.seed] = state.outcome.accuracies
            if state.outcome.parameters is not None:
                self.parameters[cell.row.name] = state.outcome.parameters

    def missing(self, row: str, column: Column) -> str:
        """A word for an empty place; none where the row's accuracies are of the other kind or its own."""
        if any(self.seeds(row, replace(column, kind=kind)) for kind in (INDUCTIVE, TRANSDUCTIVE)):
            return ""
        return self._missing.get((row, column.dataset, column.shot), "")

    def seeds(self, row: str, column: Column) -> dict[int, tuple[float, ...]]:
        return self.by_row.get((row, column), {})

    def summary(self, row: str, column: Column) -> SeedsSummary | None:
        seeds = self.seeds(row, column)
        return summarise_seeds([seeds[seed] for seed in sorted(seeds)]) if seeds else None

    def pairs(self, row: str, other: str, column: Column) -> tuple[list[float], list[float]]:
        """Accuracies of both on the tasks of the seeds that both have."""
        first, second = self.seeds(row, column), self.seeds(other, column)
        shared = sorted(first.keys() & second.keys())
        return [a for seed in shared for a in first[seed]], [a for seed in shared for a in second[seed]]


def _columns(settings: TableSettings, accuracies: _Accuracies) -> tuple[Column, ...]:
    found = {column for _, column in accuracies.by_row}
    columns = []
    for dataset in settings.datasets:
        for shot in settings.shots:
            kinds = [Column(dataset, shot, kind) for kind in (INDUCTIVE, TRANSDUCTIVE)]
            columns += [column for column in kinds if column in found] or kinds[:1]
    return tuple(columns)


def _marks(column: Column, rows: Sequence[TableRow], accuracies: _Accuracies) -> tuple[dict[str, str], str | None]:
    """Which rows are best and within the best one's interval, and the name of the (first) best."""
    found = {row.name: accuracies.summary(row.name, column) for row in rows}
    summaries = {name: summary for name, summary in found.items() if summary is not None}
    if not summaries:
        return {}, None
    name = max(summaries, key=lambda name: summaries[name].mean)
    best, marks = summaries[name], {}
    for other, summary in summaries.items():
        if summary.mean == best.mean:
            marks[other] = "best"
        elif best.interval is not None and summary.mean >= best.mean - best.interval:
            marks[other] = "within"
    return marks, name


def _comparisons(
    column: Column, rows: Sequence[TableRow], accuracies: _Accuracies, against: str
) -> dict[str, Comparison]:
    differences = {}
    for row in rows:
        ours, theirs = accuracies.pairs(row.name, against, column)
        if row.name != against and ours:
            differences[row.name] = compare(ours, theirs)
    adjusted = holm([difference.p for difference in differences.values()])
    return {
        name: Comparison(against, difference, p)
        for (name, difference), p in zip(differences.items(), adjusted, strict=True)
    }


def _paper(row: TableRow, settings: TableSettings) -> dict[tuple[str, int], PaperAccuracy]:
    if row.paper is None:
        return {}
    places = [(dataset, shot) for dataset in settings.datasets for shot in settings.shots]
    found = {place: paper_accuracy(*row.paper, *place) for place in places}
    return {place: accuracy for place, accuracy in found.items() if accuracy is not None}


def _require_runnable(against: str | None, rows: Sequence[TableRow]) -> None:
    names = [row.name for row in rows]
    if against is not None and against not in names:
        raise ConfigError(f"--against {against}: there is no such row to compare with; there are {', '.join(names)}.")


def _failures(states: Mapping[Cell, CellState]) -> tuple[str, ...]:
    """One sentence for each row and reason, naming the seeds where others have figures."""
    seeds: dict[tuple[str, str, int, str], list[int]] = {}
    for cell, state in states.items():
        if state.outcome is None:
            reason = state.reason or "not run yet"
            seeds.setdefault((cell.row.label, cell.dataset, cell.shot, reason), []).append(cell.seed)
    return tuple(
        f"{label} ({dataset_title(dataset)}, {shot}-shot, seed {', '.join(map(str, numbers))}): {reason}"
        for (label, dataset, shot, reason), numbers in seeds.items()
    )


def _notes(
    rows: Sequence[TableRow], settings: TableSettings, columns: Sequence[Column], states: Mapping[Cell, CellState]
) -> tuple[str, ...]:
    seeds = ", ".join(map(str, settings.seeds))
    notes = [
        f"{settings.plm}; {settings.tasks} test tasks for each seed ({seeds}); mean ± half the 95 % interval over "
        "tasks, in per cent" + ("; in parentheses the deviation over seeds." if len(settings.seeds) > 1 else "."),
    ]
    if settings.overrides:
        notes.append(f"Keys for every cell: {' '.join(settings.overrides)}.")
    if not settings.has_head and any(row.defaults_with_head for row in rows):
        notes.append(
            f"{settings.plm} has no vocabulary head: MetaPrompter runs with RepVerb alone (λ = 1), not with both."
        )
    if any(column.kind == TRANSDUCTIVE for column in columns):
        notes.append("Transductive figures have seen the whole query set and stand in a column of their own.")
    if any(_paper(row, settings) for row in rows):
        notes.append(
            "paper: the figures it prints, bert-base-uncased, ± over three seeds. Its authors' code centres features "
            "by the query set too, so they may be transductive."
        )
    notes += dict.fromkeys(row.remark for row in rows if row.remark and _paper(row, settings))
    missing = [cell for cell, state in states.items() if state.outcome is None]
    if missing:
        notes.append(f"{len(missing)} of {len(states)} cells have no figure; the reasons stand below the table.")
    return tuple(notes)
