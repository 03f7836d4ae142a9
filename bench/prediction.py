"""3b. Prediction from the raw text on, against the bare encoder's forward pass over the same texts."""

from __future__ import annotations

import os
from collections.abc import Sequence
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import torch

from bench.bare_encoder import BareEncoder, as_they_come, by_length
from bench.timing import alternate
from bench.workload import Workload, dataset_of, language_model
from openprompt_meta.encoder.queries import query_vectors
from openprompt_meta.encoder.texts import OpenPromptTexts, TokenizedTexts
from openprompt_meta.encoder.wrapping import TokenRows, wrap_texts
from openprompt_meta.methods.language_model import build_texts

_TEXTS = {"short": 512, "long": 256}
_STAGES = ("tokens", "query vectors", "reading with prompts")


def measure(work: Workload, rounds: int, texts: int | None = None) -> dict[str, Any]:
    """Texts a second as shares of the bare encoder's, and what explains them: tokens read, and where the time goes.

    Prediction passes each text twice, once for its query vector and once with its prompt; a text that was seen before
    has its query vector on disk (to find it there, the model's weights and the texts' tokens are hashed). The bare
    encoder reads its texts in the order they come and once more by length.
    """
    own = dataset_of(work.kind).test.texts
    lines = [own[i % len(own)] for i in range(texts or _TEXTS[work.kind])]
    predictor = _Predictor(work)
    bare = BareEncoder(language_model(work.model, work.precision), work.budget)
    rows = predictor.wrap(lines)
    with TemporaryDirectory() as folder, patch.dict(os.environ, {"OPENPROMPT_META_CACHE": folder}):
        ready = predictor.encode(lines, cached=True)
        predictor.predict(ready)  # fills the cache
        times = alternate(
            {
                "prediction": lambda: predictor.predict(predictor.encode(lines)),
                "prediction, seen before": lambda: predictor.predict(predictor.encode(lines, cached=True)),
                "bare encoder": lambda: bare.read(lines, as_they_come),
                "bare encoder, by length": lambda: bare.read(lines, by_length),
                "tokens": lambda: predictor.wrap(lines),
                "query vectors": lambda: query_vectors(rows, predictor.template.query_function),
                "reading with prompts": lambda: predictor.predict(ready),
            },
            rounds,
        )
    tokens = {
        "query vectors": int(rows.without("soft_token_ids").lengths.sum()),
        "reading with prompts": int(rows.lengths.sum()),
        "bare encoder": bare.read(lines, as_they_come),
        "bare encoder, by length": bare.read(lines, by_length),
    }
    whole = times.best["prediction"]
    breakdown = {stage: times.best[stage] / whole for stage in _STAGES}
    return {
        "setting": str(work),
        "texts/s": {name: len(lines) / seconds for name, seconds in times.best.items() if name not in _STAGES},
        "shares": {
            f"{name}, of the {encoder}": times.ratio(encoder, name)
            for name in ("prediction", "prediction, seen before")
            for encoder in ("bare encoder", "bare encoder, by length")
        },
        "tokens a text, padding and all": {name: count / len(lines) for name, count in tokens.items()},
        "breakdown": {**breakdown, "everything else": max(0.0, 1 - sum(breakdown.values()))},
    }


class _Predictor:
    """A pool and a verbalizer that was fitted to a task, in steps that can be timed one by one."""

    def __init__(self, work: Workload) -> None:
        self._loaded, self._config = language_model(work.model, work.precision), work.config("fast")
        method = work.method("fast")
        self._classifier, self.template = method.classifier, method.classifier.template
        opened = method.learner.inner_loop.open([method.sources["test"][0]])
        with torch.no_grad():
            opened.query_log_probabilities([self.template.pool], 0)  # fits the verbalizer
        self._verbalizer = opened.verbalizers[0]

    def wrap(self, lines: Sequence[str]) -> TokenRows:
        budget = self._config.dataset.max_seq_length
        wrapper = self._loaded.wrapper(tokenizer=self._loaded.tokenizer, max_seq_length=budget)
        return wrap_texts(lines, self.template, wrapper)

    def encode(self, lines: Sequence[str], cached: bool = False) -> TokenizedTexts | OpenPromptTexts:
        config = self._config.with_values({"run.cache": cached})
        return build_texts(config, self._loaded, lines, self.template)

    @torch.no_grad()
    def predict(self, encoded: TokenizedTexts | OpenPromptTexts) -> None:
        """With ``encoded`` used for the first time, this is what tokenises it and asks for query vectors."""
        reading = self._classifier.read(encoded.batch(range(len(encoded))))
        self._verbalizer.log_probabilities(*reading)
