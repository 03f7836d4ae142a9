"""Models and texts to measure with: a real encoder or one of BERT's size, texts as long as intents or as news."""

from __future__ import annotations

import random
import tempfile
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
import transformers

from openprompt_meta.config.schema import RunConfig
from openprompt_meta.config.validation import config_from_mapping
from openprompt_meta.data.dataset import Split, TextDataset
from openprompt_meta.encoder.loading import LoadedMLM, load_mlm, load_tokenizer
from openprompt_meta.encoder.wrapping import wrap_texts
from openprompt_meta.learners.task import Task
from openprompt_meta.methods.metaprompter import MetaPrompter, build_metaprompter

# Words a text: mean, deviation and bounds. Intents as in HWU64, news as in Reuters, of which many are short.
KINDS = {"short": (7.0, 3.0, 2, 25), "long": (160.0, 100.0, 15, 400)}
PACKAGED = ("minilm", "minilm-mlm")
_CLASSES = 20
_EACH = 40
MOST_SHOTS = _EACH - 15  # the rest are queries
_BUDGET = 220


def _lengths(kind: str) -> tuple[float, float, int, int]:
    """Of a kind by name, or of texts that are all as long as e.g. ``80 words`` says."""
    if kind in KINDS:
        return KINDS[kind]
    words = int(kind.removesuffix(" words"))
    return words, 0.0, words, words


@lru_cache
def _words() -> list[str]:
    vocabulary: dict[str, int] = load_tokenizer("minilm").get_vocab()
    return sorted(word for word in vocabulary if word.isalpha() and word.islower() and len(word) > 2)


def made_up_texts(kind: str, number: int, seed: int = 0) -> list[str]:
    """Texts of ``kind``: what they say does not matter, how long they are does."""
    draws = random.Random(seed)  # noqa: S311 - lengths, not secrets
    mean, deviation, fewest, most = _lengths(kind)
    lengths = (round(min(most, max(fewest, draws.gauss(mean, deviation)))) for _ in range(number))
    return [" ".join(draws.choices(_words(), k=length)) for length in lengths]


@lru_cache
def dataset_of(kind: str) -> TextDataset:
    """Made-up texts of ``kind`` in made-up classes."""
    classes = tuple(f"class {number}" for number in range(_CLASSES))
    labels = tuple(name for name in classes for _ in range(_EACH))
    texts = made_up_texts(kind, 3 * len(labels))
    splits = {
        name: Split(name, tuple(texts[i * len(labels) : (i + 1) * len(labels)]), labels, classes)
        for i, name in enumerate(("train", "valid", "test"))
    }
    return TextDataset(kind, splits, {name: (_words()[17 * i],) for i, name in enumerate(classes)})


@lru_cache(maxsize=1)
def language_model(name: str, precision: str) -> LoadedMLM:
    """``minilm``, ``minilm-mlm``, or a model of BERT's size with random weights and the same vocabulary; frozen."""
    if name in PACKAGED:
        loaded = load_mlm(name, "eager" if precision == "bfloat16" else None)
    else:
        with tempfile.TemporaryDirectory() as folder:
            torch.manual_seed(0)
            load_mlm("minilm").tokenizer.save_pretrained(folder)
            transformers.BertForMaskedLM(transformers.BertConfig()).save_pretrained(folder)
            loaded = load_mlm(folder, "eager" if precision == "bfloat16" else None)
    loaded.model.requires_grad_(False)
    loaded.model.to(getattr(torch, precision))
    return loaded


@dataclass(frozen=True)
class Workload:
    """One setting, by both engines."""

    model: str = "minilm-mlm"
    kind: str = "short"
    shot: int = 5
    precision: str = "float32"
    inner_steps: int = 5
    way: int = 5
    num_prompts: int = 8
    meta_batch: int = 1
    budget: int = _BUDGET
    query: int = 15

    def config(self, engine: str) -> RunConfig:
        """As a run's configuration."""
        return config_from_mapping(
            {
                "prompt_pool_template": {
                    "text": '{"placeholder": "text_a"} {"pool"} Topic is {"mask"}.',
                    "num_prompts": self.num_prompts,
                },
                "dataset": {"max_seq_length": self.budget},
                "meta": {
                    "way": self.way,
                    "shot": self.shot,
                    "query": self.query,
                    "inner_steps": self.inner_steps,
                    "meta_batch": self.meta_batch,
                },
                "run": {"engine": engine, "cache": False},
            }
        )

    def method(self, engine: str) -> MetaPrompter:
        """Ready to learn. With a vocabulary head hand-crafted words have their half of the say, as in the paper."""
        config: Any = self.config(engine)
        loaded = language_model(self.model, self.precision)
        if self.model != "minilm":
            config = config.with_values({"rep_verbalizer.mix_lambda": 0.5})
        return build_metaprompter(config, loaded, dataset_of(self.kind), seed=0)

    def tasks(self, method: MetaPrompter, first: int = 0) -> list[Task]:
        """A meta-batch."""
        return [method.sources["train"][first + i] for i in range(self.meta_batch)]

    @property
    def needed_budget(self) -> int:
        """The shortest length budget that cuts no more than this one does."""
        loaded = language_model(self.model, self.precision)
        wrapper = loaded.wrapper(tokenizer=loaded.tokenizer, max_seq_length=self.budget)
        rows = wrap_texts(dataset_of(self.kind).train.texts, self.method("fast").classifier.template, wrapper)
        return int(rows.lengths.max())

    def __str__(self) -> str:
        return f"{self.model}, {self.kind} texts, {self.shot}-shot"


def results_folder() -> Path:
    """Where tables, JSON and figures go unless told otherwise."""
    return Path("bench") / "results"
