"""Where time and memory go."""

from __future__ import annotations

import math
import time
import timeit
import weakref
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from openprompt_meta.report.figure import FigureKind, FigureNumbers
from openprompt_meta.report.finished_run import FinishedRun, meta_learner_of
from openprompt_meta.report.numbers_cache import NumbersCache
from openprompt_meta.report.plotting import COLOURS, HATCHES, canvas, note

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Costs(FigureNumbers):
    """Seconds of the run as logged, seconds of one meta-iteration here and now, and bytes by what holds them."""

    run_seconds: dict[str, float]
    iteration_seconds: dict[str, float]
    bytes: dict[str, int]

    def draw(self) -> Figure:
        """Three panels: the whole run, one iteration, memory."""
        figure, panels = canvas(10.2, 2.5, 1, 3)
        mega = {name: size / 1e6 for name, size in self.bytes.items()}
        parts = (
            ("The run", self.run_seconds, "s", ".3g"),
            ("One meta-iteration", self.iteration_seconds, "s", ".2g"),
            ("Memory", mega, "MB", ".3g"),
        )
        for number, (panel, (title, values, unit, digits)) in enumerate(zip(panels, parts, strict=True)):
            for row, (name, value) in enumerate(reversed(values.items())):
                panel.barh(row, value, height=0.5, color=COLOURS[(3, 1, 5)[number]], hatch=HATCHES[number])
                note(panel, f"{name}: {value:{digits}} {unit}", (0, row + 0.27), (2, 1), va="bottom", size=7.5)
            panel.set_yticks([])
            panel.grid(False, axis="y")
            what = "memory" if unit == "MB" else "time"
            panel.set(title=title, xlabel=f"{what}, {unit}", ylim=(-0.4, len(values) - 0.1))
        return figure

    def caption(self) -> str:
        minutes, total = sum(self.run_seconds.values()) / 60, sum(self.bytes.values()) / 1e6
        return (
            f"Training and validation took {minutes:.1f} minutes, by the run's own log. One meta-iteration was taken "
            f"apart on the machine that made this figure. Together {total:.0f} MB; what is kept for a backward pass "
            "is the most that autograd held at a time in a meta-iteration. The process itself (Python, torch) is not "
            "counted."
        )


def _measure(runs: Sequence[FinishedRun], cache: NumbersCache) -> Costs:
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
    started = time.perf_counter()
    task = source[1]
    drawing = time.perf_counter() - started

    def inner_loop() -> None:
        with learner.adapting([task]) as adaptation:
            for _ in range(steps):
                adaptation.step()

    inner_loop()  # once for nothing: the first pass of a process is slow
    inner = timeit.timeit(inner_loop, number=1)
    whole = timeit.timeit(lambda: learner.meta_step([task]), number=1)
    with HeldForBackward(run.loaded.model) as held:
        learner.meta_step([task])
    model = run.loaded.model
    embedding = _bytes([model.get_input_embeddings().weight])
    states = [
        value for state in learner.optimizer.state.values() for value in state.values() if torch.is_tensor(value)
    ]
    queries = sum(len(split) for split in run.dataset) if method.template.asks_queries else 0
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
            "query vectors of all texts": 4 * queries * int(model.config.hidden_size),
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
        self._holders: Counter[int] = Counter()
        self._weights = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
        self._hooks = torch.autograd.graph.saved_tensors_hooks(self._pack, lambda held: held.tensor)

    def __enter__(self) -> HeldForBackward:
        self._hooks.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._hooks.__exit__(*error)

    def _pack(self, tensor: Tensor) -> _Held:
        """Count the tensor's storage until autograd lets go of it."""
        held, storage = _Held(tensor), tensor.untyped_storage()
        place, size = storage.data_ptr(), storage.nbytes()
        if place not in self._weights:
            if not self._holders[place]:
                self._now += size
                self.peak = max(self.peak, self._now)
            self._holders[place] += 1
            weakref.finalize(held, self._give_back, place, size)
        return held

    def _give_back(self, place: int, size: int) -> None:
        self._holders[place] -= 1
        if not self._holders[place]:
            self._now -= size


@dataclass(eq=False)
class _Held:
    """A tensor as long as autograd holds it."""

    tensor: Tensor


def _bytes(tensors: Iterable[Tensor]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


COSTS = FigureKind("costs", "Time and memory", "Where do time and memory go?", Costs, _measure)
