"""Where time and memory go."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from openprompt_meta.report.figure import COLOURS, HATCHES, FigureKind, canvas
from openprompt_meta.report.finished_run import FinishedRun, meta_learner_of
from openprompt_meta.report.workbench import Workbench

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["COSTS", "Costs", "HeldForBackward"]


@dataclass(frozen=True)
class Costs:
    """Seconds of the run as logged, seconds of one meta-iteration here and now, and bytes by what holds them."""

    run_seconds: dict[str, float]
    iteration_seconds: dict[str, float]
    bytes: dict[str, int]


def measure(runs: Sequence[FinishedRun], bench: Workbench) -> Costs:
    """Add up the run's metrics, and take one meta-iteration apart; the run's own files stay as they are."""
    (run,) = runs
    records = {kind: [r for seed in run.seeds for r in run.metrics(seed, kind)] for kind in ("step", "validation")}
    run_seconds = {
        f"meta-training, {len(records['step'])} iterations": math.fsum(r["seconds"] for r in records["step"]),
        f"validation, {len(records['validation'])} times": math.fsum(r["seconds"] for r in records["validation"]),
    }
    method = run.method(run.seeds[0])
    learner, source, steps = meta_learner_of(method), method.sources["train"], run.config.meta.inner_steps
    source[0]  # tokenised, and queries read or computed
    drawing, task = _timed(lambda: source[1])

    def inner_loop() -> None:
        with learner.adapting([task]) as adaptation:
            for _ in range(steps):
                adaptation.step()

    inner_loop()  # once for nothing: the first pass of a process is slow
    inner, _ = _timed(inner_loop)
    whole, _ = _timed(lambda: learner.meta_step([task]))
    with HeldForBackward(run.loaded.model) as held:
        learner.meta_step([task])
    model = run.loaded.model
    embedding = _bytes([model.get_input_embeddings().weight])
    states = [
        value for state in learner.optimizer.state.values() for value in state.values() if torch.is_tensor(value)
    ]
    texts = sum(len(split) for split in run.dataset)
    has_choice = method.template.pool.num_prompts > 1  # a single prompt is never asked for
    return Costs(
        run_seconds,
        {
            "drawing and batching texts": drawing,
            f"{steps} inner steps": inner,
            "query pass and outer step": max(0.0, whole - inner),
        },
        {
            "input embedding": embedding,
            "rest of the language model": _bytes(model.parameters()) - embedding,
            "kept for one backward pass": held.peak,
            "query vectors of all texts": 4 * texts * int(model.config.hidden_size) if has_choice else 0,
            "pool and its optimiser": _bytes(learner.meta_parameters.parameters()) + _bytes(states),
        },
    )


class HeldForBackward:
    """Inside a ``with`` block, counts the most bytes that autograd holds for backward passes at any time.

    Weights of the model are not counted, and neither is what two operations share counted twice.
    """

    def __init__(self, model: torch.nn.Module) -> None:
        self.peak = 0
        self._now = 0
        self._holders: dict[int, int] = {}
        self._weights = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
        self._hooks = torch.autograd.graph.saved_tensors_hooks(self._pack, lambda held: held.tensor)

    def __enter__(self) -> HeldForBackward:
        self._hooks.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._hooks.__exit__(*error)

    def _pack(self, tensor: Tensor) -> _Held:
        return _Held(self, tensor)

    def take(self, place: int, size: int) -> None:
        """Somebody holds the storage at ``place``."""
        if place in self._weights:
            return
        if place not in self._holders:
            self._now += size
            self.peak = max(self.peak, self._now)
        self._holders[place] = self._holders.get(place, 0) + 1

    def give_back(self, place: int, size: int) -> None:
        """One holder less."""
        if place in self._weights:
            return
        self._holders[place] -= 1
        if not self._holders[place]:
            del self._holders[place]
            self._now -= size


class _Held:
    """A tensor as long as autograd holds it."""

    def __init__(self, counter: HeldForBackward, tensor: Tensor) -> None:
        self.tensor = tensor
        self._counter = counter
        storage = tensor.untyped_storage()
        self._place, self._size = storage.data_ptr(), storage.nbytes()
        counter.take(self._place, self._size)

    def __del__(self) -> None:
        self._counter.give_back(self._place, self._size)


def _bytes(tensors: Any) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def _timed(action: Any) -> tuple[float, Any]:
    started = time.perf_counter()
    result = action()
    return time.perf_counter() - started, result


def draw(numbers: Costs) -> Figure:
    """Three panels: the whole run, one iteration, memory."""
    figure, panels = canvas(10.2, 2.5, 1, 3)
    mega = {name: size / 1e6 for name, size in numbers.bytes.items()}
    parts = (
        ("The run", numbers.run_seconds, "s", ".3g"),
        ("One meta-iteration", numbers.iteration_seconds, "s", ".2g"),
        ("Memory", mega, "MB", ".3g"),
    )
    for number, (panel, (title, values, unit, digits)) in enumerate(zip(panels, parts, strict=True)):
        for row, (name, value) in enumerate(reversed(values.items())):
            panel.barh(
                row,
                value,
                height=0.5,
                color=COLOURS[(3, 1, 5)[number]],
                hatch=HATCHES[number],
                edgecolor="black",
                lw=0.6,
            )
            panel.annotate(
                f"{name}: {value:{digits}} {unit}",
                (0, row + 0.27),
                xytext=(2, 1),
                textcoords="offset points",
                va="bottom",
                size=7.5,
            )
        panel.set_yticks([])
        panel.grid(False, axis="y")
        panel.set(
            title=title, xlabel=f"{'memory' if unit == 'MB' else 'time'}, {unit}", ylim=(-0.4, len(values) - 0.1)
        )
    return figure


def caption(numbers: Costs) -> str:
    """Sums."""
    minutes, total = sum(numbers.run_seconds.values()) / 60, sum(numbers.bytes.values()) / 1e6
    return (
        f"Training and validation took {minutes:.1f} minutes, by the run's own log. One meta-iteration was taken "
        f"apart on the machine that made this figure. Together {total:.0f} MB; what is kept for a backward pass is "
        "the most that autograd held at a time in a meta-iteration. The process itself (Python, torch) is not counted."
    )


COSTS = FigureKind("costs", "Time and memory", "Where do time and memory go?", Costs, measure, draw, caption)
