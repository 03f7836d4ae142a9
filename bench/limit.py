"""2. Against the limit: the matrix products of a meta-iteration at the rate the machine reaches on such shapes."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from bench.timing import alternate
from bench.workload import Workload, language_model
from openprompt_meta.encoder.packed import SLOTS_OF_A_PASS


def measure(work: Workload, rounds: int) -> dict[str, Any]:
    """Work counted, time taken, and the share of the machine's rate that was reached."""
    method = work.method("fast")
    tasks = work.tasks(method)
    with FlopCounterMode(display=False) as counter:
        method.learner.meta_step(tasks)
    flops = counter.get_total_flops()
    tokens = min(int(tasks[0].query["attention_mask"].sum()), SLOTS_OF_A_PASS["cpu"])
    config = language_model(work.model, work.precision).config
    product = _Product(tokens, config.hidden_size, config.intermediate_size, getattr(torch, work.precision))
    times = alternate({"iteration": lambda: method.learner.meta_step(tasks), "product": product.run}, rounds)
    rate = product.flops / times.best["product"]
    return {
        "setting": f"{work}, {work.precision}",
        "gigaflop": flops / 1e9,
        "seconds": times.best["iteration"],
        "gigaflop/s": flops / times.best["iteration"] / 1e9,
        "peak gigaflop/s": rate / 1e9,
        "reached": flops / times.best["iteration"] / rate,
    }


class _Product:
    """The encoder's largest matrix product, there and back, many times over."""

    repeats = 8

    def __init__(self, tokens: int, width: int, inner: int, precision: torch.dtype) -> None:
        self._rows = torch.randn(tokens, width).to(precision)
        self._weight = torch.randn(inner, width).to(precision)
        self._back = torch.randn(tokens, inner).to(precision)
        self.flops = 2 * 2 * tokens * width * inner * self.repeats

    def run(self) -> None:
        for _ in range(self.repeats):
            torch.nn.functional.linear(self._rows, self._weight)
            self._back @ self._weight
