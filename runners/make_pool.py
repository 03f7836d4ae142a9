"""Meta-learn a pool from many data sets and save it as one that ships.

    python runners/make_pool.py pools/general --out openprompt_meta/pools/general
    python runners/make_pool.py pools/general "dataset.mixture=[demo, liu54]" --out build/pools/small

The run can be interrupted and goes on where it was. What is saved is a classifier that is not fitted yet, with the
settings that serve whoever fits it: the model in float32, a head that chooses by itself.
"""

from __future__ import annotations

import argparse
import hashlib
import logging
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import torch

from openprompt_meta.cli import exit_code_of

SERVING = {"plm.precision": "float32", "verbalizer": "adaptive_verbalizer"}
"""What a pool is used with, in place of what it was learned with."""
MADE_FROM = "made_from.safetensors"


def main(arguments: Sequence[str] | None = None) -> int:
    """Train, then save; 2 and one message if something is refused."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("yaml", metavar="YAML", help="a run whose pool is to ship, e.g. pools/general")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="as for openprompt-meta train")
    parser.add_argument("--out", required=True, metavar="DIR", help="where the pool goes")
    options = parser.parse_args(arguments)
    return exit_code_of("make_pool", lambda: make(options.yaml, options.overrides, Path(options.out)))


def make(yaml: str, overrides: Sequence[str], out: Path) -> int:
    """Train or resume the run, and save its pool."""
    from openprompt_meta.config.loading import find_yaml, load_config
    from openprompt_meta.runs.process import StopRequest, log_to_screen
    from openprompt_meta.runs.run import Run

    config = load_config(find_yaml(yaml), overrides)
    folder = config.run.folder or Path("runs") / config.dataset.name / Path(yaml).stem
    with log_to_screen(logging.INFO), StopRequest() as stop:
        run = Run(config, folder)
        if run.train(stop) is None:
            print(run.how_to_go_on(), file=sys.stderr)
            return stop.exit_code
    save(Path(folder), out)
    print(f"The pool is in {out}.")
    return 0


def save(run: Path, out: Path) -> None:
    """Write the best pool of a finished run, and the hashes of what it was made from."""
    from openprompt_meta.classifier.artefact import Stored, write_artefact
    from openprompt_meta.classifier.pretrained import Changes, of_run, serving
    from openprompt_meta.data.loading import open_dataset
    from openprompt_meta.runs.run import load_run_config
    from openprompt_meta.tensor_files import write_tensors

    config = load_run_config(run)
    meta = serving(of_run(run, None, Changes()), SERVING)
    (out / MADE_FROM).unlink(missing_ok=True)  # or the folder holds what is not a classifier's
    write_artefact(out, Stored(meta, None, {}))
    dataset = open_dataset(config.dataset)
    # All that is held out, not only what of it was looked at.
    whole = open_dataset(config.dataset.model_copy(update={"max_samples": None, "drop": []}))
    hashes = {"train": text_hashes(dataset.train.texts), "test": text_hashes(whole.test.texts)}
    classes = {name: sorted(dataset[name].classes) for name in dataset.splits}
    metadata = {f"classes of {name}": "\n".join(listed) for name, listed in classes.items()}
    write_tensors(out / MADE_FROM, hashes, metadata)


def text_hashes(texts: Iterable[str]) -> torch.Tensor:
    """Forty bits of each text's hash, ascending, in an int64: enough to find one text among a million."""
    own = {int.from_bytes(hashlib.blake2b(text.encode(), digest_size=5).digest(), "big") for text in texts}
    return torch.tensor(sorted(own), dtype=torch.int64)


if __name__ == "__main__":
    sys.exit(main())
