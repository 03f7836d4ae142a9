"""`python -m bench`: all benchmarks, as a table, as JSON and as a figure."""

from __future__ import annotations

import argparse
import json
import os
import platform
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from tqdm.auto import tqdm

from bench import growth, iteration, limit, memory, serving, timing
from bench.workload import PACKAGED, Workload, results_folder
from openprompt_meta.compat.versions import installed_versions
from openprompt_meta.files import write_whole


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(prog="bench", description=__doc__)
    parser.add_argument("--only", choices=list(_PARTS), nargs="+", default=list(_PARTS), help="some of the parts")
    parser.add_argument("--rounds", type=int, default=3, help="times that each way is timed; the best counts")
    models = (*PACKAGED, "bert-base")
    parser.add_argument("--models", nargs="+", choices=models, default=["minilm-mlm", "bert-base"])
    parser.add_argument("--kinds", nargs="+", choices=("short", "long"), default=["short", "long"])
    parser.add_argument("--shots", nargs="+", type=int, default=[1, 5])
    parser.add_argument("--full", action="store_true", help="long texts with a model of BERT's size too: an hour")
    parser.add_argument("--cpu-time", action="store_true", help="count time on the processor: for a busy machine")
    parser.add_argument("--out", type=Path, default=results_folder(), help="folder for table, JSON and figure")
    options = parser.parse_args()
    if options.rounds < 1 or min(options.shots) < 1:
        parser.error(f"--rounds {options.rounds}, --shots {options.shots}: expected 1 or more of each")
    options.out.mkdir(parents=True, exist_ok=True)
    if options.cpu_time:
        timing.use_clock(time.process_time)
    works = [
        Workload(model, kind, shot)
        for model in options.models
        for kind in options.kinds
        for shot in options.shots
        if options.full or model in PACKAGED or kind == "short"
    ]
    results: dict[str, Any] = {"machine": _machine(), "clock": "processor" if options.cpu_time else "wall"}
    for part in options.only:
        results[part] = []
        for found in _PARTS[part](works, options.rounds):
            results[part].append(found)
            write_whole(options.out / "results.json", json.dumps(results, indent=2) + "\n")
    if "growth" in results:
        growth.draw(results["growth"], options.out / "growth.png")
    table = _table(results)
    write_whole(options.out / "results.md", table)
    print(table)


def _machine() -> dict[str, Any]:
    return {
        "processor": platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "capability": torch.backends.cpu.get_cpu_capability(),
        "python": platform.python_version(),
        **installed_versions(),
    }


def _each(works: list[Workload], title: str, way: Callable[[Workload], dict[str, Any]]) -> Iterator[dict[str, Any]]:
    return (way(work) for work in tqdm(works, title, unit="setting", leave=False))


def _iteration(works: list[Workload], rounds: int) -> Iterator[dict[str, Any]]:
    return _each(works, "meta-iterations", lambda w: iteration.measure(w, rounds, stock_budget=w.model in PACKAGED))


def _limit(works: list[Workload], rounds: int) -> Iterator[dict[str, Any]]:
    precisions = ["float32"]
    if getattr(torch.cpu, "_is_avx512_bf16_supported", bool)():
        precisions.append("bfloat16")
    both = [replace(work, precision=precision) for precision in precisions for work in works]
    return _each(both, "against the limit", lambda work: limit.measure(work, rounds))


def _adaptation(works: list[Workload], rounds: int) -> Iterator[dict[str, Any]]:
    return _each(_most_shots(works), "adaptation", lambda work: serving.adaptation(work, rounds))


def _prediction(works: list[Workload], rounds: int) -> Iterator[dict[str, Any]]:
    return _each(_most_shots(works), "prediction", lambda work: serving.prediction(work, rounds))


def _most_shots(works: list[Workload]) -> list[Workload]:
    return [work for work in works if work.shot == max(w.shot for w in works)]


def _memory(works: list[Workload], rounds: int) -> Iterator[dict[str, Any]]:
    return _each(works, "memory", memory.measure)


def _growth(works: list[Workload], rounds: int) -> Iterator[dict[str, Any]]:
    return (growth.measure(axis, rounds) for axis in tqdm(growth.AXES, "growth", unit="axis", leave=False))


_PARTS: dict[str, Callable[[list[Workload], int], Iterator[dict[str, Any]]]] = {
    "iteration": _iteration,
    "limit": _limit,
    "adaptation": _adaptation,
    "prediction": _prediction,
    "memory": _memory,
    "growth": _growth,
}


def _table(results: dict[str, Any]) -> str:
    """Everything but the curves, in Markdown."""
    lines = ["# Benchmarks", "", "Ratios of things measured in turn in one process, best of several.", ""]
    for one in results.get("iteration", []):
        lines.append(f"- meta-iteration, {one['setting']}: fast {one['seconds']['fast']:.2f} s")
        lines += [f"  - {ratio:.1f} times as fast as {name}" for name, ratio in one["ratio"].items()]
        parts = ", ".join(f"{part} {share:.0%}" for part, share in one["breakdown"].items())
        lines.append(f"  - its time: {parts}")
    for one in results.get("limit", []):
        lines.append(
            f"- limit, {one['setting']}: {one['gigaflop/s']:.0f} of {one['peak gigaflop/s']:.0f} Gflop/s, "
            f"{one['reached']:.0%}"
        )
    for one in results.get("adaptation", []):
        lines.append(
            f"- adaptation, {one['setting']}: {one['seconds']['fast']:.2f} s, {one['ratio']:.1f} times as fast"
        )
    for one in results.get("prediction", []):
        lines.append(
            f"- prediction, {one['setting']}: {one['of the bare encoder']:.2f} of the bare encoder's texts a second, "
            f"{one['of the bare encoder, sorted']:.2f} of the same given its texts sorted by length; of texts seen "
            f"before {one['seen before, of the bare encoder']:.2f} and "
            f"{one['seen before, of the bare encoder, sorted']:.2f}"
        )
    for one in results.get("memory", []):
        used = one["megabytes"]
        lines.append(
            f"- memory, {one['setting']}: fast {used['fast']:.0f} MB, plain {used['plain']:.0f} MB, "
            f"{one['fast/plain']:.2f} of it"
        )
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    main()
