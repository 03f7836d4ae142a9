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

from bench import adaptation, growth, iteration, limit, memory, prediction, timing
from bench.table import markdown
from bench.workload import MOST_SHOTS, PACKAGED, Workload, results_folder
from openprompt_meta.compat.versions import installed_versions
from openprompt_meta.files import write_atomic
from openprompt_meta.progress import progress_bar

_DEFAULT_MODELS = ("minilm-mlm", "bert-base")


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(prog="bench", description=__doc__)
    parser.add_argument(
        "--only",
        choices=list(_PARTS),
        nargs="+",
        default=list(_PARTS),
        help="some of the parts; growth has a setting of its own, whatever models, kinds and shots are named",
    )
    parser.add_argument(
        "--rounds", type=int, default=3, help="times that each way is timed (two or more); the best counts"
    )
    models = (*PACKAGED, "bert-base")
    parser.add_argument(
        "--models",
        nargs="+",
        choices=models,
        help="everything with these; by default minilm-mlm, and meta-iterations on short texts with bert-base",
    )
    parser.add_argument(
        "--kinds",
        nargs="+",
        choices=("short", "long"),
        default=["short", "long"],
        help="of texts; adaptation to long ones is measured with --models or --full only",
    )
    parser.add_argument("--shots", nargs="+", type=int, default=[1, 5], help="adaptation and prediction: the most")
    parser.add_argument(
        "--full",
        action="store_true",
        help="everything with a model of BERT's size too, and the plain path padded to its whole budget: hours",
    )
    parser.add_argument("--cpu-time", action="store_true", help="count time on the processor: for a busy machine")
    parser.add_argument("--out", type=Path, default=results_folder(), help="folder for table, JSON and figure")
    options = parser.parse_args()
    if options.rounds < 2:
        parser.error(f"--rounds {options.rounds}: expected 2 or more, because the first one also warms up")
    if not all(1 <= shots <= MOST_SHOTS for shots in options.shots):
        parser.error(f"--shots {options.shots}: expected 1 to {MOST_SHOTS}")
    try:
        options.out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        parser.error(f"--out {options.out}: cannot be made ({error.strerror}); name a folder that can be written")
    if options.cpu_time:
        timing.use_clock(time.process_time)
    works = [
        Workload(model, kind, shot)
        for model in options.models or _DEFAULT_MODELS
        for kind in options.kinds
        for shot in options.shots
    ]
    asked = options.full or options.models
    chosen = {part: [work for work in works if asked or _is_quick(part, work)] for part in options.only}
    if not any(chosen.values()):
        parser.error(
            f"--only {' '.join(options.only)} --kinds {' '.join(options.kinds)}: takes long, so it is not measured by "
            f"default; name the models, e.g. --models {_DEFAULT_MODELS[0]}, or give --full"
        )
    clock = "processor" if options.cpu_time else "wall"
    results: dict[str, Any] = {"machine": _machine(), "clock": clock, "rounds": options.rounds}
    for part, settings in chosen.items():
        results[part] = []
        for found in _PARTS[part](settings, options):
            results[part].append(found)
            write_atomic(options.out / "results.json", json.dumps(results, indent=2) + "\n")
            write_atomic(options.out / "results.md", markdown(results))
    if "growth" in results:
        growth.draw(results["growth"], options.out / "growth.png")
    print(markdown(results))


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
    return (way(work) for work in progress_bar(works, title=title, unit="setting", leave=False))


def _is_quick(part: str, work: Workload) -> bool:
    """Whether a setting is measured without being asked for: all of them take minutes then, not hours."""
    if part == "iteration":
        return work.model in PACKAGED or work.kind == "short"
    return work.model in PACKAGED and (part != "adaptation" or work.kind == "short")


def _iteration(works: list[Workload], options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    return _each(works, "meta-iterations", lambda work: iteration.measure(work, options.rounds, options.full))


def _limit(works: list[Workload], options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    precisions = ["float32"]
    if getattr(torch.cpu, "_is_avx512_bf16_supported", bool)():
        precisions.append("bfloat16")
    both = [replace(work, precision=precision) for precision in precisions for work in works]
    return _each(both, "against the limit", lambda work: limit.measure(work, options.rounds))


def _adaptation(works: list[Workload], options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    return _each(_most_shots(works), "adaptation", lambda work: adaptation.measure(work, options.rounds))


def _prediction(works: list[Workload], options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    return _each(_most_shots(works), "prediction", lambda work: prediction.measure(work, options.rounds))


def _most_shots(works: list[Workload]) -> list[Workload]:
    return [work for work in works if work.shot == max(w.shot for w in works)]


def _memory(works: list[Workload], options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    return _each(works, "memory", memory.measure)


def _growth(works: list[Workload], options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    return (
        growth.measure(axis, options.rounds)
        for axis in progress_bar(growth.AXES, title="growth", unit="axis", leave=False)
    )


_PARTS: dict[str, Callable[[list[Workload], argparse.Namespace], Iterator[dict[str, Any]]]] = {
    "iteration": _iteration,
    "limit": _limit,
    "adaptation": _adaptation,
    "prediction": _prediction,
    "memory": _memory,
    "growth": _growth,
}


if __name__ == "__main__":
    main()
