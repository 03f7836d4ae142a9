"""3b. Prediction from the raw text on, against the bare encoder's forward pass over the same texts."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import torch

from bench.timing import alternate
from bench.workload import Workload, dataset_of, language_model
from openprompt_meta.methods.engine import build_texts
from openprompt_meta.model import EncodedTexts, PlainTexts
from openprompt_meta.model.query_vectors import query_vectors
from openprompt_meta.model.wrapping import wrap_texts

__all__ = ["measure"]

_BATCH = 32
_TEXTS = {"short": 512, "long": 256}


def measure(work: Workload, rounds: int, texts: int | None = None) -> dict[str, Any]:
    """Texts a second as shares of the bare encoder's, and what explains them: tokens read, and where the time goes.

    Prediction passes each text twice, once for its query vector and once with its prompt; a text that was seen before
    has its query vector on disk. The bare encoder is given its texts in the order they come, in batches of 32 padded
    to their longest, and once more sorted by length. It reads neither the template's words nor prompts.
    """
    texts = texts or _TEXTS[work.kind]
    own = dataset_of(work.kind).test.texts
    lines = [own[i % len(own)] for i in range(texts)]
    by_length = sorted(lines, key=len)
    predictor, bare = _Predictor(work), _BareEncoder(work)
    rows = predictor.wrap(lines)
    with TemporaryDirectory() as folder, patch.dict(os.environ, {"OPENPROMPT_META_CACHE": folder}):
        encoded = predictor.encode(lines)
        times = alternate(
            {
                "prediction": lambda: predictor.predict(predictor.encode(lines)),
                "prediction, seen before": lambda: predictor.predict(predictor.encode(lines, cached=True)),
                "bare encoder": lambda: bare.run(lines),
                "bare encoder, sorted": lambda: bare.run(by_length),
                "tokens": lambda: predictor.wrap(lines),
                "query vectors": lambda: query_vectors(rows, predictor.template.query_function),
                "reading with prompts": lambda: predictor.predict(encoded),
            },
            rounds,
        )
    stages = ("tokens", "query vectors", "reading with prompts")
    tokens = {
        "query vectors": int(rows.without("soft_token_ids").lengths.sum()),
        "reading with prompts": int(rows.lengths.sum()),
        "bare encoder": bare.slots(lines),
        "bare encoder, sorted": bare.slots(by_length),
    }
    shares = {
        f"{name}, of the {encoder}": times.ratio(encoder, name)
        for name in ("prediction", "prediction, seen before")
        for encoder in ("bare encoder", "bare encoder, sorted")
    }
    both = tokens["query vectors"] + tokens["reading with prompts"]
    return {
        "setting": str(work),
        "texts/s": {name: texts / seconds for name, seconds in times.best.items() if name not in stages},
        "shares": shares,
        "tokens a text": {name: count / texts for name, count in tokens.items()},
        "tokens a second, of the bare encoder, sorted": shares["prediction, of the bare encoder, sorted"]
        * (both / tokens["bare encoder, sorted"]),
        "breakdown": {name: times.best[name] / sum(times.best[stage] for stage in stages) for name in stages},
    }


class _Predictor:
    """A pool and a verbalizer that was fitted to a task, in steps that can be timed one by one."""

    def __init__(self, work: Workload) -> None:
        self._loaded, self._config = language_model(work.model, work.precision), work.config("fast")
        method = work.method("fast")
        self._classifier, self.template = method.classifier, method.classifier.template
        opened = method.learner.base_learner.open([method.sources["test"][0]])
        with torch.no_grad():
            opened.query_log_probabilities([self.template.pool], 0)  # fits the verbalizer
        self._verbalizer = opened.verbalizers[0]

    def wrap(self, lines: Sequence[str]) -> Any:
        budget = self._config.dataset.max_seq_length
        wrapper = self._loaded.wrapper(tokenizer=self._loaded.tokenizer, max_seq_length=budget)
        return wrap_texts(lines, self.template, wrapper)

    def encode(self, lines: Sequence[str], cached: bool = False) -> EncodedTexts | PlainTexts:
        config = replace(self._config, run=replace(self._config.run, cache=cached))
        return build_texts(config, self._loaded, lines, self.template)

    @torch.no_grad()
    def predict(self, encoded: EncodedTexts | PlainTexts) -> None:
        reading = self._classifier.read_mask(encoded.batch(range(len(encoded))))
        self._verbalizer.log_probabilities(*reading)


class _BareEncoder:
    """The language model's encoder as transformers runs it."""

    def __init__(self, work: Workload) -> None:
        loaded = language_model(work.model, work.precision)
        self._encoder = loaded.model.base_model
        self._tokenize = partial(
            loaded.tokenizer, padding=True, truncation=True, max_length=work.budget, return_tensors="pt"
        )

    @torch.no_grad()
    def run(self, lines: Sequence[str]) -> None:
        for batch in _batches(lines):
            self._encoder(**self._tokenize(batch))

    def slots(self, lines: Sequence[str]) -> int:
        """Tokens that the encoder runs on, padding and all."""
        return sum(self._tokenize(batch)["input_ids"].numel() for batch in _batches(lines))


def _batches(lines: Sequence[str]) -> list[list[str]]:
    return [list(lines[start : start + _BATCH]) for start in range(0, len(lines), _BATCH)]
