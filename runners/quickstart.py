"""The quick start, `make run`: meta-train on the demo intents and see what it is worth."""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from openprompt_meta.cli import exit_code_of
from openprompt_meta.config.loading import load_config, shipped_yamls
from openprompt_meta.config.writing import to_yaml

if TYPE_CHECKING:
    from openprompt_meta.methods.method import Method

# What costs nothing: a title, and the keys that make it of the run's configuration.
_WITHOUT_TRAINING: dict[str, dict[str, object]] = {
    "[MASK] of the bare template, class means": {"method": "mask_prototypes"},
    "mean over tokens, class means": {"method": "mean_prototypes"},
    "the same, names counted as two examples": {"method": "mean_prototypes", "mean_prototypes.name_weight": 2.0},
    "logistic regression of means over tokens": {"method": "logistic_regression"},
    "prompts before meta-training": {},
}


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
    from openprompt_meta.data.loading import open_dataset
    from openprompt_meta.methods.language_model import load_language_model
    from openprompt_meta.methods.method import build_method
    from openprompt_meta.report.numbers_cache import ReportOptions
    from openprompt_meta.report.writing import write_report
    from openprompt_meta.runs.checkpoint import load_pool
    from openprompt_meta.runs.evaluation import summarise_tasks
    from openprompt_meta.runs.folder import RunFolder
    from openprompt_meta.runs.process import StopRequest
    from openprompt_meta.runs.run import Run

    dataset, loaded, seed = open_dataset(config.dataset), load_language_model(config), config.run.seeds[0]

    def method(keys: Mapping[str, object]) -> Method:
        return build_method(config.with_values(keys), loaded, dataset, seed)

    print("\nWithout training (accuracy on unseen classes, 95 % interval over tasks):")
    untrained = {}
    for title, keys in _WITHOUT_TRAINING.items():
        without = method(keys)
        without.start()
        untrained[title] = _accuracies(without, meta.test_tasks, title)
        print(f"  {title:<42}{summarise_tasks(untrained[title])}")
    print(f"\nMeta-training prompts, {meta.iterations} iterations on other classes:")
    with StopRequest() as stop:
        run = Run(config, folder)
        if run.train(stop) is None:
            print(run.how_to_go_on(), file=sys.stderr)
            return stop.exit_code
    accuracies = json.loads(RunFolder(folder).seed(seed).test_file.read_text(encoding="utf-8"))["accuracies"]
    print(f"\n  {'prompts after meta-training':<42}{summarise_tasks(accuracies)}")
    best = max(untrained, key=lambda title: sum(untrained[title]))
    gain = summarise_tasks([after - before for after, before in zip(accuracies, untrained[best], strict=True)])
    print(f"  {'':<42}{gain.mean:+.2%} ± {gain.interval or 0:.2%} on the same tasks against: {best}\n")
    trained = method({})
    load_pool(RunFolder(folder).seed(seed).best_checkpoint, trained.learner.meta_parameters)
    _classify_some(trained, dataset.test.texts, meta.shot)
    target = Path(folder) / "template"
    trained.template.save_pretrained(target)
    print(f"\nThe learned template is in {target}, the whole run in {folder}.")
    # A few tasks are enough for a first look; the command for a closer one stands on the page.
    page = write_report([folder], options=ReportOptions(tasks=10, shots=(1, 5, 20)))
    print(f"A report with figures: {page.resolve().as_uri()}")
    print(f"That took {(time.monotonic() - started) / 60:.1f} minutes.")
    return 0


def _accuracies(method: Method, tasks: int, title: str) -> list[float]:
    """Of each of the test tasks."""
    from tqdm.auto import tqdm

    from openprompt_meta.runs.evaluation import evaluate_tasks

    with tqdm(total=tasks, desc=title, unit="task", leave=False) as bar:
        outcomes = evaluate_tasks(method.learner, method.sources["test"], tasks, method.eval_steps, bar)
    return [outcome.accuracy for outcome in outcomes]


def _classify_some(method: Method, texts: Sequence[str], shot: int, sentences: int = 6) -> None:
    """Classify a few sentences of one task of unseen classes, from its examples."""
    source = method.sources["test"]
    episode = source.episodes[0]
    best = method.learner.evaluate(source[0], method.eval_steps).log_probabilities.exp().max(dim=-1)
    print(f"One task, from {shot} examples of each: {', '.join(episode.classes)}")
    every = max(1, len(episode.query) // sentences)
    for i in range(0, len(episode.query), every)[:sentences]:
        predicted, correct = episode.classes[int(best.indices[i])], episode.classes[episode.query_labels[i]]
        mark = "✓" if predicted == correct else f"✗ ({correct})"
        print(f"  {float(best.values[i]):4.0%}  {predicted:<22}{mark}  {texts[episode.query[i]]}")


if __name__ == "__main__":
    sys.exit(main())
