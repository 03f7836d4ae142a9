"""6. How fitting and predicting grow with the classes: time and memory, each number of them in a process of its own.

    python -m bench.classes [--classes N ...] [--examples N] [--texts N] [--cpu-time]

Made-up short texts, the pool that ships. Times are of the second of two calls; memory is what a call takes on top of
what was there before it. Prints a table, and the same as JSON on the last line.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from bench.memory import kept_small, peak_memory
from bench.timing import use_clock
from bench.workload import made_up_texts

CLASSES = (10, 100, 1000, 10_000)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--classes", type=int, nargs="+", default=CLASSES)
    parser.add_argument("--examples", type=int, default=1, help="of each class")
    parser.add_argument("--texts", type=int, default=200, help="that are predicted")
    parser.add_argument("--cpu-time", action="store_true", help="count time on the processor: for a busy machine")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.here:
        kept_small("bench.classes")
        print(json.dumps(_measured(options.classes[0], options.examples, options.texts, options.cpu_time)))
        return
    found = [measure(number, options.examples, options.texts, options.cpu_time) for number in options.classes]
    print(f"{'classes':>8}{'fit, s':>10}{'MB':>8}{'predict, s':>12}{'MB':>8}")
    for one in found:
        print(
            f"{one['classes']:>8}{one['fit']['seconds']:>10.2f}{one['fit']['megabytes']:>8.0f}"
            f"{one['predict']['seconds']:>12.2f}{one['predict']['megabytes']:>8.0f}"
        )
    print(json.dumps(found))


def measure(classes: int, examples: int, texts: int, cpu_time: bool = False) -> dict[str, Any]:
    """Seconds and megabytes of a fit to so many classes, and of predicting so many texts."""
    command = [sys.executable, "-m", "bench.classes", "--here", "--classes", str(classes)]
    command += ["--examples", str(examples), "--texts", str(texts), *(["--cpu-time"] if cpu_time else [])]
    done = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603 - ourselves
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def _measured(classes: int, examples: int, texts: int, cpu_time: bool) -> dict[str, Any]:
    from openprompt_meta import MetaPromptClassifier

    if cpu_time:
        use_clock(time.process_time)
    support = made_up_texts("short", classes * examples, seed=0)
    labels = [f"class {row // examples}" for row in range(len(support))]
    asked = made_up_texts("short", texts, seed=1)
    classifier = MetaPromptClassifier().fit(
        support[: 2 * examples], labels[: 2 * examples] if examples > 1 else ["a", "b"]
    )
    classifier.predict(asked[:1])
    fit = _of(lambda: classifier.fit(support, labels))
    return {"classes": classes, "fit": fit, "predict": _of(lambda: classifier.predict(asked))}


def _of(call: Callable[[], object]) -> dict[str, float]:
    from bench.timing import best_of

    megabytes = peak_memory(call)
    return {"seconds": best_of(call, 1), "megabytes": megabytes}


if __name__ == "__main__":
    main()
