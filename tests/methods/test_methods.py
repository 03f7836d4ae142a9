"""Every method on a tiny model: the same tasks, the same artefacts, and no trace of one task in the next."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from openprompt_meta.components import methods
from openprompt_meta.config.schema import RunConfig
from openprompt_meta.config.validation import config_from_mapping
from openprompt_meta.data.loading import open_dataset
from openprompt_meta.encoder.classifier import MaskClassifier, MaskOnlyClassifier
from openprompt_meta.encoder.packed import PackedClassifier
from openprompt_meta.errors import ConfigError
from openprompt_meta.learners.task import MetaLearner
from openprompt_meta.methods.language_model import load_language_model
from openprompt_meta.methods.method import Method, build_method
from openprompt_meta.runs import run
from openprompt_meta.runs.run import Run
from tests.helpers.small_runs import assert_same_run, cut_after, small_config, write_data

pytestmark = pytest.mark.meta

FROZEN = {"metaprompting": {"tune_model": False}}
MANUAL = {"verbalizer": "manual_verbalizer"}
VARIANTS: dict[str, dict[str, Any]] = {
    "metaprompter": {},
    "metaprompter, keys": {"method": "metaprompter", "meta": {"inner_parameters": "keys"}},
    "metaprompter, second order": {"method": "metaprompter", "meta": {"first_order": False}},
    "metaprompter, reptile": {"method": "metaprompter", "meta": {"learner": "reptile", "optimizer": "sgd"}},
    "metaprompter, bmg": {"method": "metaprompter", "meta": {"learner": "bmg"}, "bmg": {"target_steps": 2}},
    "metaprompting": {"method": "metaprompting", **MANUAL},
    "metaprompting, warp": {"method": "metaprompting", "verbalizer": "warp_verbalizer"},
    "metaprompting, reptile": {"method": "metaprompting", "meta": {"learner": "reptile"}},
    "metaprompting, bmg": {"method": "metaprompting", "meta": {"learner": "bmg"}, "bmg": {"target_steps": 2}},
    "metaprompting, frozen": {"method": "metaprompting", **FROZEN},
    "ds": {"method": "ds"},
    "mlada": {"method": "mlada"},
    "mlada, authors": {"method": "mlada", "mlada": {"mask_padding": False, "source": "first"}},
    "hatt": {"method": "hatt", "hatt": {"train_way": 3}, "meta": {"optimizer": "sgd", "outer_decay": "tenths"}},
    "contrastnet": {"method": "contrastnet", "meta": {"outer_lr": 1e-4, "outer_warmup": 0.5, "outer_clip": 0.5}},
    "verbalizer, rep": {"method": "verbalizer"},
    "verbalizer, warp": {
        "method": "verbalizer",
        "verbalizer": "warp_verbalizer",
        "warp_verbalizer": {"fit_steps": 0},
    },
    "verbalizer, dart": {"method": "verbalizer", "verbalizer": "dart_verbalizer"},
    "verbalizer, proto": {"method": "verbalizer", "verbalizer": "proto_verbalizer"},
    "verbalizer, hand-crafted": {"method": "verbalizer", **MANUAL},
    "mask_prototypes": {"method": "mask_prototypes"},
    "mean_prototypes": {"method": "mean_prototypes"},
    "logistic_regression": {"method": "logistic_regression"},
    "nearest_neighbours": {"method": "nearest_neighbours"},
    "fine_tuning": {"method": "fine_tuning", "fine_tuning": {"steps": 3}},
    "contrastive": {"method": "contrastive", "contrastive": {"steps": 3, "pairs": 4}},
}
LEARNED = [
    "metaprompter, reptile",
    "metaprompter, bmg",
    "metaprompting",
    "metaprompting, bmg",
    "metaprompting, frozen",
    "ds",
    "mlada",
    "hatt",
    "contrastnet",
]
UNTRAINED = [
    "verbalizer, warp",
    "mask_prototypes",
    "mean_prototypes",
    "logistic_regression",
    "nearest_neighbours",
    "fine_tuning",
    "contrastive",
]
TUNED = [
    name
    for name in VARIANTS
    if name.startswith(("metaprompting", "verb", "fine", "contrastive")) and "froz" not in name
]


@pytest.fixture
def config(tiny_mlm_folder: Callable[[str], Path], tmp_path: Path) -> RunConfig:
    sizes = {"iterations": 3, "validate_every": 2, "valid_tasks": 2, "test_tasks": 2}
    return small_config(tiny_mlm_folder("bert"), write_data(tmp_path / "data"), **sizes)


def variant(config: RunConfig, name: str) -> RunConfig:
    mapping = config.model_dump()
    for key, value in VARIANTS[name].items():
        mapping[key] = {**mapping[key], **value} if isinstance(value, dict) else value
    return config_from_mapping(mapping)


def built(config: RunConfig, loaded: Any = None, seed: int = 0) -> Method:
    return build_method(config, loaded or load_language_model(config), open_dataset(config.dataset), seed)


def bits(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: value.detach().clone() for name, value in model.state_dict().items()}


def assert_same_bits(model: torch.nn.Module, before: dict[str, torch.Tensor]) -> None:
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def own_model(method: Method) -> torch.nn.Module:
    """The language model that a method tunes."""
    return method.classifier.plm if method.classifier is not None else method.learner.encoder  # type: ignore[attr-defined]


def test_every_name_of_the_configuration_is_built_and_tested() -> None:
    assert {VARIANTS[name].get("method", "metaprompter") for name in VARIANTS} == methods().keys()


@pytest.mark.parametrize("name", VARIANTS)
def test_a_method_runs_and_leaves_the_language_model_it_was_given_alone(config: RunConfig, name: str) -> None:
    config = variant(config, name)
    loaded = load_language_model(config)
    before = bits(loaded.model)
    method = built(config, loaded)
    if isinstance(method.learner, MetaLearner):
        step = method.learner.meta_step([method.sources["train"][i] for i in range(2)])
        assert step.gradient_norm > 0
    outcome = method.learner.evaluate(method.sources["test"][0], method.eval_steps)
    assert torch.allclose(outcome.log_probabilities.exp().sum(dim=-1).float(), torch.ones(6), atol=1e-5)
    assert_same_bits(loaded.model, before)
    assert not any(parameter.requires_grad for parameter in loaded.model.parameters())


@pytest.mark.parametrize("name", TUNED)
def test_judging_a_task_leaves_every_weight_as_it_was(config: RunConfig, name: str) -> None:
    method = built(variant(config, name))
    before = bits(own_model(method))
    tasks = [method.sources["test"][i] for i in range(2)]
    first = [method.learner.evaluate(task, method.eval_steps) for task in tasks]
    assert_same_bits(own_model(method), before)
    # In the other order, so that a trace of one task in the next would show.
    again = [method.learner.evaluate(task, method.eval_steps) for task in tasks[::-1]][::-1]
    for one, two in zip(first, again, strict=True):
        assert torch.equal(one.log_probabilities, two.log_probabilities)
        assert one.inner_losses == two.inner_losses
    untuned = method.learner.evaluate(tasks[0], 0)
    assert not torch.equal(untuned.log_probabilities, first[0].log_probabilities), "the steps must do something"


def test_a_seed_starts_from_the_weights_that_were_loaded_whatever_another_learned(config: RunConfig) -> None:
    config = variant(config, "metaprompting")
    loaded = load_language_model(config)
    first = built(config, loaded)
    first.learner.meta_step([first.sources["train"][0]])  # type: ignore[attr-defined]
    pairs = zip(own_model(first).parameters(), loaded.model.parameters(), strict=True)
    assert not all(torch.equal(one, two) for one, two in pairs)
    assert_same_bits(own_model(built(config, loaded, seed=1)), bits(loaded.model))


def test_all_methods_see_the_same_tasks(config: RunConfig) -> None:
    loaded = load_language_model(config)
    seen = []
    for name in VARIANTS:
        sources = built(variant(config, name), loaded, seed=5).sources
        seen.append([sources[split].episodes[i] for split in ("train", "valid", "test") for i in range(3)])
        task = sources["test"][1]
        assert tuple(task.classes) == seen[0][7].classes
        assert tuple(task.query["label"].tolist()) == seen[0][7].query_labels
    assert all(episodes == seen[0] for episodes in seen)


@pytest.mark.parametrize("name", LEARNED)
def test_what_is_learned_across_tasks_resumes_to_the_same_bits(
    config: RunConfig, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = variant(config, name)
    results = Run(config, tmp_path / "straight", show_progress=False).train()
    cut_after(2, config, tmp_path / "cut", monkeypatch)
    torch.manual_seed(3)
    assert Run(config, tmp_path / "cut", show_progress=False).train() == results
    assert_same_run(tmp_path / "straight", tmp_path / "cut", keeps_state=config.meta.optimizer != "sgd")


@pytest.mark.parametrize("name", UNTRAINED)
def test_what_learns_nothing_across_tasks_is_tested_at_once_and_resumes(
    config: RunConfig, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = variant(config, name)
    results = Run(config, tmp_path / "straight", show_progress=False).train()
    assert results is not None
    assert results["method"] == config.method
    test = json.loads((tmp_path / "straight" / "seed-0" / "test.json").read_text())
    assert len(test["accuracies"]) == 2
    assert (test["best_iteration"], test["parameters"]) == (0, results["parameters"])
    assert not list((tmp_path / "straight" / "seed-0" / "checkpoints").iterdir())

    def dying(*args: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(run, "write_atomic", dying)
        with pytest.raises(KeyboardInterrupt):
            Run(config, tmp_path / "cut", show_progress=False).train()
    assert Run(config, tmp_path / "cut", show_progress=False).train() == results
    assert Run(config, tmp_path / "cut", show_progress=False).test()["test_accuracy"] == results["test_accuracy"]


def test_bert_has_the_papers_number_of_parameters(config: RunConfig) -> None:
    with torch.device("meta"):
        bert = transformers.BertForMaskedLM(transformers.BertConfig())
    model = sum(parameter.numel() for parameter in bert.parameters())
    assert round((model + 8 * 768) / 1e6, 2) == 109.52
    # The same sum at the tiny model's size, as the methods count it.
    loaded = load_language_model(config)
    tiny = sum(parameter.numel() for parameter in loaded.model.parameters())
    encoder = sum(parameter.numel() for parameter in loaded.model.base_model.parameters())
    expected = {
        "metaprompter": 3 * (32 + 2 * 32),
        "metaprompting": tiny + 2 * 32,
        "metaprompting, frozen": 2 * 32,
        "verbalizer, rep": tiny,
        "mean_prototypes": 0,
        "nearest_neighbours": 0,
        "logistic_regression": 3 * 33,
        "fine_tuning": encoder + 3 * 33,
        "contrastive": encoder + 3 * 33,
    }
    for name, count in expected.items():
        assert built(variant(config, name), loaded).num_parameters == count


def test_one_prompt_is_the_same_whatever_the_query(config: RunConfig) -> None:
    method = built(variant(config, "metaprompting, frozen"))
    pool = method.template.pool
    assert pool.num_prompts == 1
    assert torch.equal(pool(torch.randn(4, 32)), pool.prompts.expand(4, -1, -1))
    key = pool.keys.detach().clone()
    method.learner.meta_step([method.sources["train"][0]])  # type: ignore[attr-defined]
    assert torch.equal(pool.keys, key), "a key without a say is not learned"


@pytest.mark.parametrize("name", ["metaprompting", "verbalizer, proto"])
@pytest.mark.parametrize("family", ["bert", "distilbert"])
def test_a_tuned_model_gives_the_same_by_either_engine(
    config: RunConfig, name: str, family: str, tiny_mlm_folder: Callable[[str], Path]
) -> None:
    config = config.with_values({"plm.model_path": str(tiny_mlm_folder(family))})
    outcomes, weights, kinds = [], [], []
    for engine in ("plain", "fast"):
        chosen = variant(config.with_values({"run.engine": engine}), name)
        loaded = load_language_model(chosen)
        loaded.model.double()
        method = built(chosen, loaded)
        method.template.double()
        assert method.classifier is not None
        method.classifier.verbalizer.double()
        kinds.append(type(method.classifier))
        if isinstance(method.learner, MetaLearner):  # the outer step: a gradient for every weight of the model
            method.learner.meta_step([method.sources["train"][i] for i in range(2)])
        outcomes.append(method.learner.evaluate(method.sources["test"][0], 2))
        weights.append(bits(own_model(method)))
    assert kinds == [MaskClassifier, PackedClassifier if family == "bert" else MaskOnlyClassifier]
    assert torch.allclose(outcomes[0].log_probabilities, outcomes[1].log_probabilities, rtol=1e-6, atol=1e-8)
    for key, value in weights[0].items():
        assert torch.allclose(value, weights[1][key], rtol=1e-6, atol=1e-9), key


@pytest.mark.parametrize("family", ["bert", "electra", "albert"])
@pytest.mark.parametrize("name", ["metaprompting", "verbalizer, rep", "fine_tuning", "contrastive"])
def test_a_tuned_model_keeps_its_weights_in_single_precision_and_multiplies_in_half(
    config: RunConfig,
    name: str,
    family: str,
    tiny_mlm_folder: Callable[[str], Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    outcomes = {}
    for precision in ("float32", "bfloat16"):
        plm = config.plm.model_copy(update={"precision": precision, "model_path": str(tiny_mlm_folder(family))})
        chosen = with_larger_steps(variant(config.model_copy(update={"plm": plm}), name))
        method = built(chosen)
        assert {parameter.dtype for parameter in own_model(method).parameters()} == {torch.float32}
        products = seen_products(monkeypatch)
        outcomes[precision] = method.learner.evaluate(method.sources["test"][0], 2)
        assert products == {getattr(torch, precision)}
    one, two = outcomes.values()
    assert not torch.equal(one.log_probabilities, two.log_probabilities)
    assert one.log_probabilities.dtype == two.log_probabilities.dtype
    # By how much the first step changes the loss; not at all if the step were rounded away.
    changes = [outcome.inner_losses[1] - outcome.inner_losses[0] for outcome in (one, two)]
    assert abs(changes[0]) > 0.02
    assert changes[1] == pytest.approx(changes[0], rel=0.3)


def with_larger_steps(config: RunConfig) -> RunConfig:
    """Steps that change a tiny model's loss by far more than half precision rounds it."""
    return config.with_values(
        {"metaprompting.model_lr": 5e-3, "verbalizer_tuning.lr": 5e-3, "fine_tuning.lr": 5e-3, "contrastive.lr": 5e-3}
    )


def test_a_model_that_was_loaded_in_half_precision_is_tuned_in_single(config: RunConfig) -> None:
    half = load_language_model(config.with_values({"plm.precision": "bfloat16"}))
    assert half.model.dtype is torch.bfloat16
    method = built(variant(config, "verbalizer, rep"), half)
    assert {parameter.dtype for parameter in own_model(method).parameters()} == {torch.float32}
    assert half.model.dtype is torch.bfloat16


def seen_products(monkeypatch: pytest.MonkeyPatch) -> set[torch.dtype]:
    """Fills with what the encoder's linear layers give from here on."""
    found: set[torch.dtype] = set()
    stock = torch.nn.Linear.forward

    def forward(self: torch.nn.Linear, rows: torch.Tensor) -> torch.Tensor:
        given = stock(self, rows)
        if self.out_features == 37:  # the tiny model's feed-forward layers
            found.add(given.dtype)
        return given

    monkeypatch.setattr(torch.nn.Linear, "forward", forward)
    return found


def test_a_discrete_prompt_is_the_text_and_the_words_alone(config: RunConfig) -> None:
    method = built(variant(config, "verbalizer, rep"))
    source = method.sources["test"]
    tokenizer = method.template.tokenizer
    episode = source.episodes[0]
    row = source[0].support["input_ids"][0]
    text = open_dataset(config.dataset).test.texts[episode.support[0]]
    expected = tokenizer(f"{text} Topic is [MASK].")["input_ids"]
    assert row[: len(expected)].tolist() == expected
    assert not source[0].support["soft_token_ids"].any()


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"method": "metaprompting", "meta": {"first_order": False}}, "meta.first_order: second derivatives"),
        ({"method": "verbalizer", "plm": {"precision": "float16"}}, "plm.precision: got float16"),
        ({"method": "metaprompting", "meta": {"inner_parameters": "keys"}}, "meta.inner_parameters: got keys"),
        ({"method": "metapromter"}, "Did you mean 'metaprompter'"),
        ({"method": "verbalizer", **MANUAL}, "verbalizer: manual_verbalizer needs a model with a vocabulary head"),
    ],
)
def test_what_a_method_cannot_do_is_refused_before_anything_loads(given: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        config_from_mapping(given)
    assert told in str(refusal.value)


def test_a_method_without_prompts_has_no_say_about_the_verbalizer() -> None:
    assert config_from_mapping({"method": "mean_prototypes", **MANUAL}).method == "mean_prototypes"
    assert config_from_mapping({"method": "metaprompting", **FROZEN, "meta": {"first_order": False}}) is not None


def test_the_masks_features_are_those_of_the_bare_template_whatever_the_section_says(config: RunConfig) -> None:
    config = variant(config, "mask_prototypes")
    expected = built(config)
    for keys in (
        {"query": "embeddings"},
        {"query": "first_layer", "top_n": 2},
        {"features": "mean", "init": "general", "num_prompts": 1, "as_prefix": True, "prefix_strength": 0.5},
    ):
        found = built(config.with_values({f"prompt_pool_template.{key}": value for key, value in keys.items()}))
        one, two = (method.sources["test"][0].support["features"] for method in (expected, found))
        assert torch.equal(one, two)


def test_with_test_classes_valid_the_test_never_sees_a_test_class(config: RunConfig, tmp_path: Path) -> None:
    config = config.with_values({"method": "mean_prototypes", "meta.test_classes": "valid"})
    dataset = open_dataset(config.dataset)
    method = build_method(config, load_language_model(config), dataset, seed=0)
    for index in range(5):
        test, valid = method.sources["test"][index], method.sources["valid"][index]
        assert set(test.classes) <= set(dataset.valid.classes)
        assert test.classes == valid.classes
    results = Run(config, tmp_path / "run", show_progress=False).train()
    assert results is not None
    assert results["classes"] == "valid"
