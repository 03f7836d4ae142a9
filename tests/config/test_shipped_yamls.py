"""Every YAML that ships says what its name says."""

from __future__ import annotations

from pathlib import Path

import pytest

from openprompt_meta.components import methods, verbalizers
from openprompt_meta.config.loading import AUTHORS, RECOMMENDED, load_config
from openprompt_meta.config.schema import PromptPoolTemplateSection, RunConfig

YAMLS = Path(__file__).parents[2] / "yamls"
DATASETS = {
    "20news": "Topic is",
    "amazon": "Topic is",
    "huffpost": "Topic is",
    "reuters": "Topic is",
    "hwu64": "Topic is about",
    "liu54": "Topic is about",
}
MODELS = {"bert": ("bert-base-uncased", 0.5), "minilm": ("minilm", 1.0)}
RUNS = [(dataset, shot, model) for dataset in DATASETS for shot in (1, 5) for model in MODELS]


def test_there_is_a_file_for_every_data_set_shot_and_model_and_no_other() -> None:
    found = {f"{path.parent.name}/{path.name}" for dataset in DATASETS for path in (YAMLS / dataset).iterdir()}
    assert found == {f"{dataset}/{shot}shot-{model}.yaml" for dataset, shot, model in RUNS}


@pytest.mark.parametrize(("dataset", "shot", "model"), RUNS)
def test_a_file_resolves_to_what_its_name_says(dataset: str, shot: int, model: str) -> None:
    # What we recommend for MiniLM gives way to the paper's setting.
    config = load_config(YAMLS / dataset / f"{shot}shot-{model}.yaml", ["preset=paper"] if model == "minilm" else [])
    assert (config.dataset.name, config.dataset.path) == (dataset, f"data/{dataset}")
    assert (config.meta.way, config.meta.shot, config.meta.query) == (5, shot, 15)
    assert (config.plm.model_path, config.rep_verbalizer.mix_lambda) == MODELS[model]
    text = f'{{"placeholder": "text_a"}} {{"pool"}} {DATASETS[dataset]} {{"mask"}}.'
    assert config.prompt_pool_template == PromptPoolTemplateSection(text=text)


@pytest.mark.parametrize(("dataset", "shot", "model"), RUNS)
def test_a_file_changes_nothing_of_the_papers_learning_but_the_shots(dataset: str, shot: int, model: str) -> None:
    overrides = ["meta.shot=5", *(["preset=paper"] if model == "minilm" else [])]
    meta = load_config(YAMLS / dataset / f"{shot}shot-{model}.yaml", overrides).meta
    assert meta == RunConfig().meta
    assert (meta.inner_lr, meta.outer_lr, meta.iterations, meta.validate_every) == (0.1, 1e-3, 3000, 50)
    assert (meta.inner_steps, meta.inner_steps_eval, meta.optimizer, meta.first_order) == (5, 15, "adam", True)


@pytest.mark.parametrize(("dataset", "shot"), [(dataset, shot) for dataset in DATASETS for shot in (1, 5)])
def test_minilm_is_run_as_recommended(dataset: str, shot: int) -> None:
    config = load_config(YAMLS / dataset / f"{shot}shot-minilm.yaml")
    for section in ("prompt_pool_template", "rep_verbalizer", "meta"):
        for key, value in RECOMMENDED[section].items():
            assert config.value_at(f"{section}.{key}") == value
    assert config.meta.shot == shot


@pytest.mark.parametrize("path", sorted((YAMLS / "base").glob("*.yaml")), ids=lambda path: path.stem)
def test_a_base_file_is_sound_by_itself(path: Path) -> None:
    load_config(path)


def test_the_demo_needs_nothing_that_does_not_ship() -> None:
    config = load_config(YAMLS / "demo.yaml")
    assert (config.dataset.name, config.dataset.path, config.plm.model_path) == ("demo", None, "minilm")
    assert (config.meta.way, config.meta.shot, config.meta.query) == (5, 5, 15)


def test_the_authors_example_is_the_preset_on_the_papers_model() -> None:
    config = load_config(YAMLS / "authors.yaml")
    assert config.plm.model_path == "bert-base-uncased"
    assert config.rep_verbalizer.mix_lambda == 0.5
    for key, value in AUTHORS["meta"].items():
        assert getattr(config.meta, key) == value
    assert config.rep_verbalizer.centring == "transductive"


def test_there_is_a_file_for_every_method_named_after_it() -> None:
    files = sorted((YAMLS / "methods").glob("*.yaml"))
    method_of = {path: load_config(path).method for path in files}
    assert set(method_of.values()) == methods().keys()
    assert all(path.stem.partition("-")[0] == method for path, method in method_of.items())
    for learner in ("reptile", "bmg"):
        assert {method_of[path] for path in files if load_config(path).meta.learner == learner} == {
            "metaprompter",
            "metaprompting",
        }
    for verbalizer in verbalizers():
        assert any(method_of[path] == "verbalizer" and load_config(path).verbalizer == verbalizer for path in files)
