"""5. How time and memory of a fast meta-iteration grow with what there is to do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench.memory import peak_of
from bench.timing import alternate
from bench.workload import Workload

AXES: dict[str, tuple[int, ...]] = {
    "tasks a meta-iteration": (1, 2, 4, 8),
    "words a text": (5, 20, 80, 160),
    "prompts in the pool": (1, 4, 16, 64),
    "classes of a task": (2, 5, 10, 20),
}
_FIELDS = {
    "tasks a meta-iteration": "meta_batch",
    "prompts in the pool": "num_prompts",
    "classes of a task": "way",
}


def measure(axis: str, rounds: int, base: Workload | None = None) -> dict[str, Any]:
    """Seconds and megabytes along an axis, all else as in ``base``: short texts, five ways, one shot by default."""
    base = base or Workload(shot=1)
    works = {value: _at(base, axis, value) for value in AXES[axis]}
    ways = {}
    for value, work in works.items():
        method = work.method("fast")
        tasks = work.tasks(method)
        ways[str(value)] = lambda m=method, t=tasks: m.learner.meta_step(t)
    times = alternate(ways, rounds)
    return {
        "axis": axis,
        "values": list(works),
        "seconds": [times.best[str(value)] for value in works],
        "megabytes": [peak_of(work, "fast") for work in works.values()],
    }


def _at(base: Workload, axis: str, value: int) -> Workload:
    if axis == "words a text":
        return replace(base, kind=f"{value} words")
    changed: dict[str, Any] = {_FIELDS[axis]: value}
    return replace(base, **changed)


def draw(curves: Sequence[Mapping[str, Any]], file: Path) -> None:
    """The curves as a figure, time above and memory below, and beside each what growth in proportion would be."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt
    from matplotlib.ticker import LogLocator, StrMethodFormatter

    figure, rows = plt.subplots(
        2,
        len(curves),
        figsize=(3.2 * len(curves), 5.2),
        sharex="col",
        sharey="row",
        squeeze=False,
        constrained_layout=True,
    )
    for column, curve in enumerate(curves):
        for row, (key, unit) in enumerate((("seconds", "time, s"), ("megabytes", "memory, MB"))):
            panel = rows[row][column]
            proportional = [curve[key][0] * value / curve["values"][0] for value in curve["values"]]
            panel.plot(curve["values"], proportional, color="grey", linestyle=":", label="in proportion")
            panel.plot(curve["values"], curve[key], marker="o", color="black", label="measured")
            panel.set(xscale="log", yscale="log")
            panel.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            panel.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
            panel.grid(True, which="major", alpha=0.3)
            panel.minorticks_off()
            panel.set_xticks(curve["values"], [str(value) for value in curve["values"]])
            if column == 0:
                panel.set_ylabel(unit)
            if row == 1:
                panel.set_xlabel(curve["axis"])
            measured = [value for other in curves for value in other[key]]
            panel.set_ylim(min(measured) / 1.5, max(measured) * 1.5)
    rows[0][0].legend()
    figure.suptitle("One meta-iteration, fast engine, MiniLM, 5-way 1-shot, 15 queries a class unless varied")
    figure.savefig(file, dpi=110)
    plt.close(figure)
