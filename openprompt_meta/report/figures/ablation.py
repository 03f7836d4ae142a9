"""Accuracy against the number of prompts K and their length L_p: the paper's ablation figures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from openprompt_meta.errors import RunError
from openprompt_meta.report.figure import (
    COLOURS,
    LINES,
    MARKERS,
    PERCENT,
    FigureKind,
    canvas,
)
from openprompt_meta.report.finished_run import FinishedRun
from openprompt_meta.report.workbench import Workbench

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["NUM_PROMPTS", "PROMPT_LENGTH", "Against", "AgainstCurve"]


@dataclass(frozen=True)
class AgainstCurve:
    """Runs on one kind of task, by growing value."""

    setting: str
    values: list[int]
    means: list[float]
    intervals: list[float]


@dataclass(frozen=True)
class Against:
    """Accuracy against one key of the prompt pool."""

    key: str
    curves: list[AgainstCurve]


def _value(run: FinishedRun, key: str) -> int:
    return int(getattr(run.config.prompt_pool_template, key))


def measure(runs: Sequence[FinishedRun], bench: Workbench, key: str) -> Against:
    """Read the runs' results."""
    if len({_value(run, key) for run in runs}) < 2:
        raise RunError(
            f"All {len(runs)} runs have prompt_pool_template.{key} = {_value(runs[0], key)}; a curve needs runs that "
            f"differ in it, e.g. openprompt-meta train YAML prompt_pool_template.{key}=4 run.folder=…"
        )
    groups: dict[str, list[FinishedRun]] = {}
    for run in sorted(runs, key=lambda run: _value(run, key)):
        groups.setdefault(run.setting, []).append(run)
    return Against(
        key,
        [
            AgainstCurve(
                setting,
                [_value(run, key) for run in own],
                [run.accuracy.mean for run in own],
                [run.accuracy.interval or 0.0 for run in own],
            )
            for setting, own in groups.items()
        ],
    )


def differs(runs: Sequence[FinishedRun], key: str) -> bool:
    """Whether there is a curve to draw."""
    return len({_value(run, key) for run in runs}) > 1


def draw(numbers: Against, axis: str) -> Figure:
    """A curve for each kind of task with 95 % intervals over tasks, on a log scale."""
    figure, panel = canvas(5.2, 3.3)
    for number, curve in enumerate(numbers.curves):
        panel.errorbar(
            curve.values,
            [100 * mean for mean in curve.means],
            [100 * half for half in curve.intervals],
            color=COLOURS[number % len(COLOURS)],
            marker=MARKERS[number % len(MARKERS)],
            linestyle=LINES[number % len(LINES)],
            capsize=3,
            label=curve.setting,
        )
    every = sorted({value for curve in numbers.curves for value in curve.values})
    panel.set_xscale("log", base=2)
    panel.set_xticks(every, [str(value) for value in every])
    panel.minorticks_off()
    panel.set(xlabel=f"{axis} (log scale)", ylabel=PERCENT)
    panel.legend()
    return figure


def caption(numbers: Against) -> str:
    """Where each curve is highest."""
    best = []
    for curve in numbers.curves:
        top = max(range(len(curve.values)), key=lambda place: curve.means[place])
        best.append(f"{curve.setting}: {100 * curve.means[top]:.1f} % at {curve.values[top]}")
    return f"Test accuracy with 95 % intervals over tasks, one run a point. Highest: {'; '.join(best)}."


def _kind(name: str, key: str, title: str, axis: str) -> FigureKind[Against]:
    fits: Callable[[Sequence[FinishedRun]], bool] = partial(differs, key=key)
    return FigureKind(
        name,
        title,
        "How much does it matter?",
        Against,
        partial(measure, key=key),
        partial(draw, axis=axis),
        caption,
        several=True,
        fits=fits,
    )


NUM_PROMPTS = _kind("num-prompts", "num_prompts", "Accuracy against K", "prompts in the pool, K")
PROMPT_LENGTH = _kind("prompt-length", "prompt_length", "Accuracy against L_p", "positions of a prompt, $L_p$")
