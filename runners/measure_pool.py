"""Compare pools with what costs nothing, on classes that they have not seen.

    python runners/measure_pool.py --data demo data/hwu64                    # the one that ships
    python runners/measure_pool.py --leave-out pools/general --data data/*   # each data set by a pool made without it

The pools of the second way are trained first, in runs/pools/without-NAME or another folder; what was interrupted goes
on where it was. "key=value" changes their configuration: fewer iterations than the pool that ships, say. A data set
that is not in the mixture under its path or its name is held apart all the same, with a remark.

All that is compared sees the same texts, tasks and words, of the test classes alone. Accuracies are inductive.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor

from openprompt_meta.cli import exit_code_of
from openprompt_meta.progress import progress_bar

if TYPE_CHECKING:
    from openprompt_meta.classifier.pretrained import MetaLearned
    from openprompt_meta.config.schema import RunConfig

WAYS, QUERIES = 5, 15
FEW, ALL = (0, 1, 5), (1, 5, 20)
TEXTS_A_CLASS = 100
DRAWS = 10
NAME_WEIGHT = 2.0
NOTHING = ("names alone", "class means", "class means with names", "logistic regression")


@dataclass(frozen=True)
class Drawn:
    """A task: positions of texts, and the classes that they are of."""

    classes: Sequence[int]
    support: Sequence[Sequence[int]]
    query: Sequence[Sequence[int]]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print a table; 2 and one message if something is refused."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--data", nargs="+", action="extend", required=True, metavar="PATH", help="data sets, each with a test split"
    )
    pools = parser.add_mutually_exclusive_group()
    pools.add_argument("--pool", metavar="DIR", help="a saved pool; by default the one that ships")
    pools.add_argument(
        "--leave-out", metavar="YAML", help="what to train once without each data set, e.g. pools/general"
    )
    parser.add_argument(
        "overrides", nargs="*", metavar="key=value", help="with --leave-out, as for openprompt-meta train"
    )
    parser.add_argument("--runs", default="runs/pools", metavar="DIR", help="their runs (default: %(default)s)")
    parser.add_argument("--tasks", type=int, default=300, help="5-way tasks (default: %(default)s)")
    parser.add_argument("--split", default="test", choices=("test", "valid"), help="(default: %(default)s)")
    parser.add_argument("--precision", default="float32", help="of the frozen model (default: %(default)s)")
    parser.add_argument("--out-of-scope", action="store_true", help="also how well texts of no class are turned away")
    parser.add_argument("--contrastive", type=int, default=0, metavar="N", help="tasks of contrastive fine-tuning")
    parser.add_argument("--costs", action="store_true", help="also what fitting and predicting take, in float32")
    parser.add_argument("--out", metavar="FILE", help="write the figures as JSON too")
    options = parser.parse_args(arguments)
    # What follows --data is taken for data, key=value too.
    options.overrides += [given for given in options.data if "=" in given]
    options.data = [given for given in options.data if "=" not in given]
    if not options.data:
        parser.error("--data names no data set: key=value is none")
    if options.overrides and not options.leave_out:
        parser.error(f"{options.overrides[0]} is for a pool that is trained: it goes with --leave-out")
    return exit_code_of("measure_pool", lambda: measure(options))


def measure(options: argparse.Namespace) -> int:
    """Everything that was asked for, one data set after the other."""
    from openprompt_meta.data.loading import load

    found: dict[str, Any] = {}
    for path in options.data:
        dataset = load(path)
        if options.leave_out:
            stopped = train_without(dataset.name, path, options)
            if stopped:
                return stopped
        found[dataset.name] = of_dataset(options, dataset)
        print(f"\n{dataset.name}, {options.split} classes\n\n{table(found[dataset.name])}", flush=True)
        if options.costs:
            print(costs(served(dataset.name, options, "float32"), dataset[options.split]), flush=True)
        if options.out:
            Path(options.out).write_text(json.dumps(found, indent=2) + "\n", "utf-8")
    return 0


def train_without(name: str, path: str, options: argparse.Namespace) -> int:
    """Train the run without a data set, if it has not ended; an exit code, above 0 if it was stopped."""
    from openprompt_meta.config.loading import find_yaml, load_config
    from openprompt_meta.runs.process import StopRequest
    from openprompt_meta.runs.run import Run

    config = without(load_config(find_yaml(options.leave_out), options.overrides), name, path)
    with StopRequest() as stop:
        run = Run(config, folder_without(name, options))
        if run.train(stop) is None:
            print(run.how_to_go_on(), file=sys.stderr)
            return stop.exit_code
    return 0


def without(config: RunConfig, name: str, path: str) -> RunConfig:
    """The configuration of a mixture with a data set taken out of it, by its path or its name, and held apart."""
    mixture = config.dataset.mixture
    taken = [one for one in mixture if same_data(one, name, path)]
    if not taken:
        print(f"{name} is not in the mixture ({', '.join(mixture)}): it is held apart alone.", file=sys.stderr)
    apart = dict.fromkeys([*config.dataset.apart_from, *taken, path])
    rest = [one for one in mixture if one not in taken]
    return config.with_values({"dataset.mixture": rest, "dataset.apart_from": list(apart)})


def same_data(one: str, name: str, path: str) -> bool:
    """Whether a part of a mixture is the data set of that name, which was read from that path."""
    return os.path.realpath(one) == os.path.realpath(path) or name in (Path(one).name, Path(one).stem)


def served(name: str, options: argparse.Namespace, precision: str) -> MetaLearned:
    """What a data set is measured with, as it serves: a saved pool, or that of the run that knows nothing of it."""
    from openprompt_meta.classifier.artefact import read_artefact
    from openprompt_meta.classifier.pretrained import Changes, of_run, serving
    from openprompt_meta.pools import GENERAL

    if options.leave_out:
        return serving(of_run(folder_without(name, options), None, Changes()), precision)
    return serving(read_artefact(Path(options.pool or GENERAL)).meta, precision)


def folder_without(name: str, options: argparse.Namespace) -> Path:
    """Where the run is that knows nothing of a data set."""
    return Path(options.runs) / f"without-{name}"


def of_dataset(options: argparse.Namespace, dataset: Any) -> dict[str, dict[str, list[float]]]:
    """Accuracy of every task, by what was measured and by whom."""
    from openprompt_meta.classifier.pretrained import base_model_of

    meta = served(dataset.name, options, options.precision)
    texts, by_class, names = few_texts(dataset, dataset[options.split])
    prompted, bare = Prompted(meta), Bare(base_model_of(meta).loaded, meta.config.dataset.max_seq_length)
    features = {"pool": prompted.read(texts), "bare": bare.read(texts)}
    of_names = {"pool": prompted.read(names), "bare": bare.read(names)}
    rows: dict[str, dict[str, list[float]]] = {}
    tasks = {f"{WAYS}-way {shots}-shot": list(few_way(by_class, shots, options.tasks)) for shots in FEW}
    tasks |= {f"all {len(by_class)} classes, {shots}-shot": list(all_classes(by_class, shots)) for shots in ALL}
    for title, drawn in tasks.items():
        for task in progress_bar(drawn, title=f"{dataset.name}, {title}", unit="task", leave=False):
            for row, right in evaluated(task, features, of_names, prompted.verbalizer).items():
                rows.setdefault(row, {}).setdefault(title, []).append(right)
    if options.out_of_scope:
        print(out_of_scope(by_class, features["pool"], of_names["pool"], prompted.verbalizer))
    for title, drawn in tasks.items():
        if options.contrastive and "0-shot" not in title:
            few = drawn[: options.contrastive]
            rows.setdefault("contrastive", {})[title], seconds = contrastive(bare, texts, few)
            print(f"contrastive, {title}: {seconds:.1f} s a task, {len(few)} tasks")
    return rows


# -- Texts and tasks --------------------------------------------------------------------------------------------------


def few_texts(dataset: Any, split: Any) -> tuple[list[str], list[list[int]], list[str]]:
    """At most :data:`TEXTS_A_CLASS` texts of each class, where those of which class are, and the classes' names."""
    from openprompt_meta.data.classes import text_of_words
    from openprompt_meta.data.episodes import seeded_sample

    texts: list[str] = []
    by_class = []
    for name, own in split.indices.items():
        chosen = seeded_sample(own, min(len(own), TEXTS_A_CLASS), "measured", name)
        by_class.append(list(range(len(texts), len(texts) + len(chosen))))
        texts += [split.texts[i] for i in chosen]
    return texts, by_class, [text_of_words(dataset.label_words[name]) for name in split.classes]


def few_way(by_class: Sequence[Sequence[int]], shots: int, count: int) -> Iterator[Drawn]:
    """5-way tasks; classes and queries are the same for every number of shots."""
    from openprompt_meta.data.episodes import seeded_sample

    most = min(len(own) for own in by_class)
    queries = min(QUERIES, most - max(FEW))
    for index in range(count):
        classes = seeded_sample(range(len(by_class)), WAYS, "classes", index)
        drawn = [seeded_sample(by_class[i], queries + max(FEW), "texts", index, i) for i in classes]
        yield Drawn(classes, [own[queries : queries + shots] for own in drawn], [own[:queries] for own in drawn])


def all_classes(by_class: Sequence[Sequence[int]], shots: int) -> Iterator[Drawn]:
    """All classes at once; a class with too few texts keeps a third of them to be asked for."""
    from openprompt_meta.data.episodes import seeded_sample

    for index in range(DRAWS):
        drawn = [seeded_sample(own, len(own), "all", index, i) for i, own in enumerate(by_class)]
        kept = [max(len(own) // 3, min(len(own) - max(ALL), 50)) for own in drawn]
        support = [own[asked : asked + shots] for own, asked in zip(drawn, kept, strict=True)]
        query = [own[:asked] for own, asked in zip(drawn, kept, strict=True)]
        yield Drawn(list(range(len(by_class))), support, query)


# -- Reading texts ----------------------------------------------------------------------------------------------------


class Prompted:
    """Reads texts with a pool's prompts, as a classifier does that is fitted from it."""

    def __init__(self, meta: Any) -> None:
        from openprompt_meta.classifier.pretrained import base_model_of, template_with
        from openprompt_meta.methods.building import verbalizer_of
        from openprompt_meta.methods.language_model import build_classifier

        self._base, self._config = base_model_of(meta), meta.config
        self._template = template_with(self._base, meta.config, meta.pool)
        self.verbalizer = verbalizer_of(meta.config, self._base.loaded, 0)
        self._classifier = build_classifier(meta.config, self._base.loaded, self._template, self.verbalizer)

    @torch.no_grad()
    def read(self, texts: Sequence[str]) -> Tensor:
        """Features ``[n, d_o]``."""
        from openprompt_meta.classifier.adaptation import wrapped

        rows = wrapped(self._base, self._config, self._template, texts)
        return in_groups(rows.lengths.tolist(), lambda group: self._classifier.read(rows.batch(group))[0])


class Bare:
    """Reads texts as they are: the mean over the encoder's tokens."""

    def __init__(self, loaded: Any, budget: int) -> None:
        self.loaded, self.budget = loaded, budget

    @torch.no_grad()
    def read(self, texts: Sequence[str]) -> Tensor:
        """Features ``[n, d_o]``."""
        from openprompt_meta.learners.baselines import mean_pooled

        tokenizer, model = self.loaded.tokenizer, self.loaded.model.base_model
        rows = tokenizer(list(texts), truncation=True, max_length=self.budget)["input_ids"]

        def read(group: Sequence[int]) -> Tensor:
            padded = tokenizer.pad({"input_ids": [rows[i] for i in group]}, return_tensors="pt")
            return mean_pooled(model, dict(padded))

        return in_groups([len(row) for row in rows], read)


def in_groups(lengths: Sequence[int], read: Callable[[Sequence[int]], Tensor]) -> Tensor:
    """Features of texts that are read by length, in the order in which they were given."""
    from openprompt_meta.encoder.batching import groups_by_length

    groups = list(groups_by_length(list(lengths), 4096))
    parts = [read(group).float() for group in progress_bar(groups, title="reading texts", unit="group", leave=False)]
    return torch.cat(parts)[torch.tensor([i for group in groups for i in group]).argsort()]


# -- Learning a task --------------------------------------------------------------------------------------------------


@torch.no_grad()
def evaluated(
    task: Drawn, features: Mapping[str, Tensor], of_names: Mapping[str, Tensor], verbalizer: Any
) -> dict[str, float]:
    """The share of queries that each row gets right."""
    from openprompt_meta.learners.baselines import class_means, logistic_regression

    labels = labels_of(task.support)
    expected = labels_of(task.query)
    support, query = ([i for own in part for i in own] for part in (task.support, task.query))
    classes = list(task.classes)
    bare, names = features["bare"], of_names["bare"][classes]
    found = {}
    if len(labels):
        found["class means"] = class_means()(bare[support], labels)(bare[query])
        found["class means with names"] = class_means(NAME_WEIGHT)(bare[support], labels, names)(bare[query])
        found["logistic regression"] = logistic_regression(10.0)(bare[support], labels)(bare[query])
    else:
        found["names alone"] = cosines(bare[query], names)
    verbalizer.begin_task([str(i) for i in classes])
    verbalizer.fit_names(of_names["pool"][classes], torch.arange(len(classes)))
    verbalizer.fit_support(features["pool"][support], None, labels)
    found["pool"] = verbalizer.log_probabilities(features["pool"][query], None)
    found["pool, class means"] = cosines(features["pool"][query], verbalizer.label_embeddings)
    return {row: float((scores.argmax(dim=-1) == expected).float().mean()) for row, scores in found.items()}


THRESHOLDS = (0.3, 0.5, 0.7, 0.9)


@torch.no_grad()
def out_of_scope(by_class: Sequence[Sequence[int]], features: Tensor, names: Tensor, verbalizer: Any) -> str:
    """Half of the classes are learned and all are asked for: a table of what is let in and what is turned away."""
    from openprompt_meta.data.episodes import seeded_sample

    lines = ["| examples | " + " | ".join(f"below {least}" for least in THRESHOLDS) + " |"]
    lines.append("|---" * (len(THRESHOLDS) + 1) + "|")
    for shots in ALL:
        rates: list[list[tuple[float, float]]] = [[] for _ in THRESHOLDS]
        for index, task in enumerate(all_classes(by_class, shots)):
            known = sorted(seeded_sample(range(len(by_class)), (len(by_class) + 1) // 2, "known", index))
            strange = [i for label, own in enumerate(task.query) if label not in known for i in own]
            learned = Drawn(known, [task.support[i] for i in known], [task.query[i] for i in known])
            verbalizer.begin_task([str(i) for i in known])
            verbalizer.fit_names(names[known], torch.arange(len(known)))
            verbalizer.fit_support(
                features[[i for own in learned.support for i in own]], None, labels_of(learned.support)
            )
            sure = [
                verbalizer.log_probabilities(features[some], None).exp().amax(dim=-1)
                for some in ([i for own in learned.query for i in own], strange)
            ]
            for rate, least in zip(rates, THRESHOLDS, strict=True):
                rate.append((float((sure[1] >= least).float().mean()), float((sure[0] < least).float().mean())))
        cells = [
            f"{100 * sum(a for a, _ in rate) / len(rate):.0f} / {100 * sum(b for _, b in rate) / len(rate):.0f}"
            for rate in rates
        ]
        lines.append(f"| {shots} | " + " | ".join(cells) + " |")
    return "\n".join(["", "false accepts of other classes' texts / rejects of known ones, per cent", "", *lines])


def cosines(features: Tensor, of_classes: Tensor) -> Tensor:
    """``[n, C]``."""
    return F.normalize(features, dim=-1) @ F.normalize(of_classes, dim=-1).T


def labels_of(parts: Sequence[Sequence[int]]) -> Tensor:
    """The class of each text of a part."""
    return torch.tensor([label for label, own in enumerate(parts) for _ in own], dtype=torch.long)


def contrastive(bare: Bare, texts: Sequence[str], tasks: Sequence[Drawn]) -> tuple[list[float], float]:
    """Accuracy of the encoder tuned on each task, as SetFit does, and the seconds that a task takes."""
    from openprompt_meta.learners.baselines import ContrastiveLearner, logistic_regression
    from openprompt_meta.learners.task import Task
    from openprompt_meta.methods import ContrastiveSection
    from openprompt_meta.methods.baselines import BareTexts
    from openprompt_meta.methods.language_model import own_copy

    section = ContrastiveSection()
    encoder = own_copy(bare.loaded).model.base_model
    learner = ContrastiveLearner(encoder, section.lr, logistic_regression(10.0), section.pairs)
    source = BareTexts(texts, bare.loaded, bare.budget)
    right = []
    started = time.perf_counter()
    for index, task in enumerate(progress_bar(tasks, title="contrastive", unit="task", leave=False)):
        batches = [
            source.batch([i for own in part for i in own], labels_of(part).tolist())
            for part in (task.support, task.query)
        ]
        outcome = learner.evaluate(Task(index, [str(i) for i in task.classes], {}, *batches), section.steps)
        right.append(outcome.accuracy)
    return right, (time.perf_counter() - started) / len(tasks)


# -- Costs ------------------------------------------------------------------------------------------------------------

ROUNDS, UNSEEN = 3, 600


def costs(meta: MetaLearned, split: Any) -> str:
    """Seconds to fit, speed of prediction as a share of the bare encoder's, and size on disk: a Markdown table.

    The best of a few rounds that take turns. The bare encoder reads the same texts, sorted by length as well.
    """
    from openprompt_meta.classifier.artefact import Stored, write_artefact

    lines = [
        "",
        "| classes | examples of each | fit, s | texts/s | of the bare encoder's | kB on disk |",
        "|---" * 6 + "|",
    ]
    with tempfile.TemporaryDirectory() as folder:
        write_artefact(Path(folder) / "pool", Stored(meta, None, {}))
        for classes, shots in ((WAYS, max(FEW)), (len(split.classes), max(FEW)), (len(split.classes), max(ALL))):
            lines.append(cost(Path(folder) / "pool", split, classes, shots))
    return "\n".join(lines)


def cost(pool: Path, split: Any, classes: int, shots: int) -> str:
    """A row of the table: a classifier of so many classes, of which it is given so many examples each."""
    from openprompt_meta import MetaPromptClassifier
    from openprompt_meta.classifier.pretrained import load_base_model

    names = split.classes[:classes]
    texts, labels = zip(*((split.texts[i], name) for name in names for i in split.indices[name][:shots]), strict=True)
    unseen = asked_of(split, names, shots)
    classifier = MetaPromptClassifier(pool).fit(texts, labels)  # loads the encoder
    config = classifier.task_.meta.config
    bare = Bare(load_base_model(config).loaded, config.dataset.max_seq_length)

    def fit() -> None:
        classifier.fit(texts, labels)

    def predict() -> None:
        classifier.predict_proba(unseen)

    def read_bare() -> None:
        bare.read(unseen)

    taken: dict[Callable[[], None], list[float]] = {fit: [], predict: [], read_bare: []}
    for _ in range(ROUNDS):
        for way, seconds in taken.items():
            started = time.perf_counter()
            way()
            seconds.append(time.perf_counter() - started)
    fitting, predicting, reading = map(min, taken.values())
    with tempfile.TemporaryDirectory() as folder:
        classifier.save_pretrained(Path(folder) / "saved")
        size = sum(file.stat().st_size for file in (Path(folder) / "saved").iterdir())
    return (
        f"| {classes} | {shots} | {fitting:.2f} | {len(unseen) / predicting:.0f} | {reading / predicting:.2f} "
        f"| {size / 1000:.0f} |"
    )


def asked_of(split: Any, names: Sequence[str], shots: int) -> list[str]:
    """At most about :data:`UNSEEN` texts of these classes but their first ``shots``, of each as many."""
    each = -(-UNSEEN // len(names))
    return [split.texts[i] for name in names for i in split.indices[name][shots : shots + each]]


# -- Printing ---------------------------------------------------------------------------------------------------------


def table(rows: Mapping[str, Mapping[str, Sequence[float]]]) -> str:
    """Rows of figures in Markdown, and how far the pool is ahead of the best of the others on the same tasks."""
    from openprompt_meta.runs.evaluation import summarise_tasks

    titles = list(dict.fromkeys(title for row in rows.values() for title in row))
    lines = ["| | " + " | ".join(titles) + " |", "|---" * (len(titles) + 1) + "|"]
    for name, row in rows.items():
        cells = [str(summarise_tasks(row[title])) if title in row else "" for title in titles]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    ahead = []
    for title in titles:
        best = max((name for name in NOTHING if title in rows.get(name, {})), key=lambda name: sum(rows[name][title]))
        gains = [own - other for own, other in zip(rows["pool"][title], rows[best][title], strict=True)]
        ahead.append(f"{summarise_tasks(gains)} ({best})")
    lines.append("| pool ahead by | " + " | ".join(ahead) + " |")
    tuned = rows.get("contrastive", {})
    if tuned:
        # Fewer tasks than the pool's, the first ones.
        ahead_of_tuned = [
            str(summarise_tasks([a - b for a, b in zip(rows["pool"][title], tuned[title], strict=False)]))
            if title in tuned
            else ""
            for title in titles
        ]
        lines.append("| pool ahead of contrastive, same tasks | " + " | ".join(ahead_of_tuned) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
