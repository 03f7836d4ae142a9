"""1. A meta-iteration, the fast path against OpenPrompt's own, and where the fast one's time goes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from torch.profiler import ProfilerActivity, profile

from bench.timing import alternate
from bench.workload import Workload

# What the names of torch's operations have in common, looked for in this order.
_PARTS = {
    "attention": ("scaled_dot_product", "bmm", "softmax"),
    "matrix products": ("addmm", "aten::mm", "linear"),
    "activation": ("gelu",),
    "normalisation": ("layer_norm",),
}


def measure(work: Workload, rounds: int, stock_budget: bool) -> dict[str, Any]:
    """Seconds of each way, and their ratios.

    Args:
        work: the setting.
        rounds: how many times each way is timed; the best counts.
        stock_budget: also time the plain path padded to the whole budget, which is what the same YAML makes OpenPrompt
            do; otherwise only padded to the longest text, which is the least that a careful user would have it do.
    """
    tight = replace(work, budget=work.needed_budget)
    methods = {"fast": work.method("fast"), "plain, padded to the longest text": tight.method("plain")}
    if stock_budget and work.budget != tight.budget:
        methods[f"plain, padded to {work.budget}"] = work.method("plain")
    tasks = {name: work.tasks(method) for name, method in methods.items()}
    ways = {name: (lambda m=method, t=tasks[name]: m.learner.meta_step(t)) for name, method in methods.items()}
    times = alternate(ways, rounds)
    return {
        "setting": str(work),
        "seconds": dict(times.best),
        "ratio": {name: times.ratio(name, "fast") for name in ways if name != "fast"},
        "breakdown": breakdown(ways["fast"]),
    }


def breakdown(way: Callable[[], object]) -> dict[str, float]:
    """Shares of the time that something takes by kind of operation."""
    with profile(activities=[ProfilerActivity.CPU]) as recorded:
        way()
    shares = dict.fromkeys([*_PARTS, "everything else"], 0.0)
    for event in recorded.key_averages():
        part = next((p for p, names in _PARTS.items() if any(n in event.key for n in names)), "everything else")
        shares[part] += event.self_cpu_time_total
    total = sum(shares.values())
    return {part: share / total for part, share in shares.items()}
