"""An OpenPrompt-style YAML: one changed line swaps a verbalizer, and every mistake is named before anything loads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from openprompt_meta.errors import ConfigError
from openprompt_meta.openprompt_runs.config import make_config, parse_openprompt_overrides, read_config
from tests.helpers.openprompt_runs import small_config

pytestmark = pytest.mark.prompts

SHIPPED = Path(__file__).resolve().parents[2] / "yamls" / "openprompt" / "demo_intents.yaml"
VERBALIZERS = ("rep_verbalizer", "warp_verbalizer", "proto_verbalizer")


def config_of(**top: Any) -> dict[str, Any]:
    return small_config(Path("model"), Path("data"), Path("logs"), **top)


def refusal(given: dict[str, Any], *overrides: str) -> str:
    with pytest.raises(ConfigError) as caught:
        make_config(given, parse_openprompt_overrides(overrides))
    return str(caught.value)


def with_values(given: dict[str, Any], section: str, **values: Any) -> dict[str, Any]:
    return {**given, section: {**given.get(section, {}), **values}}


# -- the one-line swap ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", VERBALIZERS)
def test_the_shipped_yaml_swaps_by_one_line_or_one_override(name: str, tmp_path: Path) -> None:
    lines = SHIPPED.read_text(encoding="utf-8").splitlines(keepends=True)
    swapped = [f"verbalizer: {name}\n" if line.startswith("verbalizer:") else line for line in lines]
    assert sum(one != other for one, other in zip(lines, swapped, strict=True)) <= 1
    (tmp_path / "swapped.yaml").write_text("".join(swapped), encoding="utf-8")
    by_line = read_config(tmp_path / "swapped.yaml")
    by_override = read_config(SHIPPED, parse_openprompt_overrides(["--verbalizer", name]))
    assert by_line == by_override
    assert by_line.verbalizer == name
    assert name in by_line
    assert not any(other in by_line for other in VERBALIZERS if other != name)


def test_a_verbalizer_of_ours_needs_no_section() -> None:
    given = config_of(verbalizer="warp_verbalizer")
    assert "warp_verbalizer" not in given
    assert make_config(given).warp_verbalizer.optimize.lr == 0.01


def test_one_of_openprompts_without_a_section_is_refused_with_the_lines_to_add() -> None:
    given = config_of()
    del given["soft_verbalizer"]
    message = refusal(given, "--verbalizer", "soft_verbalizer")
    assert "verbalizer is soft_verbalizer, but there is no section of that name" in message
    assert "        soft_verbalizer:\n          parent_config: verbalizer" in message


def test_an_override_of_a_key_of_the_chosen_section_is_enough_of_a_section() -> None:
    given = config_of()
    del given["soft_verbalizer"]
    overrides = parse_openprompt_overrides(["--verbalizer", "soft_verbalizer", "--soft_verbalizer.optimize.lr", "0.5"])
    assert make_config(given, overrides).soft_verbalizer.optimize.lr == 0.5


def test_openprompts_defaults_stand_where_nothing_is_said() -> None:
    config = make_config(config_of())
    assert config.train.gradient_accumulation_steps == 1
    assert config.checkpoint.higher_better is True


def test_what_a_run_saves_reads_back_as_the_same(tmp_path: Path) -> None:
    config = make_config(config_of())
    (tmp_path / "config.yaml").write_text(config.dump(), encoding="utf-8")
    assert read_config(tmp_path / "config.yaml") == config


# -- overrides --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "path", "expected"),
    [
        (["--train.num_epochs", "9"], "train.num_epochs", 9),
        (["--train.num_epochs=9"], "train.num_epochs", 9),
        (["--prompt_pool_template.optimize.lr", "1e-3"], "prompt_pool_template.optimize.lr", 0.001),
        (["--rep_verbalizer.temperature", "3e0"], "rep_verbalizer.temperature", 3.0),
        (["--train.max_grad_norm", "-1"], "train.max_grad_norm", -1.0),
        (["--train.clean"], "train.clean", True),
        (["--plm.optimize.freeze_para"], "plm.optimize.freeze_para", False),
        (["--train.clean", "true"], "train.clean", True),
        (["--classification.metric", "accuracy", "micro-f1"], "classification.metric", ["accuracy", "micro-f1"]),
        (["--classification.metric", "accuracy"], "classification.metric", ["accuracy"]),
        (["--dataset.shots", "3"], "dataset.shots", 3),
        (["--plm.model_path", "2024"], "plm.model_path", "2024"),
        (["--prompt_pool_template.text", '{"mask"}'], "prompt_pool_template.text", '{"mask"}'),
    ],
)
def test_overrides_are_openprompts(words: list[str], path: str, expected: Any) -> None:
    node: Any = make_config(config_of(), parse_openprompt_overrides(words))
    for key in path.split("."):
        node = node[key]
    assert node == expected
    assert type(node) is type(expected)


def test_numbers_without_a_point_are_numbers_in_yaml_too(tmp_path: Path) -> None:
    given = with_values(config_of(), "rep_verbalizer", temperature="@")
    text = yaml.safe_dump(given).replace("'@'", "1e1")
    (tmp_path / "c.yaml").write_text(text, encoding="utf-8")
    assert read_config(tmp_path / "c.yaml").rep_verbalizer.temperature == 10.0


# -- mistakes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (config_of(seed=3), "seed is not a key. It belongs into a section: reproduce.seed or dataset.seed"),
        (config_of(verbaliser="x"), "verbaliser is not a key. Did you mean 'verbalizer'?"),
        (config_of(train=5), "train is 5; expected a section"),
        (with_values(config_of(), "train", num_epoch=3), "train.num_epoch is not a key. Did you mean 'num_epochs'?"),
        (with_values(config_of(), "train", num_epochs="two"), "train.num_epochs is 'two'; expected int, such as 5"),
        (with_values(config_of(), "train", clean=1), "train.clean is 1; expected bool"),
        (with_values(config_of(), "train", train_verblizer="never"), "this runner takes pre, alternate, post"),
        (with_values(config_of(), "rep_verbalizer", temperatur=3), "rep_verbalizer.temperatur is not a key"),
        (
            with_values(config_of(), "prompt_pool_template", optimize={"learning_rate": 1}),
            "prompt_pool_template.optimize.learning_rate is not a key",
        ),
        (
            with_values(config_of(), "prompt_pool_template", optimize={"lr": None}),
            "prompt_pool_template.optimize lacks lr",
        ),
        (config_of(template="prompt_pool"), "template is 'prompt_pool'; expected one of"),
        (config_of(verbalizer=None), "verbalizer is not set"),
        (config_of(task="generation"), "task is 'generation'; this runner takes classification"),
        (config_of(calibrate="pmi_calibrate"), "calibrate is 'pmi_calibrate'; this runner takes nothing"),
        (config_of(prompt_pool_template={"num_prompts": 2}), "prompt_pool_template.text is not set"),
        (config_of(plm={"model_name": "mlms", "model_path": "x"}), "Did you mean 'mlm'?"),
        (config_of(plm={"model_name": "mlm"}), "plm.model_path is not set"),
        (config_of(dataset={"name": "demo_intent"}), "Did you mean 'demo_intents'?"),
        (with_values(config_of(), "classification", metric=[]), "classification.metric is empty"),
    ],
)
def test_each_mistake_is_named(given: dict[str, Any], reason: str) -> None:
    assert reason in refusal(given)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--train.epochs", "3"], "train.epochs is not a key"),
        (["--train.num_epochs"], "--train.num_epochs needs a value"),
        (["--train.num_epochs", "1", "2"], "--train.num_epochs takes one value"),
        (["--train.num_epochs", "many"], "train.num_epochs is 'many'; expected int"),
        (["--train", "3"], "train is 3; expected a section"),
    ],
)
def test_a_mistaken_override_is_named(words: list[str], reason: str) -> None:
    assert reason in refusal(config_of(), *words)


def test_a_word_without_an_option_is_refused() -> None:
    with pytest.raises(ConfigError, match="'loose' belongs to no option"):
        parse_openprompt_overrides(["loose", "--train.clean"])


def test_all_mistakes_come_in_one_message_with_their_lines(tmp_path: Path) -> None:
    text = SHIPPED.read_text(encoding="utf-8") + "seed: 3\n"
    text = text.replace("num_epochs:", "epochs:").replace("name: demo_intents", "name: demo")
    (tmp_path / "c.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        read_config(tmp_path / "c.yaml")
    message = str(caught.value)
    number = 1 + text.splitlines().index("seed: 3")
    assert f"c.yaml, line {number}: seed is not a key" in message
    assert "train.epochs is not a key" in message
    assert "dataset.name is 'demo'" in message


@pytest.mark.parametrize(
    ("text", "reason"),
    [("- a\n- b\n", "holds no sections"), ("a: [1\n", "line"), ("x: !!python/name:os.system ''\n", "refused")],
)
def test_a_file_that_is_no_configuration_is_refused(text: str, reason: str, tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=reason):
        read_config(tmp_path / "c.yaml")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere\.yaml"):
        read_config(tmp_path / "nowhere.yaml")
