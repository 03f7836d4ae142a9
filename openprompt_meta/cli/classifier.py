"""`openprompt-meta fit | predict | eval | explain | export`: parse, call, print."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from openprompt_meta.errors import ArtefactError, DataError, one_line

if TYPE_CHECKING:
    from openprompt_meta.classifier.classifier import MetaPromptClassifier
    from openprompt_meta.classifier.prediction import Explanation, Scores

    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]


_AT_A_TIME = 256
_TABLE_KINDS = ("csv", "tsv", "jsonl")


def add_parsers(subparsers: Subparsers) -> None:
    """Add the five subcommands."""
    _add_fit(subparsers)
    _add_predict(subparsers)
    _add_eval(subparsers)
    _add_explain(subparsers)
    _add_export(subparsers)


def _add_fit(subparsers: Subparsers) -> None:
    fit = subparsers.add_parser(
        "fit",
        help="make a classifier from a few labelled texts",
        description="Adapt a meta-learned pool to a few labelled texts and save the classifier.",
    )
    fit.add_argument(
        "source",
        metavar="RUN",
        nargs="?",
        help="a run folder, or a saved classifier to start from the pool of; the pool that ships by default",
    )
    fit.add_argument("--data", required=True, metavar="FILE", help="labelled texts: .csv, .tsv or .jsonl")
    fit.add_argument(
        "--out", required=True, metavar="DIR", help="where the classifier goes; one that is there is replaced"
    )
    _add_columns(fit, labels=True)
    fit.add_argument(
        "--label-words",
        metavar="FILE",
        help="words of the classes or a sentence each, .json or .yaml; by default those in their names",
    )
    fit.add_argument(
        "--test", metavar="FILE", help="labelled texts to evaluate it on; the scores go into its model card"
    )
    fit.add_argument("--no-texts", action="store_true", help="leave the texts out of what is saved")
    fit.add_argument("--seed", type=int, metavar="N", help="which of the run's seeds; the first by default")
    fit.add_argument("--inner-steps", type=int, metavar="N", help="gradient steps; as in the run by default")
    fit.add_argument("--inner-lr", type=float, metavar="X", help="their size; as in the run by default")
    fit.add_argument("--mix-lambda", type=float, metavar="X", help="λ; as in the run by default")
    _add_common(fit, _fit)


def _add_predict(subparsers: Subparsers) -> None:
    predict = subparsers.add_parser(
        "predict",
        help="classify the texts of a file or a pipe",
        description="Classify texts as they come, in their order, adding the predicted label and its probability to "
        "each row. With --out, rows that are in the file already are not done again.",
    )
    predict.add_argument("folder", metavar="DIR", help="a saved classifier")
    predict.add_argument(
        "texts", metavar="FILE", help=".txt (a text a line), .csv, .tsv or .jsonl; - reads standard input"
    )
    _add_columns(predict)
    predict.add_argument("--format", choices=("txt", *_TABLE_KINDS), help="of the texts, if the name does not tell")
    predict.add_argument("--out", metavar="FILE", help=".csv, .tsv or .jsonl; standard output by default")
    predict.add_argument("--all", action="store_true", help="add the probability of every class")
    predict.add_argument(
        "--reject-below",
        type=float,
        metavar="P",
        help="label a text 'none of these' (-1 where classes are numbers) if its most probable class is less probable",
    )
    predict.add_argument(
        "--raw-cells", action="store_true", help="write cells that a spreadsheet would run as formulas as they are"
    )
    predict.add_argument("--quiet", action="store_true", help="no progress bar")
    _add_common(predict, _predict, "write JSON lines")


def _add_eval(subparsers: Subparsers) -> None:
    evaluate = subparsers.add_parser(
        "eval",
        help="evaluate a classifier on labelled texts",
        description="Accuracy, macro-F1 and the confusion matrix.",
    )
    evaluate.add_argument("folder", metavar="DIR", help="a saved classifier")
    evaluate.add_argument("data", metavar="FILE", help="labelled texts: .csv, .tsv or .jsonl")
    _add_columns(evaluate, labels=True)
    _add_common(evaluate, _eval)


def _add_export(subparsers: Subparsers) -> None:
    export = subparsers.add_parser(
        "export",
        help="write a classifier as one file that needs no torch",
        description="Write a classifier in another format, with its tokenizer and the names of its classes beside.",
    )
    export.add_argument("folder", metavar="DIR", help="a saved classifier")
    export.add_argument("--to", required=True, choices=("onnx",), help="the format")
    export.add_argument("--out", metavar="DIR", help="folder to write to (default: the classifier's, with -onnx)")
    _add_common(export, _export)


def _add_explain(subparsers: Subparsers) -> None:
    explain = subparsers.add_parser(
        "explain",
        help="say why a text is classified as it is",
        description="Probabilities, attention over the prompts, words near the prompt, and the nearest examples.",
    )
    explain.add_argument("folder", metavar="DIR", help="a saved classifier")
    explain.add_argument("text", help="the text")
    explain.add_argument("--words", type=int, default=3, metavar="N", help="words a position (default: %(default)s)")
    explain.add_argument("--examples", type=int, default=5, metavar="N", help="examples (default: %(default)s)")
    _add_common(explain, _explain)


def _add_columns(parser: argparse.ArgumentParser, labels: bool = False) -> None:
    parser.add_argument("--text-column", default="text", metavar="NAME", help="(default: %(default)s)")
    if labels:
        parser.add_argument("--label-column", default="label", metavar="NAME", help="(default: %(default)s)")


def _add_common(parser: argparse.ArgumentParser, run: Any, json_help: str = "print the results as JSON") -> None:
    parser.add_argument(
        "--base-model",
        metavar="NAME",
        help="the language model, if it is elsewhere than it was, or is to be fetched from the model hub",
    )
    parser.add_argument(
        "--allow-pickle", action="store_true", default=None, help="take a language model without safetensors"
    )
    parser.add_argument("--device", metavar="NAME", help="cpu, cuda, …; CUDA if there is one by default")
    parser.add_argument("--json", action="store_true", help=json_help)
    parser.set_defaults(run=run)


# -- fit --------------------------------------------------------------------------------------------------------------


def _fit(options: argparse.Namespace) -> int:
    from openprompt_meta.classifier.prediction import score_on
    from openprompt_meta.classifier.text_files import as_labels_of, read_labelled
    from openprompt_meta.data.classes import read_label_words

    # Files first: their errors are quick, the model's loading is not.
    texts, labels = read_labelled(options.data, options.text_column, options.label_column)
    words = None if options.label_words is None else read_label_words(Path(options.label_words))
    test = None if options.test is None else read_labelled(options.test, options.text_column, options.label_column)
    classifier = _source(options)
    classifier.fit(texts, labels, words)
    classes = classifier.task_.classes
    scores = None if test is None else score_on(classifier, test[0], as_labels_of(classes, test[1], options.test))
    metrics = {} if scores is None else {"accuracy": scores.accuracy, "macro_f1": scores.macro_f1}
    classifier.save_pretrained(options.out, keep_texts=not options.no_texts, metrics=metrics)
    size = sum(file.stat().st_size for file in Path(options.out).iterdir())
    if options.json:
        content = {
            "folder": options.out,
            "classes": list(classes),
            "examples": len(texts),
            "inner_losses": list(classifier.task_.adapted.inner_losses),
            "bytes": size,
            "test": None if scores is None else scores.as_dict(),
        }
        print(json.dumps(content, indent=2, ensure_ascii=False))
        return 0
    print(f"{len(classes)} classes from {len(texts)} examples: {', '.join(map(_shown, classes))}")
    if classifier.head_ is not None:
        print(f"Decided by {classifier.head_}")
    if scores is not None:
        _print_scores(scores)
    print(f"Saved to {options.out} ({size / 1000:.0f} kB). Try: openprompt-meta predict {options.out} texts.txt")
    return 0


def _source(options: argparse.Namespace) -> MetaPromptClassifier:
    from openprompt_meta.classifier.classifier import MetaPromptClassifier

    settings = _given(options, "seed", "inner_steps", "inner_lr", "mix_lambda", "base_model", "device", "allow_pickle")
    if options.source is None:
        return MetaPromptClassifier(**settings)
    folder = Path(options.source)
    if folder.is_dir() and not (folder / "classifier.json").exists():
        return MetaPromptClassifier.from_run(options.source, **settings)
    return MetaPromptClassifier.from_pretrained(options.source, **settings)


def _given(options: argparse.Namespace, *names: str) -> dict[str, Any]:
    return {name: value for name in names if (value := getattr(options, name, None)) is not None}


# -- predict ----------------------------------------------------------------------------------------------------------


def _predict(options: argparse.Namespace) -> int:
    from openprompt_meta.classifier.classifier import rejected_as
    from openprompt_meta.classifier.text_files import (
        PredictedFile,
        RowWriter,
        long_cells,
        open_rows,
        predict_rows,
        skip_done,
    )
    from openprompt_meta.files import without_formula
    from openprompt_meta.progress import progress_bar

    kind = _kind_of_output(options)
    stdin = sys.stdin.buffer
    with long_cells(), open_rows(options.texts, options.text_column, options.format, stdin) as reader:
        classifier = _fitted(options)
        rows = iter(reader)
        # A person who types is answered line by line.
        at_a_time = 1 if options.texts == "-" and stdin.isatty() else _AT_A_TIME
        classes = classifier.task_.classes
        column = options.text_column
        written = column if options.raw_cells or kind == "jsonl" else without_formula(column)
        labels = classes if options.reject_below is None else [*classes, rejected_as(classes)]
        file = None if options.out is None else PredictedFile(options.out, kind, written, labels)
        try:
            done = 0 if file is None else skip_done(classifier, rows, file)
            stream = sys.stdout.buffer if file is None else file.go_on()
            writer = RowWriter(
                stream, kind, classes, options.all, () if file is None else file.columns, options.raw_cells
            )
            count = done
            with progress_bar(
                total=None if options.texts == "-" else os.path.getsize(options.texts),
                initial=reader.consumed,
                unit="B",
                unit_scale=True,
                title="predicting",
                show=not options.quiet,
            ) as bar:
                for predicted in predict_rows(classifier, rows, writer, at_a_time):
                    count += predicted
                    bar.set_postfix(rows=count, refresh=False)
                    bar.update(reader.consumed - bar.n)
        except BrokenPipeError:
            raise
        except OSError as error:
            where = options.out or "Standard output"
            raise DataError(f"{where} cannot be written: {error}. Make room and run again: it goes on.") from None
        finally:
            if file is not None:
                file.close()
    if options.out is not None:
        went_on = f", {done} of them from before" if done else ""
        print(f"{count} rows in {options.out}{went_on}", file=sys.stderr)
    return 0


def _kind_of_output(options: argparse.Namespace) -> str:
    from openprompt_meta.classifier.text_files import format_of

    if options.json and options.out is None:
        return "jsonl"
    if options.out is not None:
        kind = format_of(options.out)
        if kind not in _TABLE_KINDS or (options.json and kind != "jsonl"):
            raise DataError(
                f"{options.out}: predictions are written as .{', .'.join(_TABLE_KINDS)}; --json as .jsonl."
            )
        return kind
    kind = options.format or ("txt" if options.texts == "-" else format_of(options.texts))
    return kind if kind in _TABLE_KINDS else "csv"


# -- eval and explain -------------------------------------------------------------------------------------------------


def _export(options: argparse.Namespace) -> int:
    folder = Path(options.out or f"{options.folder.rstrip('/')}-onnx")
    _fitted(options).export_onnx(folder)
    files = {name: (folder / name).stat().st_size for name in sorted(os.listdir(folder))}
    if options.json:
        print(json.dumps({"folder": str(folder), "bytes": files}))
    else:
        print(f"Written to {folder}: " + ", ".join(f"{name} ({size / 1e6:.1f} MB)" for name, size in files.items()))
    return 0


def _eval(options: argparse.Namespace) -> int:
    from openprompt_meta.classifier.prediction import score_on
    from openprompt_meta.classifier.text_files import as_labels_of, read_labelled

    texts, labels = read_labelled(options.data, options.text_column, options.label_column)
    classifier = _fitted(options)
    scores = score_on(classifier, texts, as_labels_of(classifier.task_.classes, labels, options.data))
    if options.json:
        print(json.dumps(scores.as_dict(), indent=2, ensure_ascii=False))
    else:
        _print_scores(scores)
    return 0


def _print_scores(scores: Scores) -> None:
    print(f"{scores.texts} texts: accuracy {scores.accuracy:.4f}, macro-F1 {scores.macro_f1:.4f}")
    names = [_shown(name) for name in scores.classes]
    width = max(len(str(number)) for number in (len(names), *(count for row in scores.confusion for count in row)))
    longest = max(map(len, names))
    print("\nlabelled ↓, predicted →")
    print(" " * (longest + 6) + "".join(f"{number:>{width + 1}}" for number in range(1, len(names) + 1)))
    for number, (name, row) in enumerate(zip(names, scores.confusion, strict=True), start=1):
        print(f"{number:>3}  {name:<{longest}} " + "".join(f"{count or '·':>{width + 1}}" for count in row))


def _shown(label: object) -> str:
    return one_line(str(label))


def _explain(options: argparse.Namespace) -> int:
    explanation = _fitted(options).explain(options.text, options.words, options.examples)
    if options.json:
        print(json.dumps(explanation.as_dict(), indent=2, ensure_ascii=False))
    else:
        print("\n".join(_as_text(explanation)))
    return 0


def _as_text(explanation: Explanation) -> Sequence[str]:
    longest = max(len(_shown(entry.label)) for entry in explanation.classes)
    lines = [_shown(explanation.label), ""]
    for entry in explanation.classes:
        sides = [
            f"{name} {value:.3f}"
            for name, value in (("label embeddings", entry.soft), ("label words", entry.hand_crafted))
            if value is not None and entry.hand_crafted is not None
        ]
        note = f"   ({', '.join(sides)})" if sides else ""
        lines.append(f"{_shown(entry.label):<{longest}}  {entry.probability:.3f} {_blocks(entry.probability)}{note}")
    if len(explanation.attention) > 1:
        lines += ["", "attention over the prompts"]
        lines += [f"{i:>3}  {weight:.3f} {_blocks(weight)}" for i, weight in enumerate(explanation.attention, start=1)]
    lines += ["", "words near the prompt, position by position"]
    for i, position in enumerate(explanation.prompt_words, start=1):
        lines.append(f"{i:>3}  " + ", ".join(f"{near.word} {near.cosine:.2f}" for near in position))
    if explanation.nearest_examples:
        lines += ["", "nearest examples"]
        lines += [
            f"{near.cosine:.3f}  {_shown(near.label)}: {one_line(near.text)}" for near in explanation.nearest_examples
        ]
    if explanation.head is not None:
        lines += ["", f"head: {explanation.head}"]
    if explanation.truncated:
        lines += ["", "The text is longer than the length budget and was cut."]
    return lines


def _blocks(part: float, width: int = 30) -> str:
    return "█" * round(width * part)


def _fitted(options: argparse.Namespace) -> MetaPromptClassifier:
    from openprompt_meta.classifier.classifier import MetaPromptClassifier

    classifier = MetaPromptClassifier.from_pretrained(
        options.folder, **_given(options, "base_model", "device", "allow_pickle", "reject_below")
    )
    if not classifier.__sklearn_is_fitted__():
        raise ArtefactError(
            f"{options.folder} holds a pool that was not fitted to any classes. Fit it first: openprompt-meta fit "
            f"{options.folder} --data few.csv --out DIR"
        )
    return classifier
