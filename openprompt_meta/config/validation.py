"""A mapping, as YAML gives it, to a :class:`RunConfig`, or to one error that lists everything wrong with it."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from openprompt_meta.components import meta_learners, readers, verbalizers
from openprompt_meta.config.schema import (
    KNOWN_DATASETS,
    DatasetSection,
    RunConfig,
    component_sections,
    describe,
    key_at,
    lacks_vocabulary_head,
    section_keys,
    section_types,
)
from openprompt_meta.config.template_text import check_pieces, has_soft_tokens, parse_template_text
from openprompt_meta.errors import ConfigError, TemplateError, did_you_mean
from openprompt_meta.sections import Problem, Section, mismatch, show, type_of

KeyPath = tuple[str, ...]
Origins = Mapping[KeyPath, str]
S = TypeVar("S", bound=Section)

VERSION_KEY = "version"
FORMAT_VERSION = 1
"""Raised when a file of the new form would be misread by a package that knows the old one only. A file without a
version is of the present form: people write such files, and a run's own ``config.yaml`` has one."""
_CUTOFF = 0.6
_DEVICES = ("auto", "cpu", "cuda", "mps")
_SHOWN = 80


def config_from_mapping(mapping: Mapping[str, Any], *, source: str = "The configuration") -> RunConfig:
    """The configuration that ``mapping`` describes; what it leaves out has its default.

    Args:
        mapping: sections and keys, and perhaps ``version``. A section that is null is an empty one, as in a YAML whose
            keys are commented out.
        source: what the message calls the whole.

    Raises:
        ConfigError: with every problem, each under its dotted path.
    """
    check_version(mapping, source)
    own = {name: value for name, value in mapping.items() if name != VERSION_KEY}
    config, problems = read_mapping(own, {})
    if problems:
        raise config_error(source, problems)
    return config


def read_mapping(mapping: Mapping[str, Any], origins: Origins) -> tuple[RunConfig, list[str]]:
    """The configuration, with defaults where it is wrong, and a sentence for each problem.

    ``origins`` says where each key was read, ``("meta", "way")`` to ``base.yaml, line 3``.
    """
    verbalizer = _chosen_verbalizer(mapping)

    def meant(section: str, name: str) -> str:
        return what_was_meant(section, name, verbalizer)

    values: dict[str, Any] = {}
    top: dict[str, Any] = {}
    problems: list[Problem] = []
    for name, value in mapping.items():
        owner = section_types().get(name) if isinstance(name, str) else None
        if owner is None:
            top[name] = value
        elif value is None:
            continue
        elif isinstance(value, dict):
            values[name], found = read_section(owner, value, name, meant)
            problems += found
        else:
            text = f"got {show(value)}, expected a section with the keys {', '.join(section_keys(name))}."
            problems.append(Problem(name, text))
    config, found = read_section(RunConfig, {**top, **values}, "", meant)
    problems += found
    problems += cross_check(config, {problem.path for problem in problems})
    return config, [_sentence(problem, origins) for problem in problems]


def read_section(
    owner: type[S], mapping: Mapping[Any, Any], name: str, meant: Callable[[str, str], str]
) -> tuple[S, list[Problem]]:
    """A section, with defaults where it is wrong, and its problems.

    Args:
        owner: its class.
        mapping: its keys.
        name: what it is called; the empty string for the top level.
        meant: what to say after an unknown key, from the section and the key.
    """
    fields = owner.model_fields
    unknown = [key for key in mapping if not isinstance(key, str) or key not in fields]
    problems = [_unknown(name, key, meant) for key in unknown]
    values = {key: value for key, value in mapping.items() if isinstance(key, str) and key in fields}
    try:
        return owner.model_validate(values), problems
    except ValidationError as error:
        for key in dict.fromkeys(str(entry["loc"][0]) for entry in error.errors(include_url=False)):
            text = mismatch(values.pop(key), type_of(owner, key))
            problems.append(Problem(f"{name}.{key}" if name else key, text or str(error)))
    return owner.model_validate(values), problems


def check_version(content: Mapping[str, Any], where: str) -> None:
    """:class:`ConfigError` if ``content`` names a version that is not known here; ``where`` is for the message."""
    version = content.get(VERSION_KEY, FORMAT_VERSION)
    if type(version) is not int or version < 1:
        raise ConfigError(f"{where}: version is {show(version)}, expected {FORMAT_VERSION}.")
    if version > FORMAT_VERSION:
        raise ConfigError(
            f"{where}: the configuration is of version {show(version)}; this openprompt_meta reads versions up to "
            f"{FORMAT_VERSION}. It was written by a newer one: update openprompt_meta, or run it with that."
        )


def config_error(source: str, sentences: Sequence[str]) -> ConfigError:
    """One error for several problems, each on a line of its own."""
    count = "one problem" if len(sentences) == 1 else f"{len(sentences)} problems"
    return ConfigError("\n  ".join([f"{source} has {count}:", *sentences]))


def _unknown(section: str, key: object, meant: Callable[[str, str], str]) -> Problem:
    shown = str(key) if len(str(key)) <= _SHOWN else f"{str(key)[:_SHOWN]}…"
    place = (*filter(None, [section]), str(key))
    return Problem(f"{section}.{shown}" if section else shown, f"unknown key.{meant(section, str(key))}", place)


def _sentence(problem: Problem, origins: Origins) -> str:
    where = origins.get(problem.place or tuple(problem.path.split(".")))
    return f"{problem.path}: {problem.text}" + (f" ({where})" if where else "")


def _chosen_verbalizer(mapping: Mapping[str, Any]) -> str:
    chosen = mapping.get("verbalizer")
    default: str = RunConfig.model_fields["verbalizer"].default
    return chosen if isinstance(chosen, str) and chosen in verbalizers() else default


# -- the key that a user meant ----------------------------------------------------------------------------------------

FILE_KEYS = ("inherit", "preset")
"""Keys of a file that are used up while loading it."""
_OF_OPENPROMPT_ONLY: Mapping[str, str] = {
    "template": "There is one template; its settings stand in the section prompt_pool_template. Leave it out.",
    "plm.model_name": "Every masked language model is loaded the same way. Leave it out.",
}


def what_was_meant(section: str, name: str, verbalizer: str = "rep_verbalizer") -> str:
    """`` Did you mean 'meta.inner_lr'?``, or what is known here if nothing is near.

    Args:
        section: where the unknown key stands; the empty string for the top level.
        name: the unknown key.
        verbalizer: the chosen one; the sections of other components are not looked at.
    """
    known = _OF_OPENPROMPT_ONLY.get(f"{section}.{name}" if section else name)
    if known:
        return f" {known}"
    if not section and key_at(name) is not None:
        owner, _, own_name = name.rpartition(".")
        return f" Dotted keys are for the command line; in a file write {own_name} in the section {owner}."
    top = (*FILE_KEYS, *section_types()) if not section else ()
    here = {word: word for word in top} | {key.name: key.path for key in section_keys(section).values()}
    others = component_sections().keys() - {verbalizer}
    elsewhere = {key.name: key.path for key in describe() if key.section not in others}
    for options, cutoff in ((elsewhere, 1.0), (here, _CUTOFF), (elsewhere, _CUTOFF)):
        near = difflib.get_close_matches(name.rpartition(".")[2], list(options), n=1, cutoff=cutoff)
        if near:
            return f" Did you mean {options[near[0]]!r}?"
    return f" Known {'keys of ' + section if section else 'sections and keys'}: {', '.join(here)}."


# -- what single keys cannot tell: values that are each fine and do not go together -----------------------------------

_Check = Callable[[RunConfig], Iterator[Problem]]
_CHECKS: list[tuple[tuple[str, ...], _Check]] = []


def cross_check(config: RunConfig, failed: Set[str] = frozenset()) -> list[Problem]:
    """All problems between keys, leaving out checks of keys that already ``failed`` by themselves."""
    problems: list[Problem] = []
    for keys, check in _CHECKS:
        involved = {*keys, *(key.partition(".")[0] for key in keys)}
        if not involved & failed:
            problems += (problem for problem in check(config) if problem.path not in failed)
    return problems


def notes(config: RunConfig) -> list[str]:
    """Remarks on a configuration that runs, but perhaps not as it was meant."""
    found = []
    if config.dataset.split_counts is not None and config.dataset.splits != "random":
        found.append("dataset.split_counts has no effect without dataset.splits: random.")
    template = config.prompt_pool_template
    if template.query != "features" and template.num_prompts == 1:
        found.append(
            f"prompt_pool_template.query: {template.query} has no effect with num_prompts: 1: a single prompt is "
            "never asked for."
        )
    if config.meta.min_gain > 0 and config.meta.patience is None:
        found.append("meta.min_gain has no effect without meta.patience.")
    if not config.meta.first_order and not meta_learners()[config.meta.learner].second_order:
        found.append(
            f"meta.first_order: false has no effect with meta.learner: {config.meta.learner}, which has no second "
            "derivatives."
        )
    learned = config.verbalizer_section.learned if config.method_declaration.uses_verbalizer else ()
    if learned and not config.method_declaration.trains_across_tasks:
        found.append(
            f"{config.verbalizer}.learn has no effect with method: {config.method}, which learns nothing across tasks."
        )
    elif learned and not meta_learners()[config.meta.learner].learns_scalars:
        found.append(
            f"{config.verbalizer}.learn has no effect with meta.learner: {config.meta.learner}, which learns only "
            "what inner steps change."
        )
    if config.meta.validate_every > config.meta.iterations:
        found.append(
            f"meta.validate_every = {config.meta.validate_every} is above meta.iterations = "
            f"{config.meta.iterations}: there is no validation on the way."
        )
    return found


def _checks(*keys: str) -> Callable[[_Check], _Check]:
    """Register a check of ``keys``."""

    def register(check: _Check) -> _Check:
        _CHECKS.append((keys, check))
        return check

    return register


@_checks("method", "plm.model_path", "verbalizer")
def _verbalizer(config: RunConfig) -> Iterator[Problem]:
    if not config.method_declaration.uses_verbalizer:
        return
    yield from config.verbalizer_section.problems(config.verbalizer)
    if not lacks_vocabulary_head(config.plm.model_path):
        return
    for key, value, remedy in config.verbalizer_section.head_needed_by():
        path = f"{config.verbalizer}.{key}" if key else "verbalizer"
        instead = f"set {config.verbalizer}.{remedy}" if key else f"use {remedy}"
        yield Problem(
            path,
            f"{value} needs a model with a vocabulary head, and plm.model_path: {config.plm.model_path} has none. "
            "minilm-mlm has one, and so have masked language models such as bert-base-uncased, roberta-base or "
            f"microsoft/mpnet-base; or {instead}.",
        )


@_checks("method", "meta", "plm")
def _method(config: RunConfig) -> Iterator[Problem]:
    yield from config.method_section.problems(config)


@_checks("prompt_pool_template.text")
def _template_text(config: RunConfig) -> Iterator[Problem]:
    try:
        pieces = parse_template_text(config.prompt_pool_template.text)
        check_pieces(pieces)
    except TemplateError as error:
        yield Problem("prompt_pool_template.text", str(error))
        return
    if has_soft_tokens(pieces):
        yield Problem(
            "prompt_pool_template.text",
            'has {"soft"}, whose tokens are learned in an OpenPrompt script; a run learns the pool alone across '
            'tasks. Use {"pool"}; prompt_length says how many positions it takes.',
        )


@_checks("prompt_pool_template.top_n", "prompt_pool_template.num_prompts")
def _top_n(config: RunConfig) -> Iterator[Problem]:
    template = config.prompt_pool_template
    if template.top_n is not None and template.top_n > template.num_prompts:
        yield Problem(
            "prompt_pool_template.top_n",
            f"got {template.top_n}, expected at most num_prompts = {template.num_prompts}. "
            "Leave it out to attend to every prompt.",
        )


@_checks("method", "verbalizer", "prompt_pool_template")
def _prefix(config: RunConfig) -> Iterator[Problem]:
    template = config.prompt_pool_template
    if not template.as_prefix:
        if template.prefix_strength != 1:
            yield Problem(
                "prompt_pool_template.prefix_strength",
                f"got {template.prefix_strength:g}, which is of a prompt that is a prefix. Set as_prefix: true, or "
                "leave it out.",
            )
        return
    prompts_and_verbalizes = (
        config.method_declaration.trains_across_tasks and config.method_declaration.uses_verbalizer
    )
    if template.features == "mean" and prompts_and_verbalizes:
        for key, value, remedy in config.verbalizer_section.head_needed_by():
            yield Problem(
                f"{config.verbalizer}.{key}" if key else "verbalizer",
                f"{value} has the [MASK] predict words, but prompt_pool_template.as_prefix with features: mean leaves "
                f"it out of the text. Set features: both, or {remedy if key else 'use ' + remedy}.",
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


@_checks("dataset")
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
    if dataset.mixture:
        if dataset.path is not None:
            yield Problem("dataset.path", "is given beside dataset.mixture, which has the paths. Leave one out.")
        if len(set(dataset.mixture)) < len(dataset.mixture):
            yield Problem("dataset.mixture", f"got {dataset.mixture}, expected none of them twice.")
        if dataset.name in ("demo", *KNOWN_DATASETS):
            yield Problem("dataset.name", f"is {dataset.name}, one data set. Name the mixture, e.g. mixture.")
        default = DatasetSection()
        for key in ("format", "text_column", "label_column", "splits", "split_counts", "label_words", "hub_config"):
            if getattr(dataset, key) != getattr(default, key):
                yield Problem(f"dataset.{key}", "is given beside dataset.mixture, whose data sets have their own.")
        return
    if dataset.apart_from:
        yield Problem("dataset.apart_from", "is for a mixture: without dataset.mixture nothing is held apart.")
    known = ("demo", *KNOWN_DATASETS)
    hubs = [reader.name for reader in readers().values() if reader.by_name]
    if dataset.path is None and dataset.name not in known and dataset.format not in hubs:
        yield Problem(
            "dataset.path",
            f"is needed for dataset.name = {dataset.name!r}: a folder or a file. Without a path there are "
            f"{', '.join(known)}, and any name with dataset.format: {' or '.join(hubs)}."
            + did_you_mean(dataset.name, known),
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


@_checks("method", "verbalizer", "meta")
def _tasks_of_many_sizes(config: RunConfig) -> Iterator[Problem]:
    meta = config.meta
    for key, bounds, least in (("train_ways", meta.train_ways, 2), ("train_shots", meta.train_shots, 0)):
        if bounds and not (len(bounds) == 2 and least <= bounds[0] <= bounds[1]):
            yield Problem(f"meta.{key}", f"got {bounds}, expected two rising numbers from {least} on, or none.")
    if meta.train_shots and meta.train_shots[0] == 0:
        if not config.knows_classes_by_words:
            yield Problem(
                "meta.train_shots",
                f"got {meta.train_shots}, but tasks without an example need a verbalizer that reads the words of the "
                "classes: rep_verbalizer with name_weight above 0, or name_verbalizer. Start from 1.",
            )
        elif meta.inner_steps > 0:
            yield Problem(
                "meta.train_shots",
                f"got {meta.train_shots}, but the inner loop has nothing to learn from without an example. Start from "
                "1, or set meta.inner_steps to 0.",
            )
    if meta.train_names < 1 and not config.verbalizer_section.does_without_names:
        yield Problem(
            "meta.train_names",
            f"got {meta.train_names:g}, but {config.verbalizer} knows nothing of a class without its words, or reads "
            "none. Leave it at 1, or use rep_verbalizer with name_weight above 0.",
        )


@_checks("meta.first_order", "plm.attn_implementation")
def _second_order(config: RunConfig) -> Iterator[Problem]:
    if not config.meta.first_order and config.plm.attn_implementation == "sdpa":
        yield Problem(
            "plm.attn_implementation",
            "sdpa has no second derivatives, which meta.first_order: false needs. Use eager, or leave it out.",
        )


@_checks("method", "plm.precision", "run.device")
def _tuned_model(config: RunConfig) -> Iterator[Problem]:
    if not config.tunes_model:
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
