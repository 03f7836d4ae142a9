"""Meta-learn a pool from many data sets and save it as one that ships.

    python runners/make_pool.py pools/general --out openprompt_meta/pools/general --figures figures.json
    python runners/make_pool.py pools/general "dataset.mixture=[demo, liu54]" --out build/pools/small

The run can be interrupted and goes on where it was. What is saved is a classifier that is not fitted yet, with the
settings that serve whoever fits it: the model in float32, a head that chooses by itself.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import logging
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import torch

from openprompt_meta.cli import exit_code_of

Figures: TypeAlias = "Mapping[str, Mapping[str, Mapping[str, list[float]]]]"
"""Accuracies of tasks by data set, row and column."""

if TYPE_CHECKING:
    from openprompt_meta.classifier.pretrained import MetaLearned
    from openprompt_meta.data.dataset import TextDataset

_CARD = Path(__file__).with_name("pool_card.md")


def main(arguments: Sequence[str] | None = None) -> int:
    """Train, then save; 2 and one message if something is refused."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("yaml", metavar="YAML", help="a run whose pool is to ship, e.g. pools/general")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="as for openprompt-meta train")
    parser.add_argument("--out", required=True, metavar="DIR", help="where the pool goes")
    parser.add_argument("--figures", metavar="FILE", help="what measure_pool.py --leave-out wrote, for the card")
    options = parser.parse_args(arguments)
    return exit_code_of("make_pool", lambda: make(options))


def make(options: argparse.Namespace) -> int:
    """Train or resume the run, and save its pool."""
    from openprompt_meta.config.loading import find_yaml, load_config
    from openprompt_meta.runs.process import StopRequest, log_to_screen
    from openprompt_meta.runs.run import Run

    config = load_config(find_yaml(options.yaml), options.overrides)
    folder = config.run.folder or Path("runs") / config.dataset.name / Path(options.yaml).stem
    with log_to_screen(logging.INFO), StopRequest() as stop:
        run = Run(config, folder)
        if run.train(stop) is None:
            print(run.how_to_go_on(), file=sys.stderr)
            return stop.exit_code
    save(Path(folder), Path(options.out), options.figures)
    print(f"The pool is in {options.out}.")
    return 0


def save(run: Path, out: Path, figures: str | None = None) -> None:
    """Write the best pool of a finished run, the hashes of what it was made from, and its card."""
    from openprompt_meta.classifier.artefact import Stored, write_artefact
    from openprompt_meta.classifier.pretrained import Changes, of_run, serving
    from openprompt_meta.data.loading import open_dataset
    from openprompt_meta.files import write_atomic
    from openprompt_meta.pools import MADE_FROM
    from openprompt_meta.runs.run import load_run_config
    from openprompt_meta.tensor_files import write_tensors

    config = load_run_config(run)
    meta = serving(of_run(run, None, Changes()))
    (out / MADE_FROM).unlink(missing_ok=True)  # or the folder holds what is not a classifier's
    write_artefact(out, Stored(meta, None, {}))
    dataset = open_dataset(config.dataset)
    # All that is held out, not only what of it was looked at.
    whole = open_dataset(config.dataset.model_copy(update={"max_samples": None, "drop": []}))
    hashes = {"train": text_hashes(dataset.train.texts), "test": text_hashes(whole.test.texts)}
    classes = {name: sorted(dataset[name].classes) for name in dataset.splits}
    metadata = {f"classes of {name}": "\n".join(listed) for name, listed in classes.items()}
    write_tensors(out / MADE_FROM, hashes, metadata)
    measured = {} if figures is None else json.loads(Path(figures).read_text("utf-8"))
    write_atomic(out / "README.md", card(meta, dataset, measured))


def card(
    meta: MetaLearned, dataset: TextDataset, figures: Mapping[str, Mapping[str, Mapping[str, list[float]]]]
) -> str:
    """What people should know of the pool, in Markdown.

    Args:
        meta: the pool.
        dataset: what it was made from.
        figures: of pools that were made without the data set.
    """
    from openprompt_meta.runs.evaluation import summarise_tasks

    config = meta.config
    rows = [
        f"| {name} | {len(classes)} | {sum(len(dataset.train.indices[each]) for each in classes)} |"
        for name, classes in zip(dataset.name.split("+"), dataset.train.domains, strict=True)
    ]
    pages = [
        _CARD.read_text("utf-8").format(
            model=config.plm.model_path,
            length=config.prompt_pool_template.prompt_length,
            strength=config.prompt_pool_template.prefix_strength,
            rows="\n".join(rows),
            ways=" to ".join(map(str, config.meta.train_ways)),
            shots=" to ".join(map(str, config.meta.train_shots)),
            share=f"{config.meta.train_names:.0%}",
            iterations=config.meta.iterations,
            best=meta.origin["iteration"],
            accuracy=f"{100 * meta.origin['validation_accuracy']:.1f}",
            weight=f"{config.verbalizer_section.model_dump()['name_weight']:.2f}",
            temperature=f"{config.verbalizer_section.model_dump()['temperature']:.1f}",
        )
    ]
    for name, found in figures.items():
        titles = list(dict.fromkeys(title for row in found.values() for title in row))
        pages.append(f"\n{name}:\n\n| | {' | '.join(titles)} |\n|---{'|---' * len(titles)}|")
        for row, columns in found.items():
            cells = [str(summarise_tasks(columns[title])) if title in columns else "" for title in titles]
            pages.append(f"| {row} | {' | '.join(cells)} |")
    return "\n".join(pages) + "\n"


def text_hashes(texts: Iterable[str]) -> torch.Tensor:
    """Forty bits of each text's hash, ascending, in an int64: enough to find one text among a million."""
    own = {int.from_bytes(hashlib.blake2b(text.encode(), digest_size=5).digest(), "big") for text in texts}
    return torch.tensor(sorted(own), dtype=torch.int64)


if __name__ == "__main__":
    sys.exit(main())
