"""What a table is made with: data sets, model, tasks, seeds, keys for every cell; and a cell's configuration by it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from openprompt_meta.config.loading import merged, parse_overrides
from openprompt_meta.config.schema import KNOWN_DATASETS, RunConfig, component_sections, lacks_vocabulary_head
from openprompt_meta.config.validation import config_error, config_from_mapping
from openprompt_meta.data.facts import facts_of
from openprompt_meta.errors import ConfigError
from openprompt_meta.tables.definitions import Table, TableRow

__all__ = ["Setting", "cell_config", "check_overrides"]

_TEXT = '{{"placeholder": "text_a"}} {{"pool"}} {words} {{"mask"}}.'
TRAINING_KEYS = (
    "iterations",
    "validate_every",
    "patience",
    "min_gain",
    "valid_tasks",
    "meta_batch",
    "outer_lr",
    "optimizer",
    "learner",
)
"""Keys of ``meta`` that say nothing to a method which learns nothing across tasks."""
_OPTIONS = {
    "dataset.name": "--dataset",
    "plm.model_path": "--plm",
    "meta.shot": "--shots",
    "meta.test_tasks": "--tasks",
    "run.seeds": "--seeds",
    "run.folder": "--folder",
}


@dataclass(frozen=True)
class Setting:
    """What all rows of a table have in common.

    Attributes:
        datasets: names of data sets.
        plm: the language model, as in ``plm.model_path``.
        shots: support examples a class; a column each.
        tasks: test tasks of a cell.
        seeds: a cell each.
        root: folder of the data sets; by default where the configuration looks.
        overrides: ``key=value`` for every cell.
    """

    datasets: tuple[str, ...] = ("demo",)
    plm: str = "minilm"
    shots: tuple[int, ...] = (5,)
    tasks: int = 300
    seeds: tuple[int, ...] = (0,)
    root: str | None = None
    overrides: tuple[str, ...] = ()

    @property
    def has_head(self) -> bool:
        """Whether the model has a vocabulary head, so far as its name tells."""
        return not lacks_vocabulary_head(self.plm)


def check_overrides(table: Table, rows: Sequence[TableRow], setting: Setting) -> None:
    """Refuse keys that no cell could take, before anything is run.

    Raises:
        ConfigError: a key is unknown or its value wrong, an option of the command says the same, or the key is what a
            row is about.
    """
    mapping = _overrides(setting)
    problems = []
    for path in _paths(mapping):
        if path in _OPTIONS:
            problems.append(
                f"{path}: is the same for every cell of a table and set by {_OPTIONS[path]}. (command line)"
            )
        owners = [row.label for row in rows if path in row.fixed]
        if owners:
            problems.append(
                f"{path}: is what the rows of {table.name} are about ({', '.join(owners)}). (command line)"
            )
        if path == "dataset.path" and len(setting.datasets) > 1:
            problems.append(f"{path}: is one folder for {len(setting.datasets)} data sets; use --root. (command line)")
    if problems:
        raise config_error(f"The table {table.name}", problems)
    for dataset in setting.datasets:
        shot, seed = setting.shots[0], setting.seeds[0]
        config_from_mapping(merged(_base(setting, dataset, shot, seed), mapping), source=f"The table {table.name}")


def cell_config(row: TableRow, setting: Setting, dataset: str, shot: int, seed: int) -> RunConfig:
    """The configuration of one cell; later wins: the paper's, the row's defaults, the overrides, the row itself.

    What the row does not use is left at its default, so that it does not tell two equal cells apart.

    Raises:
        ConfigError: this row cannot be run so, e.g. hand-crafted words on a model without a vocabulary head.
    """
    mapping = _base(setting, dataset, shot, seed)
    layers = [row.defaults, row.defaults_with_head if setting.has_head else {}]
    for layer in layers:
        mapping = merged(mapping, _nested(layer))
    for layer in (_overrides(setting), _nested(row.fixed)):
        mapping = merged(mapping, layer)
    return _without_idle_keys(config_from_mapping(mapping, source=row.label))


def _without_idle_keys(config: RunConfig) -> RunConfig:
    used = config.sections_in_use
    update: dict[str, Any] = {name: kind() for name, kind in component_sections().items() if name not in used}
    if not config.method_declaration.trains_across_tasks:
        plain = RunConfig().meta
        update["meta"] = config.meta.model_copy(update={name: getattr(plain, name) for name in TRAINING_KEYS})
    return config.model_copy(update=update)


def _base(setting: Setting, dataset: str, shot: int, seed: int) -> dict[str, Any]:
    is_topics = dataset in KNOWN_DATASETS and facts_of(dataset).kind != "intents"
    return {
        "plm": {"model_path": setting.plm},
        "dataset": {
            "name": dataset,
            "path": None if setting.root is None or dataset == "demo" else str(Path(setting.root) / dataset),
        },
        "prompt_pool_template": {"text": _TEXT.format(words="Topic is" if is_topics else "Topic is about")},
        "meta": {"shot": shot, "test_tasks": setting.tasks},
        "run": {"seeds": [seed]},
    }


def _overrides(setting: Setting) -> dict[str, Any]:
    file, problems = parse_overrides(setting.overrides)
    unsupported = [key for key in ("inherit", "preset") if key in file.content]
    problems += [f"{key}: stands in a file or on the command line of a run, not of a table." for key in unsupported]
    if problems:
        raise config_error("The command line", problems)
    content: dict[str, Any] = file.content
    return content


def _paths(mapping: Mapping[str, Any], prefix: str = "") -> list[str]:
    paths = []
    for key, value in mapping.items():
        paths += _paths(value, f"{prefix}{key}.") if isinstance(value, dict) else [f"{prefix}{key}"]
    return paths


def _nested(values: Mapping[str, Any]) -> dict[str, Any]:
    """Dotted keys as sections."""
    nested: dict[str, Any] = {}
    for path, value in values.items():
        section, _, key = path.rpartition(".")
        owner = nested.setdefault(section, {}) if section else nested
        if not isinstance(owner, dict):
            raise ConfigError(f"{path}: {section} is a value and no section.")
        owner[key] = value
    return nested
