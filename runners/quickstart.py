"""The quick start, `make run`: a classifier from a few examples a class, then a short meta-training of one's own."""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from openprompt_meta.cli import exit_code_of
from openprompt_meta.config.loading import load_config, shipped_yamls
from openprompt_meta.config.writing import to_yaml

if TYPE_CHECKING:
    from openprompt_meta.config.schema import RunConfig
    from openprompt_meta.data.dataset import Split, TextDataset
    from openprompt_meta.encoder.loading import LoadedMLM
    from openprompt_meta.methods.method import Method

SHOTS, DRAWS = (0, 1, 5), 5
_START = "where it starts from"
_LENGTH = 128  # tokens of a text at most
_POOL, _WITH_NAMES, _CONTRASTIVE = "the pool that ships", "class means with names", "contrastive fine-tuning"
# What costs nothing: a title, and the keys that make it of the run's configuration.
_WITHOUT_TRAINING: dict[str, dict[str, object]] = {
    "class means": {"method": "mean_prototypes"},
    "class means with names": {"method": "mean_prototypes", "mean_prototypes.name_weight": 2.0},
    "logistic regression": {"method": "logistic_regression"},
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
    # Another configuration is another run: it must not stumble over the folder of the one before.
    folder = folder or f"runs/demo/quickstart-{hashlib.sha256(to_yaml(config).encode()).hexdigest()[:8]}"
    started = time.monotonic()
    print("1. A classifier from five examples a class, one, or none: the pool that ships", flush=True)
    # Only now, after the first line is out: torch and transformers take their time.
    from openprompt_meta.data.loading import open_dataset
    from openprompt_meta.methods.language_model import load_language_model

    dataset = open_dataset(config.dataset)
    loaded = load_language_model(config)
    _classify(dataset.test, dataset.label_words, loaded, Path(folder) / "classifier")
    print("\n2. A pool of one's own, meta-trained on the demo's other intents", flush=True)
    code = _meta_train(config, folder, dataset, loaded)
    if code:
        return code
    from openprompt_meta.report.numbers_cache import ReportOptions
    from openprompt_meta.report.writing import write_report

    # A few tasks are enough for a first look; the command for a closer one stands on the page.
    page = write_report([folder], options=ReportOptions(tasks=10, shots=(1, 5)))
    print(f"A report with figures: {page.resolve().as_uri()}")
    print(f"That took {(time.monotonic() - started) / 60:.1f} minutes.")
    return 0


# -- a classifier from a few examples a class -------------------------------------------------------------------------


@dataclass(frozen=True)
class Draw:
    """Positions of texts to learn from, and of others to be asked for."""

    learned: Sequence[int]
    asked: Sequence[int]


def _classify(split: Split, words: Mapping[str, Sequence[str]], loaded: LoadedMLM, target: Path) -> None:
    """Compare the shipped pool with what needs none, on intents that nothing was learned from."""
    from openprompt_meta import MetaPromptClassifier
    from openprompt_meta.progress import progress_bar

    print(f"   {len(split.classes)} intents that it never saw: {', '.join(split.classes)}")
    classifier = MetaPromptClassifier()

    def with_pool(draw: Draw) -> Sequence[str]:
        texts, labels = ([values[i] for i in draw.learned] for values in (split.texts, split.labels))
        classes = None if texts else list(split.classes)
        found: Sequence[str] = classifier.fit(texts, labels, classes=classes).predict(
            [split.texts[i] for i in draw.asked]
        )
        return found

    contenders = {**_without_pool(split, words, loaded), _POOL: with_pool}
    draws = {shots: [_draw(split, shots, index) for index in range(DRAWS if shots else 1)] for shots in SHOTS}
    rows: dict[str, dict[int, list[float]]] = {}
    seconds: dict[str, float] = {}
    jobs = [
        (name, shots, draw)
        for name in contenders
        for shots in SHOTS
        for draw in (draws[shots][:1] if name == _CONTRASTIVE else draws[shots])
        if shots == max(SHOTS) or name in (_WITH_NAMES, _POOL) or (shots and name != _CONTRASTIVE)
    ]
    with progress_bar(jobs, title="   fitting", leave=False) as bar:
        for name, shots, draw in bar:
            began = time.perf_counter()
            found = contenders[name](draw)
            seconds[name] = time.perf_counter() - began
            right = [one == split.labels[i] for one, i in zip(found, draw.asked, strict=True)]
            rows.setdefault(name, {}).setdefault(shots, []).append(100 * sum(right) / len(right))
    titles = [f"{shots or 'no'} example{'s' if shots != 1 else ''}" for shots in SHOTS]
    print(f"\n   accuracy, mean of {DRAWS} draws  {''.join(f'{title:>13}' for title in titles)}   seconds (the last)")
    for name, own in rows.items():
        cells = [f"{_mean(own[shots]):.1f}" if shots in own else "" for shots in SHOTS]
        note = f"{seconds[name]:.1f}{', one draw' if name == _CONTRASTIVE else ''}"
        print(f"   {name:<28}{''.join(f'{cell:>13}' for cell in cells)}   {note}")
    ahead = []
    for shots in SHOTS:
        best = max(_mean(own[shots]) for name, own in rows.items() if shots in own and name != _POOL)
        ahead.append(_mean(rows[_POOL][shots]) - best)
    print(f"   {'ahead of the best of them by':<28}{''.join(f'{gain:>+13.1f}' for gain in ahead)}\n")
    _show(classifier, split, draws[max(SHOTS)][-1])
    target.parent.mkdir(parents=True, exist_ok=True)
    classifier.save_pretrained(target)
    print(f"   The classifier is in {target}. In a browser: openprompt-meta serve {target}")


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _draw(split: Split, shots: int, index: int) -> Draw:
    from openprompt_meta.data.episodes import seeded_sample

    most = max(SHOTS)
    learned: list[int] = []
    asked: list[int] = []
    for name, own in split.indices.items():
        drawn = seeded_sample(own, len(own), "quick start", index, name)
        learned += drawn[:shots]
        asked += drawn[most:]  # the same for any number of examples
    return Draw(learned, asked)


def _without_pool(
    split: Split, words: Mapping[str, Sequence[str]], loaded: LoadedMLM
) -> dict[str, Callable[[Draw], Sequence[str]]]:
    """What one would do without a pool, on the same frozen encoder and the same texts."""
    import torch

    from openprompt_meta.data.classes import text_of_words
    from openprompt_meta.learners.baselines import ContrastiveLearner, class_means, logistic_regression
    from openprompt_meta.learners.task import Task
    from openprompt_meta.methods import ContrastiveSection
    from openprompt_meta.methods.baselines import BareTexts, MeanFeatures
    from openprompt_meta.methods.language_model import own_copy

    classes = list(split.classes)
    labels = torch.tensor([classes.index(label) for label in split.labels])
    texts = MeanFeatures(split.texts, loaded, _LENGTH)
    of_names = MeanFeatures([text_of_words(words[name]) for name in classes], loaded, _LENGTH)

    def named(predicted: Any) -> list[str]:
        return [classes[i] for i in predicted.argmax(dim=-1).tolist()]

    def by(fit: Any, with_names: bool = False) -> Callable[[Draw], list[str]]:
        def classify(draw: Draw) -> list[str]:
            names = [of_names.batch(range(len(classes)))["features"]] if with_names else []
            asked = texts.batch(draw.asked)["features"]
            if not draw.learned:  # names alone, as one example of each class
                return named(class_means()(names[0], torch.arange(len(classes)))(asked))
            return named(fit(texts.batch(draw.learned)["features"], labels[draw.learned], *names)(asked))

        return classify

    def contrastive(draw: Draw) -> list[str]:
        section = ContrastiveSection()
        encoder = own_copy(loaded).model.base_model
        learner = ContrastiveLearner(encoder, section.lr, logistic_regression(10.0), section.pairs)
        bare = BareTexts(split.texts, loaded, _LENGTH)
        support, query = (bare.batch(part, labels[part].tolist()) for part in (draw.learned, draw.asked))
        return named(learner.evaluate(Task(0, classes, {}, support, query), section.steps).log_probabilities)

    return {
        "class means": by(class_means()),
        _WITH_NAMES: by(class_means(2.0), with_names=True),
        "logistic regression": by(logistic_regression(10.0)),
        _CONTRASTIVE: contrastive,
    }


def _show(classifier: Any, split: Split, draw: Draw, sentences: int = 6) -> None:
    """What the classifier says of a few sentences."""
    few = draw.asked[:: max(1, len(draw.asked) // sentences)][:sentences]
    for i, row in zip(few, classifier.predict_proba([split.texts[i] for i in few]), strict=True):
        found = classifier.classes_[row.argmax()]
        mark = "✓" if found == split.labels[i] else f"✗ ({split.labels[i]})"
        print(f"     {row.max():4.0%}  {found:<22}{mark}  {split.texts[i]}")
    print(f"   Decided by {classifier.head_}.")


# -- a short meta-training --------------------------------------------------------------------------------------------


def _meta_train(config: RunConfig, folder: str, dataset: TextDataset, loaded: LoadedMLM) -> int:
    """Train, test on unseen classes and compare with what needs no training; the exit code."""
    from openprompt_meta.methods.method import build_method
    from openprompt_meta.runs.evaluation import summarise_tasks
    from openprompt_meta.runs.folder import RunFolder
    from openprompt_meta.runs.process import StopRequest
    from openprompt_meta.runs.run import Run

    meta, seed = config.meta, config.run.seeds[0]
    print(
        f"   {meta.way} unseen classes a task, {meta.shot} examples of each, {meta.test_tasks} tasks; before training:"
    )

    def accuracies(keys: Mapping[str, object], title: str) -> list[float]:
        return _accuracies(build_method(config.with_values(keys), loaded, dataset, seed), meta.test_tasks, title)

    before = {title: accuracies(keys, title) for title, keys in _WITHOUT_TRAINING.items()}
    before[_START] = accuracies({}, _START)
    for title, found in before.items():
        print(f"   {title:<32}{summarise_tasks(found)}")
    with StopRequest() as stop:
        run = Run(config, folder)
        if run.train(stop) is None:
            print(run.how_to_go_on(), file=sys.stderr)
            return stop.exit_code
    after = json.loads(RunFolder(folder).seed(seed).test_file.read_text(encoding="utf-8"))["accuracies"]
    print(f"   {f'after {meta.iterations} meta-iterations':<32}{summarise_tasks(after)}")
    for title in (_START, max(_WITHOUT_TRAINING, key=lambda name: _mean(before[name]))):
        gain = summarise_tasks([one - other for one, other in zip(after, before[title], strict=True)])
        print(f"   {'':<32}{gain.mean:+.2%} ± {gain.interval or 0:.2%} on the same tasks against: {title}")
    return 0


def _accuracies(method: Method, tasks: int, title: str) -> list[float]:
    """Of each of the test tasks."""
    from openprompt_meta.progress import progress_bar
    from openprompt_meta.runs.evaluation import evaluate_tasks

    method.start()
    with progress_bar(total=tasks, title=title, unit="task", leave=False) as bar:
        outcomes = evaluate_tasks(method.learner, method.sources["test"], tasks, method.eval_steps, bar)
    return [outcome.accuracy for outcome in outcomes]


if __name__ == "__main__":
    sys.exit(main())
