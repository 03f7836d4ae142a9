"""What the classifier costs: time to fit, texts a second against the bare encoder, size on disk.

    python -m bench.classifier [RUN] [--rounds N] [--texts N] [--threads N] [--cpu-time]

RUN is a run folder of ``openprompt-meta train``; without one, a pool that has learned nothing (it costs the same). The
two sides of the comparison take turns on the same texts, and the best round of each counts: what else the machine does
can only slow a round down. On a busy machine --cpu-time counts the time on the processor instead. Prints a table, and
the same as JSON on the last line.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import torch

from bench.bare_encoder import BareEncoder, by_length
from bench.timing import alternate, best_of, use_clock
from openprompt_meta import MetaPromptClassifier
from openprompt_meta.classifier.pretrained import load_base_model
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
    try:
        classifier.fit(few, labels)  # loads the language model
    except OpenPromptMetaError as error:
        parser.error(str(error))
    config = classifier.task_.meta.config
    fitting = best_of(lambda: classifier.fit(few, labels), options.rounds)
    found: dict[str, Any] = {
        "threads": options.threads,
        "clock": "processor" if options.cpu_time else "wall",
        "fit_seconds": fitting,
        "fit_examples": len(few),
        "inner_steps": config.meta.inner_steps_eval,
    }
    bare = BareEncoder(load_base_model(config).loaded, config.dataset.max_seq_length)
    for name, texts in (("short", short), ("long", long)):
        times = alternate(
            {
                "ours": partial(classifier.predict_proba, texts),
                "bare": partial(bare.read, texts, partial(by_length, most_tokens=classifier.batch_tokens)),
            },
            options.rounds,
        )
        found[name] = {
            "texts": len(texts),
            "mean_words": sum(len(text.split()) for text in texts) / len(texts),
            "texts_per_second": len(texts) / times.best["ours"],
            "bare_encoder_texts_per_second": len(texts) / times.best["bare"],
            "ratio": times.ratio("bare", "ours"),
        }
    with tempfile.TemporaryDirectory() as folder:
        classifier.save_pretrained(Path(folder) / "saved")
        found["bytes_on_disk"] = sum(file.stat().st_size for file in (Path(folder) / "saved").iterdir())
    show(found)


@torch.no_grad()
def show(found: dict[str, Any]) -> None:
    """A table for people, a line for programs."""
    print(
        f"fit on {found['fit_examples']} examples, {found['inner_steps']} inner steps   {found['fit_seconds']:.3f} s"
    )
    print(f"size on disk                            {found['bytes_on_disk'] / 1000:.0f} kB")
    print(f"\n{'texts':<8}{'words':>7}{'texts/s':>10}{'bare encoder':>14}{'ratio':>8}")
    for name in ("short", "long"):
        row = found[name]
        print(
            f"{name:<8}{row['mean_words']:>7.1f}{row['texts_per_second']:>10.0f}"
            f"{row['bare_encoder_texts_per_second']:>14.0f}{row['ratio']:>8.2f}"
        )
    print(json.dumps(found))


if __name__ == "__main__":
    main()
