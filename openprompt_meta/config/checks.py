"""What single keys cannot tell: values that are each fine and do not go together."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Set
from dataclasses import dataclass
from pathlib import Path

from openprompt_meta.config.schema import VERBALIZER_METHODS, ProtoVerbalizerSection, RunConfig
from openprompt_meta.config.template_text import check_pieces, parse_template_text
from openprompt_meta.errors import TemplateError, did_you_mean

__all__ = ["KNOWN_DATASETS", "Problem", "cross_check", "notes"]

KNOWN_DATASETS = ("20news", "amazon", "huffpost", "reuters", "hwu64", "liu54")
"""The six of the paper, which are looked for in ``data/`` by themselves."""
_DEVICES = ("auto", "cpu", "cuda", "mps")


@dataclass(frozen=True)
class Problem:
    """A sentence about the key at ``path``; ``place`` is given where the path alone does not say how it is nested."""

    path: str
    text: str
    place: tuple[str, ...] = ()


Check = Callable[[RunConfig], Iterator[Problem]]
_CHECKS: list[tuple[tuple[str, ...], Check]] = []


def cross_check(config: RunConfig, failed: Set[str] = frozenset()) -> list[Problem]:
    """All problems between keys, leaving out checks of keys that already ``failed`` by themselves."""
    problems: list[Problem] = []
    for keys, check in _CHECKS:
        involved = {*keys, *(key.partition(".")[0] for key in keys)}
        if not involved & failed:
            problems += check(config)
    return problems


def notes(config: RunConfig) -> list[str]:
    """Remarks on a configuration that runs, but perhaps not as it was meant."""
    found = []
    if config.dataset.split_counts is not None and config.dataset.splits != "random":
        found.append("dataset.split_counts has no effect without dataset.splits: random.")
    if config.meta.min_gain > 0 and config.meta.patience is None:
        found.append("meta.min_gain has no effect without meta.patience.")
    if config.meta.learner == "reptile" and not config.meta.first_order:
        found.append(
            "meta.first_order: false has no effect with meta.learner: reptile, which has no second derivatives."
        )
    if config.meta.validate_every > config.meta.iterations:
        found.append(
            f"meta.validate_every = {config.meta.validate_every} is above meta.iterations = "
            f"{config.meta.iterations}: there is no validation on the way."
        )
    return found


def _checks(*keys: str) -> Callable[[Check], Check]:
    """Register a check of ``keys``."""

    def register(check: Check) -> Check:
        _CHECKS.append((keys, check))
        return check

    return register


@_checks(
    "method",
    "plm.model_path",
    "verbalizer",
    "rep_verbalizer.mix_lambda",
    "warp_verbalizer.mix_lambda",
    "dart_verbalizer.mix_lambda",
    "proto_verbalizer.mix_lambda",
    "proto_verbalizer.multi_verb",
)
def _vocabulary_head(config: RunConfig) -> Iterator[Problem]:
    if config.method not in VERBALIZER_METHODS:
        return
    section = getattr(config, config.verbalizer)
    proto = isinstance(section, ProtoVerbalizerSection)
    mixes = getattr(section, "mix_lambda", 1.0) < 1.0
    joins = proto and section.multi_verb == "multi"
    if proto and mixes and joins:
        yield Problem(
            "proto_verbalizer.multi_verb",
            "multi and a mix_lambda below 1 are two ways to bring in hand-crafted words; choose one.",
        )
    if config.plm.model_path != "minilm":
        return
    lacking = (
        "needs a model with a vocabulary head, and plm.model_path: minilm has none. minilm-mlm has one, and so have "
        "masked language models such as bert-base-uncased, roberta-base or microsoft/mpnet-base"
    )
    if config.verbalizer == "manual_verbalizer":
        yield Problem("verbalizer", f"manual_verbalizer {lacking}; or use rep_verbalizer.")
    if mixes:
        text = f"{section.mix_lambda:g} {lacking}; or set {config.verbalizer}.mix_lambda: 1."
        yield Problem(f"{config.verbalizer}.mix_lambda", text)
    if joins:
        yield Problem("proto_verbalizer.multi_verb", f"multi {lacking}; or set multi_verb: proto.")


@_checks("prompt_pool_template.text")
def _template_text(config: RunConfig) -> Iterator[Problem]:
    try:
        check_pieces(parse_template_text(config.prompt_pool_template.text))
    except TemplateError as error:
        yield Problem("prompt_pool_template.text", str(error))


@_checks("prompt_pool_template.top_n", "prompt_pool_template.num_prompts")
def _top_n(config: RunConfig) -> Iterator[Problem]:
    template = config.prompt_pool_template
    if template.top_n is not None and template.top_n > template.num_prompts:
        yield Problem(
            "prompt_pool_template.top_n",
            f"got {template.top_n}, expected at most num_prompts = {template.num_prompts}. "
            "Leave it out to attend to every prompt.",
        )


@_checks("prompt_pool_template.prompt_length", "dataset.max_seq_length")
def _room_for_the_text(config: RunConfig) -> Iterator[Problem]:
    length, budget = config.prompt_pool_template.prompt_length, config.dataset.max_seq_length
    # [CLS], [SEP], [MASK] and one token of text at the very least; the template itself counts its words when built.
    if length + 4 > budget:
        yield Problem(
            "prompt_pool_template.prompt_length",
            f"got {length}, which leaves no room for a text within dataset.max_seq_length = {budget}.",
        )


@_checks("dataset.name", "dataset.path", "dataset.format")
def _where_the_data_is(config: RunConfig) -> Iterator[Problem]:
    dataset = config.dataset
    if not dataset.name.strip() or Path(dataset.name).is_absolute() or ".." in Path(dataset.name).parts:
        # It names the run's folder too, which must not end up somewhere else.
        yield Problem("dataset.name", f"got {dataset.name!r:.80}, expected a name. A path belongs in dataset.path.")
        return
    if dataset.name == "demo" and dataset.path is not None:
        yield Problem(
            "dataset.name",
            f"is demo, which ships with the package, but dataset.path = {dataset.path!r} is given too. "
            "Name your data set, or leave out the path.",
        )
    known = ("demo", *KNOWN_DATASETS)
    if dataset.path is None and dataset.name not in known and dataset.format != "huggingface":
        yield Problem(
            "dataset.path",
            f"is needed for dataset.name = {dataset.name!r}: a folder or a file. Without a path there are "
            f"{', '.join(known)}, and any name with dataset.format: huggingface.{did_you_mean(dataset.name, known)}",
        )


@_checks("dataset.splits", "dataset.split_counts", "meta.way")
def _random_splits(config: RunConfig) -> Iterator[Problem]:
    counts = config.dataset.split_counts
    if config.dataset.splits != "random":
        return
    if counts is None:
        yield Problem(
            "dataset.split_counts",
            "is needed for dataset.splits: random: how many classes for training, validation and test, "
            "as in [20, 8, 8].",
        )
    elif len(counts) != 3 or min(counts) < config.meta.way:
        yield Problem(
            "dataset.split_counts",
            f"got {counts}, expected three numbers, for training, validation and test, each at least "
            f"meta.way = {config.meta.way}.",
        )


@_checks("meta.first_order", "plm.attn_implementation")
def _second_order(config: RunConfig) -> Iterator[Problem]:
    if not config.meta.first_order and config.plm.attn_implementation == "sdpa":
        yield Problem(
            "plm.attn_implementation",
            "sdpa has no second derivatives, which meta.first_order: false needs. Use eager, or leave it out.",
        )


@_checks("method", "metaprompting.tune_model", "meta.first_order", "plm.precision", "run.device")
def _tuned_model(config: RunConfig) -> Iterator[Problem]:
    if not config.tunes_the_model:
        return
    if config.plm.precision == "float16":
        yield Problem(
            "plm.precision",
            f"got float16, but method: {config.method} tunes the language model, and float16 loses small gradients. "
            "Use bfloat16, auto or float32.",
        )
    if config.plm.precision == "bfloat16" and config.run.device == "mps":
        yield Problem(
            "plm.precision",
            f"got bfloat16, but method: {config.method} tunes the language model, which is done in float32 on mps. "
            "Use float32.",
        )
    if config.method == "metaprompting" and not config.meta.first_order:
        yield Problem(
            "meta.first_order",
            "second derivatives through the whole language model would need a copy of it for every inner step. Leave "
            "it true, or set metaprompting.tune_model: false.",
        )


@_checks("method", "meta.inner_parameters")
def _inner_parameters(config: RunConfig) -> Iterator[Problem]:
    if config.meta.inner_parameters != "all" and config.method == "metaprompting":
        yield Problem(
            "meta.inner_parameters",
            f"got {config.meta.inner_parameters}, which is for the pool of method: metaprompter; a single prompt has "
            "no keys to choose by. Leave it out.",
        )


@_checks("run.seeds")
def _seeds(config: RunConfig) -> Iterator[Problem]:
    seeds = config.run.seeds
    if not seeds or len(set(seeds)) < len(seeds):
        yield Problem("run.seeds", f"got {seeds}, expected at least one seed and none of them twice.")


@_checks("run.device")
def _device(config: RunConfig) -> Iterator[Problem]:
    device = config.run.device
    if device not in _DEVICES and not re.fullmatch(r"cuda:\d{1,3}", device):
        yield Problem(
            "run.device", f"got {device!r}, expected auto, cpu, cuda, cuda:1 or mps.{did_you_mean(device, _DEVICES)}"
        )
