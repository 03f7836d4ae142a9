"""The paper's tables as data: which rows, what each row runs, and the figures that the paper prints beside it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Any

from openprompt_meta.components import methods, verbalizers
from openprompt_meta.config.loading import RECOMMENDED
from openprompt_meta.errors import ConfigError, did_you_mean

# -- The figures that the paper prints, to stand beside what was run --------------------------------------------------


@dataclass(frozen=True)
class PaperAccuracy:
    """An accuracy as the paper prints it, in per cent."""

    mean: float
    spread: float | None
    """What stands after its ±: three seeds; not printed for every row."""

    def __str__(self) -> str:
        return f"{self.mean:.2f}" if self.spread is None else f"{self.mean:.2f} ± {self.spread:.2f}"


def paper_accuracy(table: str, row: str, dataset: str, shot: int) -> PaperAccuracy | None:
    """The paper's figure, or ``None`` where it prints none.

    Args:
        table: ``verbalizers``, ``main``, ``ablation-verbalizer`` or ``bmg``.
        row: the row's name.
        dataset: the data set's name.
        shot: support examples a class.
    """
    entry, datasets = _entry(table, row, shot), _content()["datasets"]
    if entry is None or dataset not in datasets:
        return None
    at = datasets.index(dataset)
    mean = entry["mean"][at]
    return None if mean is None else PaperAccuracy(mean, entry["spread"][at] if "spread" in entry else None)


def paper_millions(table: str, row: str, shot: int) -> float | None:
    """Millions of parameters as the paper prints them."""
    entry = _entry(table, row, shot)
    return None if entry is None else entry.get("millions")


def dataset_title(name: str) -> str:
    """The data set's name as the paper writes it; another's is its own."""
    datasets: list[str] = _content()["datasets"]
    return str(_content()["titles"][datasets.index(name)]) if name in datasets else name


def _entry(table: str, row: str, shot: int) -> dict[str, Any] | None:
    entry: dict[str, Any] | None = _content()["rows"].get(table, {}).get(str(shot), {}).get(row)
    return entry


@cache
def _content() -> dict[str, Any]:
    content: dict[str, Any] = json.loads(
        resources.files(__package__).joinpath("paper.json").read_text(encoding="utf-8")
    )
    return content


# -- The paper's tables as data: which rows, what each row runs, and which of the paper's figures belongs beside it ---

POOL_SIZES = (1, 2, 4, 8, 16, 32, 64)
"""What the paper chooses K and L_p from."""


@dataclass(frozen=True, eq=False)
class TableRow:
    """One row. Keys of a configuration are dotted, as on the command line.

    Attributes:
        name: for ``--rows`` and ``--against``.
        label: as printed.
        fixed: what the row is about; an override of such a key is refused.
        defaults: what it has in place of the configuration's defaults; an override wins.
        defaults_with_head: what it has in place of the configuration's defaults with language models that have a
            vocabulary head; an override wins.
        paper: the paper's table and row, for its figures.
        remark: what to know of the paper's figures of this row; said once under the table.
        block: rows of one block stand together.
    """

    name: str
    label: str
    fixed: Mapping[str, Any] = field(default_factory=dict)
    defaults: Mapping[str, Any] = field(default_factory=dict)
    defaults_with_head: Mapping[str, Any] = field(default_factory=dict)
    paper: tuple[str, str] | None = None
    remark: str = ""
    block: str = "paper"


@dataclass(frozen=True, eq=False)
class Table:
    """A table of the paper, or of the paper's kind."""

    name: str
    title: str
    shots: tuple[int, ...]
    rows: tuple[TableRow, ...]


_VERBALIZERS = {
    "hand-crafted": "manual_verbalizer",
    "warp": "warp_verbalizer",
    "dart": "dart_verbalizer",
    "protoverb": "proto_verbalizer",
    "repverb": "rep_verbalizer",
}
_BOTH_VERBALIZERS = {"rep_verbalizer.mix_lambda": 0.5}
_METAPROMPTER_ROW = ("main", "metaprompter")


_TAKEN_OVER = (
    "HATT, DS, MLADA, ContrastNet: the paper took its figures (†) over from others, who divide the classes of 20News, "
    "Amazon and HuffPost in two ways: MLADA as here (dataset.splits: authors), DS and ContrastNet by other lists "
    "(dataset.splits: distributional_signatures)."
)


def _earlier(method: str, iterations: int, keys: Mapping[str, Any] | None = None) -> TableRow:
    """A method without an inner loop, trained for as long as two cores can bear, with its authors' optimiser."""
    defaults = {"meta.iterations": iterations, "meta.validate_every": 100, "meta.patience": 20, **(keys or {})}
    title = methods()[method].title
    return TableRow(
        method, title, {"method": method}, defaults, paper=("main", method), remark=_TAKEN_OVER, block="earlier"
    )


def _verbalizer_alone(name: str) -> TableRow:
    fixed = {"method": "verbalizer", "verbalizer": _VERBALIZERS[name]}
    paper = ("verbalizers", name) if name in ("warp", "protoverb", "repverb") else None
    return TableRow(name, verbalizers()[_VERBALIZERS[name]].title, fixed, paper=paper)


def _metaprompting(
    name: str, label: str, verbalizer: str, keys: Mapping[str, Any] | None = None, **options: Any
) -> TableRow:
    fixed = {"method": "metaprompting", "verbalizer": _VERBALIZERS[verbalizer], **(keys or {})}
    return TableRow(name, label, fixed, **options)


def _metaprompter(name: str, label: str, keys: Mapping[str, Any] | None = None, **options: Any) -> TableRow:
    """With both verbalizers, if the language model has a vocabulary head."""
    fixed = {"method": "metaprompter", "verbalizer": "rep_verbalizer", **(keys or {})}
    return TableRow(name, label, fixed, defaults_with_head=_BOTH_VERBALIZERS, **options)


def _instead(method: str, suffix: str = "", label: str = "", keys: Mapping[str, Any] | None = None) -> TableRow:
    """What a user would do instead of prompting, called as the method is or by a label of its own."""
    name = f"{method.replace('_', '-')}{suffix}"
    return TableRow(name, label or methods()[method].title, {"method": method, **(keys or {})}, block="instead")


_MAIN = (
    _earlier(
        "hatt",
        6000,
        {"meta.optimizer": "sgd", "meta.outer_lr": 0.1, "meta.weight_decay": 1e-5, "meta.outer_decay": "tenths"},
    ),
    _earlier("ds", 5000),
    _earlier("mlada", 3000),
    _earlier("contrastnet", 3000, {"meta.outer_lr": 1e-5}),
    _metaprompting("metaprompting", "MetaPrompting", "hand-crafted", paper=("main", "metaprompting")),
    *(
        _metaprompting(
            f"metaprompting+{name}",
            f"MetaPrompting+{verbalizers()[_VERBALIZERS[name]].title}",
            name,
            paper=("main", f"metaprompting+{name}"),
        )
        for name in ("warp", "protoverb", "repverb")
    ),
    _metaprompter("metaprompter", "MetaPrompter", paper=_METAPROMPTER_ROW),
    *(
        _metaprompting(
            f"metaprompting-frozen{suffix}",
            f"MetaPrompting{plus}, MLM frozen",
            verbalizer,
            {"metaprompting.tune_model": False},
            block="frozen",
        )
        for suffix, plus, verbalizer in (("", "", "hand-crafted"), ("+repverb", "+RepVerb", "repverb"))
    ),
    _instead("mask_prototypes"),
    _instead("mean_prototypes"),
    _instead("logistic_regression"),
    _instead("nearest_neighbours"),
    _instead("fine_tuning"),
    _instead("contrastive"),
)

_BMG = (
    _metaprompting(
        "metaprompting+bmg",
        "MetaPrompting+BMG",
        "hand-crafted",
        {"meta.learner": "bmg"},
        paper=("bmg", "metaprompting+bmg"),
    ),
    _metaprompter("metaprompter+bmg", "MetaPrompter+BMG", {"meta.learner": "bmg"}, paper=("bmg", "metaprompter+bmg")),
    *(
        _metaprompter(f"metaprompter{suffix}", f"MetaPrompter{label}", keys, block="pool")
        for suffix, label, keys in (
            ("", " (MAML, first order)", {"meta.learner": "maml"}),
            ("+second-order", ", second order", {"meta.learner": "maml", "meta.first_order": False}),
            ("+reptile", "+Reptile", {"meta.learner": "reptile"}),
            ("+keys", ", inner loop on keys only", {"meta.inner_parameters": "keys"}),
            ("+prompts", ", inner loop on prompts only", {"meta.inner_parameters": "prompts"}),
        )
    ),
    *(
        _metaprompting(
            f"metaprompting+repverb{suffix}",
            f"MetaPrompting+RepVerb{label}",
            "repverb",
            {"meta.learner": learner},
            block="single",
        )
        for suffix, label, learner in (
            ("", " (MAML)", "maml"),
            ("+bmg", "+BMG", "bmg"),
            ("+reptile", "+Reptile", "reptile"),
        )
    ),
)

_ABLATION_VERBALIZER = tuple(
    TableRow(name, f"MetaPrompter, {label}", {"method": "metaprompter", **keys}, paper=("ablation-verbalizer", name))
    for name, label, keys in (
        ("hand-crafted", "hand-crafted only", {"verbalizer": "manual_verbalizer"}),
        ("repverb", "RepVerb only", {"verbalizer": "rep_verbalizer", "rep_verbalizer.mix_lambda": 1.0}),
        ("both", "both", {"verbalizer": "rep_verbalizer", **_BOTH_VERBALIZERS}),
    )
)


# What `preset: recommended` says about prompts and verbalizer is what its rows are about; how long to train is not.
_RECOMMENDED = {
    f"{section}.{key}" if isinstance(keys, dict) else section: value
    for section, keys in RECOMMENDED.items()
    for key, value in (keys.items() if isinstance(keys, dict) else [("", keys)])
}
_TRAINING = {path: value for path, value in _RECOMMENDED.items() if path.startswith("meta.")}
_NAMES, _ROUNDS = {"mean_prototypes.name_weight": 2.0}, 10
_FRESH = {"prompt_pool_template.init": "random", "prompt_pool_template.random_range": 0.02}
_OF_EIGHT = {
    "prompt_pool_template.num_prompts": 8,
    "prompt_pool_template.attention": "cosine",
    "prompt_pool_template.keys": "kmeans",
}


def _recommended(suffix: str = "", label: str = "", keys: Mapping[str, Any] | None = None) -> TableRow:
    about = {path: value for path, value in _RECOMMENDED.items() if path not in _TRAINING}
    fixed = {"method": "metaprompter", **about, **(keys or {})}
    return TableRow(f"recommended{suffix}", f"MetaPrompter, recommended{label}", fixed, _TRAINING, block="recommended")


_WITHOUT_HEAD = (
    _instead("mean_prototypes"),
    _instead("mean_prototypes", "+names", "the same with names", _NAMES),
    _instead("logistic_regression"),
    _instead("contrastive"),
    _instead(
        "mean_prototypes",
        "+names+queries",
        "class means with names and queries",
        {**_NAMES, "mean_prototypes.assignment_rounds": _ROUNDS},
    ),
    _metaprompting(
        "metaprompting+repverb", "MetaPrompting+RepVerb", "repverb", paper=("main", "metaprompting+repverb")
    ),
    _metaprompter("metaprompter", "MetaPrompter, as in the paper", paper=_METAPROMPTER_ROW),
    _recommended(),
    _recommended("-fresh", ", not from the pool that ships", _FRESH),
    _recommended("-8", ", the same with 8 prompts", {**_FRESH, **_OF_EIGHT}),
    _recommended("+queries", " with queries", {"rep_verbalizer.assignment_rounds": _ROUNDS}),
)


def _ablation(name: str, letter: str, key: str) -> Table:
    rows = tuple(
        _metaprompter(
            f"{letter}-{size}",
            f"{letter} = {size}",
            {f"prompt_pool_template.{key}": size},
            paper=_METAPROMPTER_ROW if size == 8 else None,  # the others are a figure without numbers
        )
        for size in POOL_SIZES
    )
    return Table(name, f"MetaPrompter with different {letter}", (5,), rows)


TABLES: Mapping[str, Table] = {
    table.name: table
    for table in (
        Table("verbalizers", "Verbalizers alone", (5, 1), tuple(_verbalizer_alone(name) for name in _VERBALIZERS)),
        Table("main-5shot", "Every method, 5-shot", (5,), _MAIN),
        Table("main-1shot", "Every method, 1-shot", (1,), _MAIN),
        Table("recommended", "On an encoder without a vocabulary head", (5, 1), _WITHOUT_HEAD),
        Table("ablation-verbalizer", "MetaPrompter with different verbalizers", (5,), _ABLATION_VERBALIZER),
        Table("bmg", "Other meta-learners", (5,), _BMG),
        _ablation("ablation-K", "K", "num_prompts"),
        _ablation("ablation-Lp", "Lp", "prompt_length"),
    )
}
"""By name."""


def table_named(name: str) -> Table:
    """The table of that name. :class:`ConfigError` if there is none."""
    if name not in TABLES:
        raise ConfigError(f"There is no table {name!r}; there are {', '.join(TABLES)}." + did_you_mean(name, TABLES))
    return TABLES[name]


def row_name(table: Table, given: str) -> str:
    """The name of the row that is called so, or that prints this; :class:`ConfigError` if there is none."""
    names = {row.name: row.name for row in table.rows}
    names |= {row.label.casefold(): row.name for row in table.rows} | {
        row.name.casefold(): row.name for row in table.rows
    }
    found = names.get(given) or names.get(given.strip().casefold())
    if found is None:
        raise ConfigError(
            f"The table {table.name} has no row {given!r}; it has {', '.join(row.name for row in table.rows)}."
            + did_you_mean(given, [*names, *(row.label for row in table.rows)])
        )
    return found


def rows_of(table: Table, names: tuple[str, ...] | None) -> tuple[TableRow, ...]:
    """The rows of those names or labels in the table's order, all of them for ``None``; :class:`ConfigError` else."""
    wanted = None if names is None else {row_name(table, name) for name in names}
    return tuple(row for row in table.rows if wanted is None or row.name in wanted)
