"""A cell's configuration: what it is made of, what it is called, and that nothing it leaves out is ever looked at."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from openprompt_meta.components import methods
from openprompt_meta.config.loading import load_config
from openprompt_meta.config.schema import KNOWN_DATASETS, MetaSection, RunConfig, component_sections
from openprompt_meta.data.loading import open_dataset
from openprompt_meta.errors import ConfigError
from openprompt_meta.methods.language_model import load_language_model
from openprompt_meta.methods.method import build_method
from openprompt_meta.runs.evaluation import evaluate_tasks
from openprompt_meta.tables.cells import (
    TRAINING_KEYS,
    TableSettings,
    _without_idle_keys,
    cell_config,
    cells_of,
    check_overrides,
    config_digest,
)
from openprompt_meta.tables.definitions import TABLES, row_name, rows_of, table_named
from tests.helpers.small_runs import small_config, write_data

YAMLS = Path(__file__).parents[2] / "yamls"
MODELS = {"bert": "bert-base-uncased", "minilm": "minilm"}


def row(table: str, name: str) -> Any:
    (found,) = rows_of(TABLES[table], (name,))
    return found


@pytest.mark.parametrize("dataset", KNOWN_DATASETS)
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("shot", [1, 5])
def test_the_metaprompter_row_runs_what_the_shipped_yaml_runs(dataset: str, model: str, shot: int) -> None:
    settings = TableSettings(datasets=(dataset,), plm=MODELS[model], root="data")
    config = cell_config(row(f"main-{shot}shot", "metaprompter"), settings, dataset, shot, seed=0)
    # The YAML of MiniLM has what we recommend, the row has the paper's setting.
    assert config == load_config(YAMLS / dataset / f"{shot}shot-{model}.yaml", ["preset=paper"] * (model == "minilm"))


def test_every_method_of_the_package_is_a_row_of_a_table() -> None:
    rows = [one for table in TABLES.values() for one in table.rows]
    assert {one.fixed["method"] for one in rows} == methods().keys()


def test_every_row_can_be_configured_on_a_model_with_a_vocabulary_head() -> None:
    for table in TABLES.values():
        cells = cells_of(table.rows, TableSettings(plm="bert-base-uncased", shots=table.shots), Path("cells"))
        assert [str(cell) for cell in cells if cell.refusal is not None] == []
        assert len({cell.folder for cell in cells}) == len(cells), f"two rows of {table.name} are the same"


def test_all_rows_of_a_table_see_the_same_tasks() -> None:
    for table in TABLES.values():
        cells = cells_of(table.rows, TableSettings(plm="bert-base-uncased", shots=table.shots[:1]), Path("cells"))
        configs = [cell.config for cell in cells if cell.config is not None]
        episodes = [
            (config.dataset, config.meta.way, config.meta.shot, config.meta.query, config.meta.test_tasks)
            for config in configs
        ]
        assert all(one == episodes[0] for one in episodes)


def test_no_row_meets_an_override_that_would_make_its_label_untrue() -> None:
    table = TABLES["ablation-K"]
    settings = TableSettings(overrides=("prompt_pool_template.num_prompts=4",))
    with pytest.raises(ConfigError, match=r"is what the rows of ablation-K are about \(K = 1, K = 2"):
        check_overrides(table, table.rows, settings)


def test_an_override_wins_over_a_rows_defaults() -> None:
    settings = TableSettings(
        plm="bert-base-uncased", overrides=("rep_verbalizer.mix_lambda=0.7", "plm.precision=bfloat16")
    )
    ours = cell_config(row("main-5shot", "metaprompter"), settings, "demo", 5, 0)
    assert (ours.rep_verbalizer.mix_lambda, ours.plm.precision) == (0.7, "bfloat16")
    theirs = cell_config(row("main-5shot", "metaprompting+repverb"), settings, "demo", 5, 0)
    assert (theirs.rep_verbalizer.mix_lambda, theirs.plm.precision) == (0.7, "bfloat16")


def test_one_path_for_several_data_sets_is_refused() -> None:
    table = TABLES["main-5shot"]
    with pytest.raises(ConfigError, match="use --root"):
        check_overrides(table, table.rows, TableSettings(("hwu64", "reuters"), overrides=("dataset.path=here",)))


def test_an_unknown_table_is_answered_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match="Did you mean 'main-5shot'"):
        table_named("main5shot")


def test_the_command_offers_every_table() -> None:
    from openprompt_meta.cli.table import NAMES

    assert tuple(TABLES) == NAMES


def test_a_digest_tells_configurations_apart_and_nothing_else() -> None:
    config = RunConfig()
    assert config_digest(config) == config_digest(RunConfig())
    others = [
        config.with_values({"meta.inner_lr": 0.2}),
        config.with_values({"meta.outer_lr": 0.2}),
        config.model_copy(update={"method": "metaprompting"}),
        config.with_values({"run.seeds": [1]}),
    ]
    assert len({config_digest(one) for one in [config, *others]}) == 5


class Forbidden:
    """A section that must not be looked at."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"{name} was asked for")


class GuardedMeta(MetaSection):
    """A ``meta`` section whose keys of training must not be looked at."""

    def __getattribute__(self, name: str) -> Any:
        if name in TRAINING_KEYS:
            raise AssertionError(f"meta.{name} was asked for")
        return super().__getattribute__(name)


@pytest.mark.meta
@pytest.mark.parametrize("method", methods())
def test_no_method_looks_at_the_keys_that_its_cells_leave_out(
    method: Any, tiny_mlm_folder: Callable[[str], Path], tmp_path: Path
) -> None:
    config = small_config(tiny_mlm_folder("bert"), write_data(tmp_path / "data")).model_copy(update={"method": method})
    marks: dict[str, Any] = {name: Forbidden() for name in component_sections()}
    cut = _without_idle_keys(config.model_copy(update={**marks}))
    idle = {name: mark for name, mark in marks.items() if getattr(cut, name) is not mark}
    assert idle
    guarded = config.model_copy(update={**idle})
    odd = config.with_values({"meta.iterations": 5})
    if _without_idle_keys(odd) == _without_idle_keys(config):
        guarded = guarded.model_copy(update={"meta": GuardedMeta(**config.meta.model_dump())})
    built = build_method(guarded, load_language_model(guarded), open_dataset(guarded.dataset), seed=0)
    (outcome,) = evaluate_tasks(built.learner, built.sources["test"], 1, built.eval_steps)
    assert 0 <= outcome.accuracy <= 1


@pytest.mark.parametrize("method", ["hatt", "ds", "mlada", "contrastnet"])
@pytest.mark.parametrize("shot", [1, 5])
def test_the_methods_without_an_inner_loop_are_run_with_their_authors_optimiser(method: str, shot: int) -> None:
    config = cell_config(row(f"main-{shot}shot", method), TableSettings(), "huffpost", shot, seed=0)
    assert (config.method, config.meta.shot, config.meta.patience) == (method, shot, 20)
    assert (config.meta.optimizer, config.meta.outer_lr) == {
        "hatt": ("sgd", 0.1),
        "contrastnet": ("adam", 1e-5),
    }.get(method, ("adam", 1e-3))
    shorter = TableSettings(overrides=("meta.iterations=7",))
    assert cell_config(row("main-5shot", method), shorter, "huffpost", 5, seed=0).meta.iterations == 7


def test_rows_are_known_by_what_they_print() -> None:
    table = TABLES["main-5shot"]
    for row in table.rows:
        for given in (row.name, row.label, row.label.upper()):
            assert row_name(table, given) == row.name
        assert rows_of(table, (row.label,)) == (row,)
    with pytest.raises(ConfigError, match="Did you mean"):
        row_name(table, table.rows[0].label + "s")
