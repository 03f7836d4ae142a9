"""An OpenPrompt-style YAML and its overrides: checked as a whole before anything loads, all mistakes at once."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from typing import Any

from openprompt.config import convert_cfg_to_dict, get_conditional_config
from openprompt.data_utils import PROCESSORS
from openprompt.default_config import get_default_config
from openprompt.plms import _MODEL_CLASSES
from openprompt.prompts import TEMPLATE_CLASS, VERBALIZER_CLASS
from yacs.config import CfgNode

from openprompt_meta.compat.bridge import OPENPROMPT_KEYS, accepted_keys
from openprompt_meta.components import verbalizers
from openprompt_meta.config.yaml_file import parse_yaml, read_yaml
from openprompt_meta.errors import ConfigError, did_you_mean
from openprompt_meta.sections import from_exponent

# -- OpenPrompt's command-line overrides: `--train.num_epochs 2 --verbalizer warp_verbalizer --train.clean` -----------

# A dotted key and the words that followed it.
Override = tuple[str, tuple[str, ...]]


def parse_openprompt_overrides(arguments: Sequence[str]) -> list[Override]:
    """Pairs of key and words from what the command line has beyond its own options.

    Raises:
        ConfigError: a word stands before the first key.
    """
    found: list[tuple[str, list[str]]] = []
    for argument in arguments:
        if argument.startswith("--"):
            key, separator, value = argument[2:].partition("=")
            found.append((key, [value] if separator else []))
        elif not found:
            raise ConfigError(f"{argument!r} belongs to no option. Write overrides as --train.num_epochs 2.")
        else:
            found[-1][1].append(argument)
    return [(key, tuple(words)) for key, words in found]


def _override_value(words: Sequence[str], current: Any) -> Any:
    """What an override gives the key that holds ``current``.

    As in OpenPrompt, a switch is turned over by naming it and a list takes all words. A value may also be written
    after a switch (``--train.clean true``).

    Raises:
        ValueError: with the reason, if the words say nothing for this key.
    """
    if not words:
        if isinstance(current, bool):
            return not current
        raise ValueError("needs a value")
    if isinstance(current, list):
        values = [_scalar(word, "") for word in words]
        return values[0] if len(values) == 1 and isinstance(values[0], list) else values
    if len(words) > 1:
        raise ValueError(f"takes one value, got {', '.join(map(repr, words))}")
    return _scalar(words[0], current)


def _scalar(word: str, current: Any) -> Any:
    try:
        value = parse_yaml(word, "an override").content
    except ConfigError:
        return word
    # A template text is no mapping, though it may look like one; a name may look like a number.
    if isinstance(value, dict) or (isinstance(current, str) and current and not isinstance(value, str)):
        return word
    return value


# -- What a run's configuration may hold: OpenPrompt's defaults, sections for our classes, and a few keys of ours -----

Tree = dict[str, Any]

PROMPT_TABLES: dict[str, dict[str, type]] = {"template": TEMPLATE_CLASS, "verbalizer": VERBALIZER_CLASS}

# What OpenPrompt's runners read, or its own YAMLs have, in the `optimize` of a template or verbalizer.
_OPTIMIZE = ("name", "lr", "betas", "adam_epsilon", "weight_decay", "no_decay", "scheduler", "level")
_SCHEDULER = ("type", "num_warmup_steps")

_WORDS: Tree = {"parent_config": "verbalizer", "label_words": None, "file_path": None, "choice": None}

_SECTIONS: Tree = {
    "prompt_pool_template": {
        "parent_config": "template",
        "text": None,
        "file_path": None,
        "choice": 0,
        "optimize": {"name": "AdamW", "lr": 0.001, "adam_epsilon": 1.0e-8, "scheduler": None},
    },
}

_KEYS: Tree = {
    # OpenPrompt's freeze_para leaves dropout on; this also switches it off.
    "plm": {"eval_mode": False},
    # Read by OpenPrompt's runner for ProtoVerb, under this spelling, and in none of its defaults.
    "train": {"train_verblizer": "alternate"},
    # Arguments of our processors; see JsonlFolderProcessor in openprompt_meta.openprompt_runs.run.
    "dataset": {"num_classes": None, "shots": None, "dev_shots": None, "seed": None},
}


def _default_tree() -> Tree:
    """All sections with their defaults, as nested dictionaries that the caller may change."""
    tree: Tree = convert_cfg_to_dict(get_default_config())
    tree.update(deepcopy(_SECTIONS))
    for name, declaration in verbalizers().items():
        lr = declaration.openprompt_lr
        tree.setdefault(name, {**_WORDS, "optimize": None if lr is None else {"lr": lr, "scheduler": None}})
    for name, keys in _KEYS.items():
        tree[name].update(keys)
    return tree


def _known_keys(path: tuple[str, ...]) -> tuple[str, ...] | None:
    """The keys that the section at ``path`` may have; ``None`` if it is a value, which may be any mapping too."""
    node: Any = _default_tree()
    for key in path:
        node = node.get(key) if isinstance(node, dict) else None
    own = tuple(node) if isinstance(node, dict) else None
    if not path:
        return (*(own or ()), *TEMPLATE_CLASS, *VERBALIZER_CLASS)
    name, inner = path[0], path[1:]
    for table in PROMPT_TABLES.values():
        if name in table:
            own_keys = (*accepted_keys(table[name]), *OPENPROMPT_KEYS)
            of_class = {(): own_keys, ("optimize",): _OPTIMIZE, ("optimize", "scheduler"): _SCHEDULER}
            return (*(own or ()), *of_class[inner]) if inner in of_class else None
    return own


# -- reading a YAML ---------------------------------------------------------------------------------------------------
# OpenPrompt itself drops unknown keys, crashes on a top-level number, and forgets every section that the YAML did not
# choose before the command line can choose it.

KeyPath = tuple[str, ...]

_CHOICES: dict[KeyPath, tuple[Any, ...]] = {
    ("task",): ("classification",),
    ("learning_setting",): (None, "full", "few_shot", "zero_shot"),
    ("few_shot", "few_shot_sampling"): (None, "sampling_from_train"),
    ("calibrate",): (None,),
    ("train", "train_verblizer"): ("pre", "alternate", "post"),
    ("classification", "loss_function"): ("cross_entropy", "nll_loss"),
    ("classification", "auto_t"): (False,),
    ("classification", "auto_v"): (False,),
}


def read_config(path: str | os.PathLike[str], overrides: Iterable[Override] = ()) -> CfgNode:
    """The configuration in a YAML file, with defaults, overrides and the chosen sections only.

    Args:
        path: the YAML file.
        overrides: from :func:`~openprompt_meta.openprompt_runs.config.parse_openprompt_overrides`.

    Raises:
        ConfigError: the file cannot be read, or its contents cannot be run; every reason is listed.
    """
    file = read_yaml(path)
    if not isinstance(file.content, dict):
        raise ConfigError(f"{os.fspath(path)} holds no sections; expected a YAML mapping such as `plm:`, `train:`, …")
    return _assemble(file.content, overrides, os.fspath(path), file.lines)


def make_config(given: Mapping[str, Any], overrides: Iterable[Override] = ()) -> CfgNode:
    """As :func:`read_config`, from nested mappings."""
    return _assemble(given, overrides, "The configuration", {})


def _assemble(
    given: Mapping[str, Any], overrides: Iterable[Override], source: str, lines: Mapping[KeyPath, str]
) -> CfgNode:
    merger = _Merger(lines)
    merger.merge(given)
    for key, words in overrides:
        merger.override(key, words)
    problems = merger.problems + _unrunnable(merger.tree)
    if problems:
        raise ConfigError(f"{source} cannot be run:\n" + "\n".join(f"  - {problem}" for problem in problems))
    chosen: CfgNode = get_conditional_config(CfgNode(merger.tree, new_allowed=True))
    return chosen


class _Merger:
    """Puts values over the defaults; what does not fit is left out and listed, with its line, in ``problems``."""

    def __init__(self, lines: Mapping[KeyPath, str]) -> None:
        self.tree = _default_tree()
        self.problems: list[str] = []
        self._lines = lines

    def merge(self, given: Mapping[str, Any]) -> None:
        self._merge(self.tree, _with_parents(given), ())

    def override(self, key: str, words: Sequence[str]) -> None:
        path = key.split(".")
        try:
            nested: Any = _override_value(words, _at(self.tree, path))
        except ValueError as error:
            self.problems.append(f"--{key} {error}")
            return
        for section in reversed(path):
            nested = {section: nested}
        self.merge(nested)

    def _merge(self, tree: Tree, given: Mapping[str, Any], where: KeyPath) -> None:
        known = _known_keys(where) or ()
        for key, value in given.items():
            here = (*where, str(key))
            if key not in known:
                self._report(here, f"is not a key.{_advice(here, known)}")
            elif _known_keys(here) is None or (len(here) > 1 and not isinstance(value, Mapping)):
                self._set(tree, key, value, here)
            elif isinstance(value, Mapping | None):
                if not isinstance(tree.get(key), dict):
                    tree[key] = {}
                self._merge(tree[key], value or {}, here)
            else:
                self._report(here, f"is {value!r}; expected a section with keys of its own.")

    def _set(self, tree: Tree, key: str, value: Any, here: KeyPath) -> None:
        current = tree.get(key)
        if not isinstance(current, str):
            value = from_exponent(value)
        if not _fits(value, current):
            self._report(here, f"is {value!r}; expected {type(current).__name__}, such as {current!r}.")
            return
        tree[key] = float(value) if isinstance(current, float) and isinstance(value, int) else value

    def _report(self, here: KeyPath, problem: str) -> None:
        line = f"{self._lines[here]}: " if here in self._lines else ""
        self.problems.append(f"{line}{'.'.join(here)} {problem}")


def _with_parents(given: Mapping[str, Any]) -> Tree:
    """A section of a template or verbalizer is one even if it is empty or its author left out `parent_config`."""
    tree = dict(given)
    for kind, table in PROMPT_TABLES.items():
        for name in table:
            if name in tree and isinstance(tree[name], Mapping | None):
                tree[name] = {"parent_config": kind, **(tree[name] or {})}
    return tree


def _fits(value: Any, current: Any) -> bool:
    """Whether a value may stand where ``current`` stood; nothing is known of what may replace None."""
    if value is None or current is None:
        return True
    if isinstance(current, bool) or isinstance(value, bool):
        return isinstance(current, bool) and isinstance(value, bool)
    if isinstance(current, float):
        return isinstance(value, int | float)
    return isinstance(value, Mapping if isinstance(current, dict) else type(current))


def _at(tree: Any, path: Iterable[str]) -> Any:
    for key in path:
        tree = tree.get(key) if isinstance(tree, dict) else None
    return tree


def _advice(here: KeyPath, known: Iterable[str]) -> str:
    near = did_you_mean(here[-1], known)
    if near or len(here) > 1:
        return near
    sections = {name: section for name, section in _default_tree().items() if isinstance(section, dict)}
    homes = [f"{name}.{here[0]}" for name, section in sections.items() if here[0] in section]
    return f" It belongs into a section: {' or '.join(homes)}." if homes else ""


# -- checks -----------------------------------------------------------------------------------------------------------


def _unrunnable(tree: Tree) -> list[str]:
    """Why a complete configuration cannot be run, a sentence each."""
    problems = []
    for path, choices in _CHOICES.items():
        value = _at(tree, path)
        if value not in choices:
            listed = ", ".join("nothing" if choice is None else str(choice) for choice in choices)
            problems.append(f"{'.'.join(path)} is {value!r}; this runner takes {listed}.")
    for kind, table in PROMPT_TABLES.items():
        problems += _check_choice(f"{kind}", tree[kind], table) or _check_prompt(kind, tree)
    problems += _check_choice("plm.model_name", tree["plm"]["model_name"], _MODEL_CLASSES)
    if not tree["plm"]["model_path"]:
        problems.append("plm.model_path is not set: minilm, a folder, or a name on the model hub.")
    problems += _check_choice("dataset.name", tree["dataset"]["name"], PROCESSORS)
    if not tree["classification"]["metric"]:
        problems.append("classification.metric is empty; name at least one, such as accuracy.")
    return problems


def _check_choice(name: str, value: Any, table: Mapping[str, Any]) -> list[str]:
    if value is None:
        return [f"{name} is not set; one of {', '.join(table)}."]
    found = value.lower() if name == "dataset.name" and isinstance(value, str) else value
    if found not in table:
        return [f"{name} is {value!r}; expected one of {', '.join(table)}.{did_you_mean(str(value), table)}"]
    return []


def _check_prompt(kind: str, tree: Tree) -> list[str]:
    """Whether the chosen template or verbalizer has the section that OpenPrompt will look for."""
    name = tree[kind]
    section = tree.get(name)
    if not isinstance(section, dict):
        return [
            f"{kind} is {name}, but there is no section of that name. Add one:\n"
            f"        {name}:\n          parent_config: {kind}"
        ]
    problems = []
    if kind == "template" and not section.get("text") and not section.get("file_path"):
        problems.append(f"{name}.text is not set, nor is {name}.file_path.")
    optimize = section.get("optimize")
    if isinstance(optimize, dict) and not hasattr(PROMPT_TABLES[kind][name], "optimize"):
        needed = ("name", "lr", "adam_epsilon") if kind == "template" else ("lr",)
        if missing := [key for key in needed if optimize.get(key) is None]:
            problems.append(f"{name}.optimize lacks {', '.join(missing)}, which OpenPrompt's runner reads.")
    return problems
