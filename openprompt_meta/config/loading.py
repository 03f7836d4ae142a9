"""From a YAML file, the files it inherits from, a preset and the command line to one :class:`RunConfig`."""

from __future__ import annotations

import difflib
import logging
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

from openprompt_meta.config.schema import RunConfig, key_at, section_keys, section_types
from openprompt_meta.config.validation import FILE_KEYS, VERSION_KEY, check_version, config_error, notes, read_mapping
from openprompt_meta.config.yaml_file import YamlFile, parse_yaml, read_yaml
from openprompt_meta.errors import ConfigError, did_you_mean
from openprompt_meta.sections import is_text, show, takes_null

logger = logging.getLogger(__name__)

MAX_DEPTH = 10
MAX_FILES = 50
SOURCE = "command line"
_NULLS = ("", "~", "null", "Null", "NULL")


def load_config(path: str | os.PathLike[str], overrides: Iterable[str] = ()) -> RunConfig:
    """The configuration in a YAML file.

    Later wins, key by key: the files under ``inherit`` in their order, the ``preset``, the file itself, then a
    ``preset=`` of the command line and its other keys.

    Args:
        path: the file. ``inherit`` in it is a path relative to it, the name of a YAML that ships, or a list of them.
        overrides: ``key=value`` with dotted keys, as in ``meta.shot=1`` or ``run.seeds=[0,1]``.

    Raises:
        ConfigError: if a file cannot be read or, listing everything, if keys or values are wrong.
    """
    layers = _Layers()
    layers.add_file(Path(path))
    changes, problems = parse_overrides(overrides)
    layers.add_overrides(changes)
    problems += layers.problems
    whole = layers.merge()
    config, found = read_mapping(whole.content, whole.lines)
    problems += found
    if problems:
        raise config_error(str(path), problems)
    for note in notes(config):
        logger.warning("%s: %s", path, note)
    return config


def merged(base: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """``base`` with ``above`` laid over it; mappings join, everything else is replaced.

    An empty section (null) in ``above`` changes nothing.
    """
    result = dict(base)
    for key, value in above.items():
        below = result.get(key)
        if isinstance(below, dict) and (isinstance(value, dict) or value is None):
            result[key] = merged(below, value or {})
        else:
            result[key] = value
    return result


class _Layers:
    """What was read so far, lowest first: keys and values, or the name of a preset."""

    def __init__(self) -> None:
        self.layers: list[YamlFile | str] = []
        self.problems: list[str] = []
        self.files = 0

    def add_file(self, path: Path, chain: tuple[str, ...] = ()) -> None:
        resolved = _real_path(path)
        if resolved in chain:
            circle = " -> ".join(Path(file).name for file in (*chain, resolved))
            raise ConfigError(f"{path} inherits from itself: {circle}. Take one inherit out.")
        self.files += 1
        if len(chain) >= MAX_DEPTH or self.files > MAX_FILES:
            raise ConfigError(
                f"{path}: inherit goes deeper than {MAX_DEPTH} files or takes in more than {MAX_FILES}; join some."
            )
        if chain and _is_elsewhere(resolved, chain[0]):
            file, content = _read_elsewhere(path)
        else:
            file, content = _read_file(path)
        for base in _bases(content, path):
            self.add_file(base, (*chain, resolved))
        self._add(content, file)

    def add_overrides(self, changes: YamlFile) -> None:
        for name in ("inherit", VERSION_KEY):
            if name in changes.content:
                del changes.content[name]
                self.problems.append(f"{name}: stands in a file; give that file instead. ({SOURCE})")
        self._add(changes.content, changes)

    def _add(self, content: Mapping[str, Any], file: YamlFile) -> None:
        name = content.get("preset")
        if isinstance(name, str) and name in PRESETS:
            self.layers.append(name)
        elif name is not None:
            near = did_you_mean(name, PRESETS) if isinstance(name, str) else ""
            where = file.lines.get(("preset",), SOURCE)
            self.problems.append(f"preset: got {show(name)}, expected {' or '.join(PRESETS)}.{near} ({where})")
        own = {key: value for key, value in content.items() if key not in (*FILE_KEYS, VERSION_KEY)}
        if isinstance(own.get("dataset"), list):  # short for a mixture
            own["dataset"] = {"name": "mixture", "mixture": own["dataset"]}
        self.layers.append(YamlFile(own, file.lines))

    def merge(self) -> YamlFile:
        plain: dict[str, Any] = {}
        for layer in self.layers:
            if isinstance(layer, YamlFile):
                plain = merged(plain, layer.content)
        whole = YamlFile({})
        for layer in self.layers:
            one = layer if isinstance(layer, YamlFile) else _preset(layer, plain)
            whole = YamlFile(merged(whole.content, one.content), whole.lines | one.lines)
        return whole


def _read_file(path: Path) -> tuple[YamlFile, dict[str, Any]]:
    file = read_yaml(path)
    content = {} if file.content is None else file.content
    if not isinstance(content, dict):
        raise ConfigError(f"{path} holds {show(content)}, expected sections such as plm, dataset and meta.")
    check_version(content, file.lines.get((VERSION_KEY,), str(path)))  # first: a newer form may mean anything
    return file, content


def _is_elsewhere(file: str, top: str) -> bool:
    """Whether a file lies neither in the folder of the YAML that everything begins with, nor among those that ship."""
    shipped = {os.path.realpath(one.parent) for one in shipped_yamls().values()}
    return not any(Path(file).is_relative_to(folder) for folder in (os.path.dirname(top), *shipped))


def _read_elsewhere(path: Path) -> tuple[YamlFile, dict[str, Any]]:
    """Read a file that whoever wrote the YAML may not be allowed to see: messages name it, and show nothing of it."""
    if not os.path.exists(path):
        raise ConfigError(f"There is no file {path}.")
    with suppress(ConfigError):
        file, content = _read_file(path)
        if all(key in {*FILE_KEYS, VERSION_KEY} or key_at(key) is not None for key in _paths(content)):
            return file, content
    raise ConfigError(
        f"{path} is inherited and holds no configuration, or keys that are none. It lies outside the folder of the "
        "YAML, so nothing of it is shown: look into it yourself."
    )


def _paths(content: Mapping[Any, Any]) -> Iterator[str]:
    for name, value in content.items():
        if isinstance(value, dict):
            yield from (f"{name}.{key}" for key in value)
        elif value is not None:
            yield str(name)


def _real_path(path: Path) -> str:
    try:
        return os.path.realpath(path)
    except (OSError, ValueError) as error:  # a zero byte in the name, for one
        raise ConfigError(f"{str(path)!r} cannot be read: {error}.") from None


def _bases(content: Mapping[str, Any], path: Path) -> list[Path]:
    given = content.get("inherit")
    names = given if isinstance(given, list) else [] if given is None else [given]
    if not all(isinstance(name, str) and name for name in names):
        raise ConfigError(f"{path}: inherit is {show(given)}, expected a path or a list of paths.")
    return [find_yaml(name, beside=path.parent) for name in names]


# -- ``key=value`` from the command line: ``meta.shot=1 run.seeds=[0,1,2] verbalizer=warp_verbalizer`` ----------------


def parse_overrides(overrides: Iterable[str]) -> tuple[YamlFile, list[str]]:
    """The overrides as one mapping, the last of each key counting, and a sentence for each that is not one."""
    content: dict[str, Any] = {}
    file = YamlFile(content)
    problems = []
    for override in overrides:
        path, equals, text = override.partition("=")
        names = tuple(path.strip().split("."))
        if not equals or not all(names):
            problems.append(f"{override!r}: expected key=value, as in meta.shot=1. ({SOURCE})")
            continue
        names = (*_only_section_with(path.strip()), *names)
        try:
            value = _value(".".join(names), text.strip())
        except ConfigError as error:
            problems.append(f"{path}: {error}")
            continue
        section = content
        for name in names[:-1]:
            if not isinstance(section.get(name), dict):
                section[name] = {}
            section = section[name]
        section[names[-1]] = value
        file.lines[names] = SOURCE
    return file, problems


def _only_section_with(name: str) -> tuple[str, ...]:
    """The section of a key that is given by its last name alone, if no other section has one of that name."""
    if name in section_keys("") or name in (*FILE_KEYS, VERSION_KEY):
        return ()
    found = [section for section in section_types() if name in section_keys(section)]
    return tuple(found) if len(found) == 1 else ()


def _value(path: str, text: str) -> Any:
    key = key_at(path)
    if key is not None and is_text(key.hint):
        # A template text opens with a brace, which YAML would take for a mapping.
        return None if takes_null(key.hint) and text in _NULLS else text
    return parse_yaml(text, SOURCE).content


# -- the YAMLs that ship, found by name from any folder: hwu64/5shot-minilm is yamls/hwu64/5shot-minilm.yaml ----------

_SUFFIX = ".yaml"
_OPENPROMPTS_OWN = "openprompt"  # YAMLs of OpenPrompt's form, for runners/run_openprompt.py
_PACKAGE = Path(__file__).parents[1]


def find_yaml(given: str | os.PathLike[str], beside: str | os.PathLike[str] = "") -> Path:
    """The YAML that ``given`` means: a file if there is one at this path, else what ships under this name.

    Args:
        given: a path, or a name such as ``hwu64/5shot-minilm``, with or without ``.yaml``.
        beside: the folder that a relative path starts from; the working directory by default.

    Returns:
        A path. If neither is there and ``given`` ends as a YAML does, it is the path as given, whose reading fails.

    Raises:
        ConfigError: for a name without a suffix that is neither, with the nearest ones that ship.
    """
    path = Path(beside) / given
    if os.path.isfile(path):
        return path
    name = Path(given).as_posix()
    shipped = shipped_yamls()
    found = shipped.get(name.removesuffix(_SUFFIX))
    if found is not None:
        return found
    if os.path.exists(path) or path.suffix or "\0" in name:
        return path
    near = " or ".join(map(repr, difflib.get_close_matches(name, shipped, n=3)))
    raise ConfigError(
        f"There is no file {path}, and no YAML called {name!r} ships.{f' Did you mean {near}?' if near else ''} "
        "`openprompt-meta yamls` lists those that do."
    )


@cache
def shipped_yamls() -> dict[str, Path]:
    """The file of every YAML that ships, by name, in the order of the names."""
    folder = _folder()
    files = {file.relative_to(folder).with_suffix("").as_posix(): file for file in folder.rglob(f"*{_SUFFIX}")}
    return {name: files[name] for name in sorted(files) if not name.startswith(f"{_OPENPROMPTS_OWN}/")}


def _folder() -> Path:
    """Inside the package when it was installed from a wheel, beside it in a checkout."""
    inside = _PACKAGE / "yamls"
    return inside if inside.is_dir() else _PACKAGE.parent / "yamls"


# -- presets: named sets of values, read as one more inherited file after the others ----------------------------------

_TEXT = '{{"placeholder": "text_a"}} {{"special": "<sep>"}} {{"pool"}} {{"special": "<cls>"}} {prefix} {{"mask"}}.'
_INTENTS = ("hwu64", "liu54", "demo")
_TOPICS = ("huffpost", "reuters", "20news", "amazon")


def _topic(dataset: str) -> str:
    """What stands before the [MASK] in the paper's templates."""
    return "Topic is about" if dataset in _INTENTS else "Topic is"


AUTHORS: Mapping[str, Any] = {
    "plm": {"dropout": True},
    "dataset": {"max_seq_length": 220},
    "prompt_pool_template": {
        "num_prompts": 8,
        "prompt_length": 8,
        "top_n": None,
        "init": "label_words",
    },
    "verbalizer": "rep_verbalizer",
    "rep_verbalizer": {
        "aggregation": "logits",
        "similarity": "cosine",
        "temperature": 10.0,
        "inner_temperature": 1.0,
        "centring": "transductive",
    },
    "meta": {
        "inner_lr": 0.1,
        "inner_steps": 5,
        "inner_steps_eval": 5,
        "loss": "mean",
        "first_order": True,
        "label_embeddings": "adapted",
        "outer_lr": 1e-3,
        "optimizer": "adamw",
        "iterations": 4000,
        "patience": 3,
        "min_gain": 0.0005,
        "valid_tasks": 200,
        "test_tasks": 300,
    },
}
"""The authors' settings but for the wording; see :func:`authors`."""


def authors(dataset: str, shot: int) -> dict[str, Any]:
    """What the authors' code does (``ws-jiang/MetaPrompter_public``), as far as keys can say it.

    It differs from the paper, and from our defaults, in these points: features are centred by the mean over support
    and query (so results are transductive and reported apart), ρ is 1 in the inner loop, J is 5 in validation and
    test too (15 for HuffPost 1-shot), the outer optimiser is AdamW, dropout stays on while meta-training, training
    runs for at most 4000 iterations and stops after 3 validations without a gain of 0.0005, and the text reads
    ``[CLS] x [SEP] θ [CLS] Topic is [MASK] . [SEP]`` ("Topic is about" for intents).

    What no key can say, and what we therefore do our way: their embedding layer is applied twice; their prompts start
    from label words of all classes, those of the test included; and their text is padded before the template is added,
    so that the position of the [MASK] depends on the batch. λ is left alone: theirs, 0.5, needs a vocabulary head, and
    stands in the YAMLs of the models that have one.

    Args:
        dataset: the data set's name, for the words of the template and for J.
        shot: support examples a class, for J.
    """
    values: dict[str, Any] = deepcopy(dict(AUTHORS))
    values["prompt_pool_template"]["text"] = _TEXT.format(prefix=_topic(dataset))
    if dataset == "huffpost" and shot == 1:
        values["meta"]["inner_steps_eval"] = 15
    return values


RECOMMENDED: Mapping[str, Any] = {
    "prompt_pool_template": {
        "text": '{"placeholder": "text_a"} {"pool"} {"mask"}',
        "features": "auto",
        "num_prompts": 1,
        "prompt_length": 8,
        "init": "general",
        "as_prefix": True,
    },
    "verbalizer": "rep_verbalizer",
    "rep_verbalizer": {
        "name_weight": 1.0,
        "temperature": 10.0,
        "learn": ["name_weight", "temperature"],
    },
    "meta": {
        "inner_steps": 0,
        "inner_steps_eval": 0,
        "outer_lr": 0.003,
        "iterations": 100,
        "validate_every": 25,
    },
}
"""See :func:`recommended`."""


def recommended(dataset: str, shot: int) -> dict[str, Any]:
    """What does best on the packaged sentence encoder, chosen on validation classes (docs/results.md).

    Features are the mean over all tokens of the text, which attend to one prompt that is a prefix, so that a text
    takes a single pass; the words of a class, read as a text by the same encoder with the same prompt, count as w
    examples of it; w and ρ are learned across tasks. The prompt goes on from the pool that ships; larger outer
    steps, and no inner steps, which were seen to add nothing to label embeddings that are made anew for each task.
    """
    return deepcopy(dict(RECOMMENDED))


def paper(dataset: str, shot: int) -> dict[str, Any]:
    """The paper's own values, which are the defaults, of all keys that another preset has.

    For a file that inherits one with another preset. The wording of another data set's template is left alone.
    """
    defaults = RunConfig()
    values: dict[str, Any] = {}
    for preset in (AUTHORS, RECOMMENDED):
        for section, keys in preset.items():
            if not isinstance(keys, dict):
                values[section] = defaults.value_at(section)
                continue
            own = {key: defaults.value_at(f"{section}.{key}") for key in keys if key != "text"}
            values[section] = {**values.get(section, {}), **own}
    if dataset in (*_INTENTS, *_TOPICS):
        text = f'{{"placeholder": "text_a"}} {{"pool"}} {_topic(dataset)} {{"mask"}}.'
        values["prompt_pool_template"]["text"] = text
    return values


PRESETS = {"paper": paper, "authors": authors, "recommended": recommended}


def _preset(name: str, mapping: Mapping[str, Any]) -> YamlFile:
    """A preset for the data set and shots that ``mapping``, not yet validated, asks for."""
    values = PRESETS[name](_entry(mapping, "dataset", "name", "demo"), _entry(mapping, "meta", "shot", 5))
    pairs = [(section, key) for section, keys in values.items() if isinstance(keys, dict) for key in keys]
    return YamlFile(values, dict.fromkeys(pairs, f"preset {name}"))


def _entry(mapping: Mapping[str, Any], section: str, key: str, default: Any) -> Any:
    values = mapping.get(section)
    value = values.get(key, default) if isinstance(values, Mapping) else default
    return value if isinstance(value, type(default)) else default
