"""The quick start, `make run`: meta-train on the demo intents and see what it is worth."""

from __future__ import annotations

import argparse
import hashlib
import sys
import time

from openprompt_meta.cli import exit_code_of
from openprompt_meta.config.loading import load_config, shipped_yamls
from openprompt_meta.config.writing import to_yaml


def main() -> int:
    """Run it and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", help="run folder (default: one in runs/demo, named after the configuration)")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="changes to yamls/demo.yaml")
    options = parser.parse_args()
    return exit_code_of("quickstart", lambda: _quickstart(options.folder, options.overrides))


def _quickstart(folder: str | None, overrides: list[str]) -> int:
    config = load_config(shipped_yamls()["demo"], overrides)
    meta = config.meta
    # Another configuration is another run: it must not stumble over the folder of the one before.
    folder = folder or f"runs/demo/quickstart-{hashlib.sha256(to_yaml(config).encode()).hexdigest()[:8]}"
    started = time.monotonic()
    print(
        f"Demo intents, {meta.way} classes a task that nothing was trained on, {meta.shot} examples of each, "
        f"{meta.test_tasks} tasks; frozen encoder: {config.plm.model_path}."
    )
    # Only now, after the first line is out: torch and transformers take their time.
    from openprompt_meta.classifier.quickstart import QuickStart
    from openprompt_meta.report.numbers_cache import ReportOptions
    from openprompt_meta.report.writing import write_report

    quick = QuickStart(config, folder)
    print("\nWithout training (accuracy on unseen classes, 95 % interval over tasks):")
    for name, accuracy in quick.without_training():
        print(f"  {name:<42}{accuracy}")
    print(f"\nMeta-training a pool of prompts, {meta.iterations} iterations on other classes:")
    accuracy = quick.train()
    if accuracy is None:
        return 130
    print(f"\n  {'prompt pool after meta-training':<42}{accuracy}\n")
    classes, sentences = quick.classify_some()
    print(f"One task, from {meta.shot} examples of each: {', '.join(classes)}")
    for one in sentences:
        mark = "✓" if one.predicted == one.correct else f"✗ ({one.correct})"
        print(f"  {one.probability:4.0%}  {one.predicted:<22}{mark}  {one.text}")
    print(f"\nThe learned template is in {quick.save()}, the whole run in {folder}.")
    # A few tasks are enough for a first look; the command for a closer one stands on the page.
    page = write_report([folder], options=ReportOptions(tasks=10, shots=(1, 5, 20)))
    print(f"A report with figures: {page.resolve().as_uri()}")
    print(f"That took {(time.monotonic() - started) / 60:.1f} minutes.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
