"""What the classifier costs: time to fit, texts a second against the bare encoder, size on disk.

    python -m bench.classifier [RUN] [--rounds N] [--texts N] [--threads N] [--precision P] [--onnx] [--cpu-time]

RUN is a run folder of ``openprompt-meta train``; without one, the pool that ships. The bare encoder is in float32
whatever the precision of ours; --onnx adds the exported classifier, run by onnxruntime in batches by length. The
sides of the comparison take turns on the same texts, and the best round of each counts: what else the machine does
can only slow a round down. On a busy machine --cpu-time counts the time on the processor instead. Prints a table, and
the same as JSON on the last line.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bench.bare_encoder import BareEncoder, by_length
from bench.timing import alternate, best_of, use_clock
from openprompt_meta import MetaPromptClassifier
from openprompt_meta.classifier.artefact import Stored, write_artefact
from openprompt_meta.classifier.export import MODEL, TOKENIZER
from openprompt_meta.classifier.pretrained import load_base_model, serving
from openprompt_meta.config.schema import DatasetSection
from openprompt_meta.data.loading import open_dataset
from openprompt_meta.errors import OpenPromptMetaError

WAY, SHOT = 5, 5


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", nargs="?", help="a run folder")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--texts", type=int, default=500)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--precision", default="float32", choices=("float32", "bfloat16"), help="of ours")
    parser.add_argument("--onnx", action="store_true", help="measure the export too")
    parser.add_argument("--cpu-time", action="store_true")
    options = parser.parse_args()
    if options.rounds < 2:
        parser.error(f"--rounds {options.rounds}: expected 2 or more, because the first one also warms up")
    if options.cpu_time:
        use_clock(time.process_time)
    torch.set_num_threads(options.threads)

    split = open_dataset(DatasetSection()).test
    chosen = [i for name in split.classes[:WAY] for i in split.indices[name][:SHOT]]
    few, labels = [split.texts[i] for i in chosen], [split.labels[i] for i in chosen]
    short = [split.texts[i % len(split)] for i in range(options.texts)]
    long = [" ".join(split.texts[(10 * i + j) % len(split)] for j in range(10)) for i in range(options.texts // 10)]

    classifier = MetaPromptClassifier(options.run)
    folder = tempfile.TemporaryDirectory()
    try:
        if options.precision != "float32":
            meta = serving(classifier.meta_learned, options.precision)
            write_artefact(Path(folder.name) / "pool", Stored(meta, None, {}))
            classifier = MetaPromptClassifier(Path(folder.name) / "pool")
        classifier.fit(few, labels)  # loads the language model
    except OpenPromptMetaError as error:
        parser.error(str(error))
    config = classifier.task_.meta.config
    fitting = best_of(lambda: classifier.fit(few, labels), options.rounds)
    found: dict[str, Any] = {
        "threads": options.threads,
        "precision": options.precision,
        "clock": "processor" if options.cpu_time else "wall",
        "fit_seconds": fitting,
        "fit_examples": len(few),
        "inner_steps": config.meta.inner_steps_eval,
    }
    plain = config.with_values({"plm.precision": "float32"})
    bare = BareEncoder(load_base_model(plain).loaded, config.dataset.max_seq_length)
    exported = _exported(classifier, Path(folder.name) / "onnx", options.threads) if options.onnx else None
    for name, texts in (("short", short), ("long", long)):
        ways: dict[str, Callable[[], object]] = {
            "ours": partial(classifier.predict_proba, texts),
            "bare": partial(bare.read, texts, partial(by_length, most_tokens=classifier.batch_tokens)),
        }
        if exported is not None:
            ways["onnx"] = partial(exported, texts, classifier.batch_tokens)
        times = alternate(ways, options.rounds)
        found[name] = {
            "texts": len(texts),
            "mean_words": sum(len(text.split()) for text in texts) / len(texts),
            "texts_per_second": len(texts) / times.best["ours"],
            "bare_encoder_texts_per_second": len(texts) / times.best["bare"],
            "ratio": times.ratio("bare", "ours"),
            **({} if exported is None else {"onnx_ratio": times.ratio("bare", "onnx")}),
        }
    classifier.save_pretrained(Path(folder.name) / "saved")
    found["bytes_on_disk"] = sum(file.stat().st_size for file in (Path(folder.name) / "saved").iterdir())
    folder.cleanup()
    show(found)


def _exported(
    classifier: MetaPromptClassifier, folder: Path, threads: int
) -> Callable[[Sequence[str], int], list[np.ndarray[Any, Any]]]:
    """The exported classifier: a function from texts, and tokens at a time, to probabilities."""
    import onnxruntime
    from tokenizers import Tokenizer

    classifier.export_onnx(folder)
    tokenizer = Tokenizer.from_file(str(folder / TOKENIZER))
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(str(folder / MODEL), settings, providers=["CPUExecutionProvider"])
    padding = tokenizer.padding["pad_id"]
    tokenizer.no_padding()

    def predict(texts: Sequence[str], most_tokens: int) -> list[np.ndarray[Any, Any]]:
        rows = [one.ids for one in tokenizer.encode_batch(list(texts))]
        found = []
        for group in by_length([len(row) for row in rows], most_tokens):
            longest = max(len(rows[i]) for i in group)
            ids = np.full((len(group), longest), padding, dtype=np.int64)
            for place, i in enumerate(group):
                ids[place, : len(rows[i])] = rows[i]
            found += session.run(None, {"input_ids": ids, "attention_mask": (ids != padding).astype(np.int64)})
        return found

    return predict


@torch.no_grad()
def show(found: dict[str, Any]) -> None:
    """A table for people, a line for programs."""
    print(
        f"fit on {found['fit_examples']} examples, {found['inner_steps']} inner steps   {found['fit_seconds']:.3f} s"
    )
    print(f"size on disk                            {found['bytes_on_disk'] / 1000:.0f} kB")
    print(f"\n{'texts':<8}{'words':>7}{'texts/s':>10}{'bare encoder':>14}{'ratio':>8}{'onnx':>8}")
    for name in ("short", "long"):
        row = found[name]
        print(
            f"{name:<8}{row['mean_words']:>7.1f}{row['texts_per_second']:>10.0f}"
            f"{row['bare_encoder_texts_per_second']:>14.0f}{row['ratio']:>8.2f}{row.get('onnx_ratio', ''):>8.4}"
        )
    print(json.dumps(found))


if __name__ == "__main__":
    main()
