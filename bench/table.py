"""What was measured, as a list in Markdown."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def markdown(results: Mapping[str, Any]) -> str:
    """Everything but the curves, in Markdown."""
    machine = results["machine"]
    lines = [
        "# Benchmarks",
        "",
        f"Times are {results['clock']} times, taken in turn in one process, best of {results['rounds']}, with "
        f"{machine['threads']} threads on {machine['cores']} cores; memory is that of a process each.",
        "",
    ]
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
        seconds, ratio = one["seconds"]["fast"], one["ratio"]
        lines.append(f"- adaptation, {one['setting']}: {seconds:.2f} s, {ratio:.1f} times as fast as plain")
    for one in results.get("prediction", []):
        lines.append(f"- prediction, {one['setting']}:")
        lines += [f"  - {name}: {share:.2f} of its texts a second" for name, share in one["shares"].items()]
        tokens = ", ".join(f"{name} {count:.1f}" for name, count in one["tokens a text, padding and all"].items())
        parts = ", ".join(f"{part} {share:.0%}" for part, share in one["breakdown"].items())
        lines.append(f"  - tokens a text, padding and all: {tokens}")
        lines.append(f"  - its time: {parts}")
    for one in results.get("memory", []):
        used = one["megabytes"]
        lines.append(
            f"- memory, {one['setting']}: fast {used['fast']:.0f} MB, plain {used['plain']:.0f} MB, "
            f"{one['fast/plain']:.2f} of it"
        )
    return "\n".join([*lines, ""])
