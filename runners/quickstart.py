"""The quick start, `make run`: a classifier from five examples a class, then a short meta-training of one's own."""

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

SHOTS, DRAWS = 5, 5
# What costs nothing: a title, and the keys that make it of the run's configuration.
_WITHOUT_TRAINING: dict[str, dict[str, object]] = {
    "class means": {"method": "mean_prototypes"},
    "class means with names": {"method": "mean_prototypes", "mean_prototypes.name_weight": 2.0},
    "logistic regression": {"method": "logistic_regression"},
}


@dataclass(frozen=True)
class Few:
    """A draw of five texts of each class to learn from, and the others to be asked for."""

    texts: list[str]
    labels: list[str]
    asked: list[str]
    expected: list[str]


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
    print("1. A classifier from five examples a class, with the pool that ships", flush=True)
    # Only now, after the first line is out: torch and transformers take their time.
    from openprompt_meta.data.loading import open_dataset
    from openprompt_meta.methods.language_model import load_language_model

    dataset = open_dataset(config.dataset)
    loaded = load_language_model(config)
    _classify(dataset, loaded, Path(folder) / "classifier")
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


# -- a classifier from five examples a class --------------------------------------------------------------------------


def _classify(dataset: TextDataset, loaded: LoadedMLM, target: Path) -> None:
    """Compare the shipped pool with what needs none, on intents that nothing was learned from."""
    from tqdm.auto import tqdm

    from openprompt_meta import MetaPromptClassifier
    from openprompt_meta.runs.evaluation import summarise_tasks

    split = dataset.test
    classes = split.classes
    print(f"   {len(classes)} intents that it never saw: {', '.join(classes)}")
    draws = [_draw(split, index) for index in range(DRAWS)]
    classifier = MetaPromptClassifier()
    rows: dict[str, list[float]] = {}
    seconds: dict[str, list[float]] = {}
    contenders: dict[str, Callable[[Few], Sequence[Any]]] = {
        **_without_pool(dataset, loaded),
        "the pool that ships": lambda few: classifier.fit(few.texts, few.labels).predict(few.asked),
    }
    with tqdm(total=DRAWS * len(contenders) + 1, desc="   fitting", leave=False) as bar:
        for name, classify in contenders.items():
            for few in draws[:1] if name == "contrastive fine-tuning" else draws:
                began = time.perf_counter()
                found = classify(few)
                seconds.setdefault(name, []).append(time.perf_counter() - began)
                right = sum(one == other for one, other in zip(found, few.expected, strict=True))
                rows.setdefault(name, []).append(right / len(few.expected))
                bar.update()
    print(f"   {'':<26}accuracy, {DRAWS} draws of {SHOTS} examples    seconds to fit and predict")
    for name, accuracies in sorted(rows.items(), key=lambda row: sum(row[1]) / len(row[1])):
        note = "" if len(accuracies) > 1 else ", one draw"
        took = sum(seconds[name]) / len(seconds[name])
        print(f"   {name:<26}{str(summarise_tasks(accuracies)) + note:<40}{took:.1f}")
    own = rows["the pool that ships"]
    best = max((name for name in rows if name != "the pool that ships"), key=lambda name: _mean(rows[name]))
    gains = [after - before for after, before in zip(own, rows[best], strict=False)]
    difference = summarise_tasks(gains)
    print(f"   The pool is {'ahead' if difference.mean > 0 else 'behind'} by {100 * difference.mean:+.1f} ({best}).")
    _show(classifier, draws[-1])
    classifier.save_pretrained(target)
    print(f"   The classifier is in {target}. Try it in a browser: openprompt-meta serve {target}")


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _draw(split: Split, index: int) -> Few:
    from openprompt_meta.data.episodes import seeded_sample

    few = Few([], [], [], [])
    for name, own in split.indices.items():
        drawn = [split.texts[i] for i in seeded_sample(own, len(own), "quick start", index, name)]
        few.texts.extend(drawn[:SHOTS])
        few.labels.extend([name] * SHOTS)
        few.asked.extend(drawn[SHOTS:])
        few.expected.extend([name] * len(drawn[SHOTS:]))
    return few


def _without_pool(dataset: TextDataset, loaded: LoadedMLM) -> dict[str, Callable[[Few], Sequence[str]]]:
    """What one would do without a pool, on the same frozen encoder and the same texts."""
    from openprompt_meta.data.classes import text_of_words
    from openprompt_meta.learners.baselines import ContrastiveLearner, class_means, logistic_regression
    from openprompt_meta.methods import ContrastiveSection
    from openprompt_meta.methods.baselines import BareTexts, MeanFeatures
    from openprompt_meta.methods.language_model import own_copy

    classes = list(dataset.test.classes)
    section = ContrastiveSection()
    length = 128

    def named(predicted: Any) -> list[str]:
        return [classes[i] for i in predicted.argmax(dim=-1).tolist()]

    def features(texts: Sequence[str]) -> Any:
        return MeanFeatures(texts, loaded, length).batch(range(len(texts)))["features"]

    def numbers(labels: Sequence[str]) -> list[int]:
        return [classes.index(label) for label in labels]

    def by(fit: Any, with_names: bool = False) -> Callable[[Few], list[str]]:
        def classify(few: Few) -> list[str]:
            import torch

            names = [features([text_of_words(dataset.label_words[name]) for name in classes])] if with_names else []
            predict = fit(features(few.texts), torch.tensor(numbers(few.labels)), *names)
            return named(predict(features(few.asked)))

        return classify

    def contrastive(few: Few) -> list[str]:
        from openprompt_meta.learners.task import Task

        learner = ContrastiveLearner(
            own_copy(loaded).model.base_model, section.lr, logistic_regression(10.0), section.pairs
        )
        texts = BareTexts([*few.texts, *few.asked], loaded, length)
        known = len(few.texts)
        support = texts.batch(range(known), numbers(few.labels))
        query = texts.batch(range(known, known + len(few.asked)), numbers(few.expected))
        return named(learner.evaluate(Task(0, classes, {}, support, query), section.steps).log_probabilities)

    return {
        "class means": by(class_means()),
        "class means with names": by(class_means(2.0), with_names=True),
        "logistic regression": by(logistic_regression(10.0)),
        "contrastive fine-tuning": contrastive,
    }


def _show(classifier: Any, few: Few, sentences: int = 6) -> None:
    """What the classifier says of a few sentences."""
    asked = few.asked[:: max(1, len(few.asked) // sentences)][:sentences]
    expected = few.expected[:: max(1, len(few.asked) // sentences)][:sentences]
    for text, row, right in zip(asked, classifier.predict_proba(asked), expected, strict=True):
        found = classifier.classes_[row.argmax()]
        mark = "✓" if found == right else f"✗ ({right})"
        print(f"     {row.max():4.0%}  {found:<22}{mark}  {text}")
    print(f"   Head: {classifier.head_}.")


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
    before["prompts that learned nothing"] = accuracies({}, "prompts that learned nothing")
    for title, found in before.items():
        print(f"   {title:<32}{summarise_tasks(found)}")
    with StopRequest() as stop:
        run = Run(config, folder)
        if run.train(stop) is None:
            print(run.how_to_go_on(), file=sys.stderr)
            return stop.exit_code
    after = json.loads(RunFolder(folder).seed(seed).test_file.read_text(encoding="utf-8"))["accuracies"]
    print(f"   {f'after {meta.iterations} meta-iterations':<32}{summarise_tasks(after)}")
    for title in ("prompts that learned nothing", max(_WITHOUT_TRAINING, key=lambda name: _mean(before[name]))):
        gain = summarise_tasks([one - other for one, other in zip(after, before[title], strict=True)])
        print(f"   {'':<32}{gain.mean:+.2%} ± {gain.interval or 0:.2%} on the same tasks against: {title}")
    return 0


def _accuracies(method: Method, tasks: int, title: str) -> list[float]:
    """Of each of the test tasks."""
    from tqdm.auto import tqdm

    from openprompt_meta.runs.evaluation import evaluate_tasks

    method.start()
    with tqdm(total=tasks, desc=title, unit="task", leave=False) as bar:
        outcomes = evaluate_tasks(method.learner, method.sources["test"], tasks, method.eval_steps, bar)
    return [outcome.accuracy for outcome in outcomes]


if __name__ == "__main__":
    sys.exit(main())
