"""``openprompt-meta data list | check SOURCE | download NAME``: tables for people, ``--json`` for programs."""

from __future__ import annotations

import argparse
import json
import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from openprompt_meta.components import readers
from openprompt_meta.config.schema import KNOWN_DATASETS
from openprompt_meta.data.checks import DROPPABLE, ERRORS, CheckReport, check, check_examples, dropped
from openprompt_meta.data.dataset import TextDataset
from openprompt_meta.data.downloading import AUTHORS_FILES, download
from openprompt_meta.data.facts import facts_of
from openprompt_meta.data.loading import (
    as_found,
    choose_splits,
    mismatches,
    read_records,
    with_label_words,
    word_sources,
)
from openprompt_meta.data.readers.files import DEMO, read_layout
from openprompt_meta.data.readers.records import Source
from openprompt_meta.errors import DataError

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]


def add_parser(subparsers: Subparsers) -> None:
    """Add ``data`` with its three subcommands; each sets ``run`` to a function that returns the exit code."""
    parser = subparsers.add_parser(
        "data", help="list, check and download data sets", description="List, check and download data sets."
    )
    commands = parser.add_subparsers(title="commands", dest="data_command", metavar="COMMAND", required=True)

    listing = commands.add_parser(
        "list", help="show the data sets that are known", description="Show the known data sets."
    )
    listing.add_argument("--json", action="store_true", help="print the list as JSON")
    listing.set_defaults(run=run_list)

    checking = commands.add_parser(
        "check",
        help="look a data set over and fail on what would spoil an evaluation",
        description="Print sizes, lengths, duplicates, overlap across splits and label words. Exits with 1 on what "
        "would spoil an evaluation: " + "; ".join(f"{code}: {text}" for code, text in ERRORS.items()) + ".",
    )
    checking.add_argument("source", help="'demo', a folder or file, the name of a known set, or hf:NAME")
    checking.add_argument(
        "--for",
        dest="purpose",
        choices=("runs", "fit"),
        help="what it is for: meta-training and tests, or fitting a classifier to it (default: fit for a single file "
        "without splits)",
    )
    checking.add_argument(
        "--format", choices=("auto", *readers()), default="auto", help="what the source is (default: look at it)"
    )
    checking.add_argument(
        "--name", help="what the data set is called, such as hwu64 (default: the folder's or file's name)"
    )
    checking.add_argument("--root", default="data", help="where named sets lie (default: %(default)s)")
    checking.add_argument(
        "--text-column", default="text", metavar="NAME", help="column of the texts (default: %(default)s)"
    )
    checking.add_argument(
        "--label-column", default="label", metavar="NAME", help="column of the classes (default: %(default)s)"
    )
    checking.add_argument("--config", help="configuration of a Hugging Face data set")
    checking.add_argument(
        "--split",
        default="default",
        help="default, authors, distributional_signatures, random or a JSON file of class lists",
    )
    checking.add_argument(
        "--counts", type=int, nargs=3, metavar=("TRAIN", "VALID", "TEST"), help="classes for --split random"
    )
    checking.add_argument("--seed", type=int, default=0, help="of --split random (default: %(default)s)")
    checking.add_argument("--label-words", metavar="FILE", help="JSON or YAML file of label words, or 'shipped'")
    checking.add_argument("--ways", type=int, default=5, help="classes an episode (default: %(default)s)")
    checking.add_argument("--shots", type=int, default=5, help="support texts a class (default: %(default)s)")
    checking.add_argument("--queries", type=int, default=15, help="query texts a class (default: %(default)s)")
    checking.add_argument("--drop", nargs="+", default=[], choices=DROPPABLE, help="texts to leave out before looking")
    checking.add_argument(
        "--allow",
        nargs="+",
        default=[],
        choices=tuple(ERRORS),
        metavar="CODE",
        help="errors to report without failing",
    )
    checking.add_argument("--json", action="store_true", help="print the report as JSON")
    checking.set_defaults(run=run_check)

    fetching = commands.add_parser(
        "download",
        help="fetch the authors' file of a data set, verified by checksum",
        description="Fetch the authors' files, verified by checksum. A broken download leaves nothing behind.",
    )
    fetching.add_argument("names", nargs="+", choices=KNOWN_DATASETS, metavar="NAME", help=", ".join(KNOWN_DATASETS))
    fetching.add_argument("--to", default="data", metavar="DIR", help="folder to put it into (default: %(default)s)")
    fetching.add_argument(
        "--base-url", default=AUTHORS_FILES, metavar="URL", help="a mirror of the authors' data folder"
    )
    fetching.add_argument(
        "--timeout", type=float, default=30.0, metavar="S", help="seconds to wait (default: %(default)s)"
    )
    fetching.add_argument("--json", action="store_true", help="print the paths as JSON")
    fetching.set_defaults(run=run_download)


def run_list(options: argparse.Namespace) -> int:
    """Print the six sets and the demo."""
    entries = [_demo_entry(), *map(_known_entry, KNOWN_DATASETS)]
    if options.json:
        print(json.dumps(entries, indent=2, ensure_ascii=False))
        return 0
    rows = [
        (
            entry["name"],
            "/".join(map(str, entry["classes"])),
            f"{entry['samples']:,}",
            entry["words_a_text"],
            ", ".join(entry["class_lists"]),
            entry["title"],
            entry["terms"],
        )
        for entry in entries
    ]
    header = ["name", "classes", "samples", "words", "class lists", "what", "terms"]
    print(_table(header, rows, right={2, 3}))
    print("\nclasses: train/valid/test. Fetch one with `openprompt-meta data download NAME`.")
    return 0


def run_check(options: argparse.Namespace) -> int:
    """Print the report on a data set; 1 if it has errors that are not allowed."""
    source = Source(
        where=options.source,
        name=options.name,
        text_column=options.text_column,
        label_column=options.label_column,
        config=options.config,
        drop_empty="empty" in options.drop,
    )
    records = read_records(source, format=options.format, root=options.root)
    as_files = options.split == "default"
    single = source.path.is_file() and as_files and not any(records.parts)
    if options.purpose == "fit" or (options.purpose is None and single):
        return _check_for_fit(options, as_found(records))
    try:
        dataset = choose_splits(records, options.split, counts=options.counts, seed=options.seed)
    except DataError:
        # A table without splits is still worth a look: its texts are then checked as one split.
        if not as_files:
            raise
        dataset = as_found(records)
    sources = word_sources(records, options.label_words)
    dataset = dropped(with_label_words(dataset, *sources), options.drop)
    report = check(
        dataset,
        ways=options.ways,
        shots=options.shots,
        queries=options.queries,
        mismatches=mismatches(records) if as_files else (),
        named={name for _, words in sources for name in words},
        allow=options.allow,
    )
    print(json.dumps(report.as_dict(), indent=2, ensure_ascii=False) if options.json else _as_text(report))
    return 0 if report.passed else 1


def _check_for_fit(options: argparse.Namespace, dataset: TextDataset) -> int:
    dataset = dropped(dataset, options.drop)
    if len(dataset.splits) != 1:
        raise DataError(
            f"{options.source} has splits ({', '.join(dataset.splits)}); `fit` learns from one file: name that file."
        )
    (examples,) = dataset
    report = check_examples(examples, dataset.name, dataset.provenance, options.allow)
    if options.json:
        print(json.dumps({**report.as_dict(), "classes": examples.sizes}, indent=2, ensure_ascii=False))
        return 0 if report.passed else 1
    print(f"{options.source}: {len(examples)} examples of {len(examples.classes)} classes, looked at for `fit`\n")
    firsts = [(name, size, examples.texts[examples.indices[name][0]]) for name, size in examples.sizes.items()]
    rows = [(name, size, first if len(first) <= 60 else f"{first[:59]}…") for name, size, first in firsts[:20]]
    print(_table(["class", "examples", "the first"], rows, right={1}))
    print(f"and {len(firsts) - 20} classes more\n" if len(firsts) > 20 else "")
    print(_findings_as_text(report))
    if report.passed:
        print(f"next: openprompt-meta fit --data {shlex.quote(options.source)} --out my_classifier")
    return 0 if report.passed else 1


def run_download(options: argparse.Namespace) -> int:
    """Fetch the named files."""
    paths = {}
    for name in options.names:
        paths[name] = str(
            download(name, options.to, base_url=options.base_url, timeout=options.timeout, progress=True)
        )
        if not options.json:
            print(f"{paths[name]}: verified. Terms: {facts_of(name).terms}.")
    if options.json:
        print(json.dumps(paths, indent=2))
    return 0


def _demo_entry() -> dict[str, Any]:
    demo = read_layout(Source(where=DEMO))
    return {
        "name": "demo",
        "title": "Everyday intents (ships with the package)",
        "classes": [len(classes) for _, classes in demo.lists["default"].items()],
        "samples": len(demo.texts),
        "words_a_text": round(sum(len(text.split()) for text in demo.texts) / len(demo.texts)),
        "class_lists": list(demo.lists),
        "terms": "CC0",
        "note": "",
    }


def _known_entry(name: str) -> dict[str, Any]:
    facts = facts_of(name)
    return {
        "name": name,
        "title": facts.title,
        "classes": [len(classes) for _, classes in facts.splits["authors"].items()],
        "samples": facts.samples,
        "words_a_text": facts.words_a_text,
        "class_lists": list(facts.splits),
        "terms": facts.terms,
        "note": facts.note,
    }


def _as_text(report: CheckReport) -> str:
    header = ["split", "classes", "samples", "a class", "words", "duplicates", "two labels", "in other splits"]
    rows = [
        [
            row.split,
            row.classes,
            f"{row.samples:,}",
            f"{row.fewest}–{row.most}" if row.fewest != row.most else row.fewest,
            f"{row.words_mean:.0f}±{row.words_deviation:.0f}",
            row.duplicates,
            row.two_labels,
            row.in_other_splits,
        ]
        for row in report.rows
    ]
    table = _table(header, rows, right=set(range(1, len(header))))
    return "\n".join([f"{report.name}: {report.provenance}", "", table, "", _findings_as_text(report)])


def _findings_as_text(report: CheckReport) -> str:
    lines = []
    for finding in report.findings:
        level = "allowed" if finding.allowed else finding.level
        lines.append(f"{level:<7}  {finding.message} ({finding.code})")
        lines += [f"           {example}" for example in finding.examples]
        if finding.count > len(finding.examples):
            lines.append("           …")
    lines.append(
        "passed"
        if report.passed
        else "failed: see the errors above; --allow CODE accepts one, --drop leaves texts out"
    )
    return "\n".join(lines)


def _table(header: Sequence[str], rows: Sequence[Sequence[object]], right: set[int]) -> str:
    cells = [list(header), *([str(cell) for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    sides = [">" if column in right else "<" for column in range(len(header))]

    def line(row: Sequence[str]) -> str:
        padded = (f"{cell:{side}{width}}" for cell, side, width in zip(row, sides, widths, strict=True))
        return "  ".join(padded).rstrip()

    return "\n".join([line(cells[0]), line(["-" * width for width in widths]), *map(line, cells[1:])])
