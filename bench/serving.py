"""3. A new task: adapting to 25 examples by 15 steps, and predicting against the bare encoder on the same texts."""

from __future__ import annotations

import os
from dataclasses import replace
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import torch

from bench.timing import alternate
from bench.workload import Workload, dataset_of, language_model
from openprompt_meta.config import RunConfig
from openprompt_meta.learners import Task
from openprompt_meta.methods.engine import build_texts

__all__ = ["adaptation", "prediction"]

_STEPS = 15
_BATCH = 32


def adaptation(work: Workload, rounds: int) -> dict[str, Any]:
    """Seconds to adapt to one task and to judge a single text with it."""
    tight = replace(work, budget=work.needed_budget)
    methods = {"fast": work.method("fast"), "plain": tight.method("plain")}
    ways = {}
    for name, method in methods.items():
        task = method.sources["test"][0]
        one = {key: value[:1] for key, value in task.query.items()}
        small = Task(0, task.classes, task.label_words, task.support, one)
        ways[name] = lambda m=method, t=small: m.learner.judge(t, _STEPS)
    times = alternate(ways, rounds)
    return {"setting": str(work), "seconds": dict(times.best), "ratio": times.ratio("plain", "fast")}


def prediction(work: Workload, rounds: int, texts: int = 512) -> dict[str, Any]:
    """Texts a second: prediction from the raw text on, against the encoder's own forward pass over the same texts.

    Prediction passes each text twice, once for its query vector and once with its prompt; a text that was seen before
    has its query vector on disk. The bare encoder is given its texts in the order they come, in batches of 32 padded
    to their longest, and once more sorted by length.
    """
    loaded, config = language_model(work.model, work.precision), work.config("fast")
    caching = replace(config, run=replace(config.run, cache=True))
    method = work.method("fast")
    learner, task = method.learner, method.sources["test"][0]
    opened = learner.base_learner.open([task])
    lines = (dataset_of(work.kind).test.texts * (texts // len(dataset_of(work.kind).test) + 1))[:texts]

    @torch.no_grad()
    def predict(config: RunConfig) -> None:
        encoded = build_texts(config, loaded, lines, method.classifier.template)
        lengths = [len(line) for line in lines]
        order = sorted(range(texts), key=lengths.__getitem__)
        for start in range(0, texts, 4 * _BATCH):
            batch = encoded.batch(order[start : start + 4 * _BATCH])
            reading = method.classifier.read_mask(batch)
            opened.verbalizers[0].log_probabilities(*reading)

    @torch.no_grad()
    def bare(in_order: list[str]) -> None:
        for start in range(0, texts, _BATCH):
            inputs = loaded.tokenizer(
                in_order[start : start + _BATCH],
                padding=True,
                truncation=True,
                max_length=work.budget,
                return_tensors="pt",
            )
            loaded.model.base_model(**inputs)

    with torch.no_grad():
        opened.query_log_probabilities([method.classifier.template.pool], 0)  # fits the verbalizer
    with TemporaryDirectory() as folder, patch.dict(os.environ, {"OPENPROMPT_META_CACHE": folder}):
        times = alternate(
            {
                "prediction": lambda: predict(config),
                "prediction, seen before": lambda: predict(caching),
                "bare encoder": lambda: bare(list(lines)),
                "bare encoder, sorted": lambda: bare(sorted(lines, key=len)),
            },
            rounds,
        )
    return {
        "setting": str(work),
        "texts/s": {name: texts / seconds for name, seconds in times.best.items()},
        "of the bare encoder": times.ratio("bare encoder", "prediction"),
        "of the bare encoder, sorted": times.ratio("bare encoder, sorted", "prediction"),
        "seen before, of the bare encoder": times.ratio("bare encoder", "prediction, seen before"),
        "seen before, of the bare encoder, sorted": times.ratio("bare encoder, sorted", "prediction, seen before"),
    }
