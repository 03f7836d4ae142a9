"""2. Against the limit: the matrix products of a meta-iteration at the rate the machine reaches on such shapes."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from bench.timing import alternate
from bench.workload import Workload, language_model
from openprompt_meta.encoder.packed import SLOTS_OF_A_PASS
from openprompt_meta.tables.estimates import MatrixProduct

_REPEATS = 8


def measure(work: Workload, rounds: int) -> dict[str, Any]:
    """Work counted, time taken, and the share of the machine's rate that was reached."""
    method = work.method("fast")
    tasks = work.tasks(method)
    with FlopCounterMode(display=False) as counter:
        method.learner.meta_step(tasks)
    flops = counter.get_total_flops()
    tokens = min(int(tasks[0].query["attention_mask"].sum()), SLOTS_OF_A_PASS["cpu"])
    config = language_model(work.model, work.precision).config
    product = MatrixProduct(tokens, config.hidden_size, config.intermediate_size, getattr(torch, work.precision))
    times = alternate(
        {
            "iteration": lambda: method.learner.meta_step(tasks),
            "product": partial(product.run, _REPEATS),
        },
        rounds,
    )
    rate = _REPEATS * product.flops / times.best["product"]
    return {
        "setting": f"{work}, {work.precision}",
        "gigaflop": flops / 1e9,
        "seconds": times.best["iteration"],
        "gigaflop/s": flops / times.best["iteration"] / 1e9,
        "peak gigaflop/s": rate / 1e9,
        "reached": flops / times.best["iteration"] / rate,
    }
