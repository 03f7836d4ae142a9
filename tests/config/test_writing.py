"""A configuration written as YAML reads back as the same one, and the page of all keys is up to date."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from openprompt_meta.config.loading import load_config
from openprompt_meta.config.schema import RunConfig, component_sections, describe
from openprompt_meta.config.validation import config_from_mapping
from openprompt_meta.config.writing import reference, to_yaml
from openprompt_meta.config.yaml_file import parse_yaml

ROOT = Path(__file__).parents[2]

words = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=12) | st.sampled_from(
    ["null", "yes", "1e-3", "2024-01-31", "=", "<<", "~", "a: b #", "a\nb", "a\n---\n b", " a ", "\n"]
)
counts = st.integers(1, 10**6)
rates = st.floats(0, 10, exclude_min=True, allow_subnormal=False)
shares = st.floats(0, 1)


@st.composite
def mappings(draw: st.DrawFn) -> dict[str, Any]:
    verbalizer = draw(st.sampled_from(["rep_verbalizer", "warp_verbalizer", "proto_verbalizer", "manual_verbalizer"]))
    sections = {
        "plm": {"model_path": st.just("bert-base-uncased"), "dropout": st.booleans()},
        "dataset": {
            "name": st.just("hwu64"),
            "path": st.none() | words,
            "text_column": words,
            "split_counts": st.none() | st.lists(st.integers(0, 50), max_size=4),
            "max_seq_length": st.integers(512, 1024),
        },
        "prompt_pool_template": {
            "text": words.map(lambda text: f'{{"placeholder": "text_a"}} {text.replace("{", "")} {{"mask"}}'),
            "num_prompts": st.integers(4, 99),
            "top_n": st.none() | st.integers(1, 4),
        },
        "rep_verbalizer": {"temperature": rates, "inner_temperature": st.none() | rates, "mix_lambda": shares},
        "warp_verbalizer": {"fit_lr": rates, "fit_steps": st.integers(0, 9)},
        "meta": {"way": st.integers(2, 9), "shot": counts, "outer_lr": rates, "patience": st.none() | counts},
        "run": {"seeds": st.lists(st.integers(0, 2**32 - 1), min_size=1, unique=True, max_size=4), "folder": words},
    }
    drawn = {name: draw(st.fixed_dictionaries({}, optional=keys)) for name, keys in sections.items()}
    drawn["plm"]["model_path"] = "bert-base-uncased"
    drawn["dataset"]["name"] = "hwu64"
    return {**drawn, "verbalizer": verbalizer}


@settings(max_examples=60, derandomize=True, deadline=None, database=None)
@given(mappings())
def test_what_is_written_reads_back_as_the_same_configuration(mapping: dict[str, Any]) -> None:
    config = config_from_mapping(mapping)
    assert config_from_mapping(parse_yaml(to_yaml(config), "written").content) == config


@settings(max_examples=60, derandomize=True, deadline=None, database=None)
@given(mappings())
def test_a_configuration_says_what_the_mapping_said(mapping: dict[str, Any]) -> None:
    config = config_from_mapping(mapping).model_dump()
    for name, value in mapping.items():
        assert config[name] == ({**config[name], **value} if isinstance(value, dict) else value)


def test_a_written_file_loads_as_the_same_configuration(tmp_path: Path) -> None:
    config = load_config(ROOT / "yamls" / "authors.yaml")
    file = tmp_path / "config.yaml"
    file.write_text(to_yaml(config), encoding="utf-8")
    assert load_config(file) == config


def test_every_key_that_counts_is_written_with_its_meaning() -> None:
    written = to_yaml(RunConfig())
    content = yaml.safe_load(written)
    assert content["meta"]["inner_lr"] == 0.1
    assert "# α, the step size of the inner loop.\n  inner_lr: 0.1\n" in written
    for key in describe():
        if key.section not in component_sections().keys() - {"rep_verbalizer"}:
            assert key.name in (content[key.section] if key.section else content)


def test_every_key_is_written_on_one_line() -> None:
    written = to_yaml(config_from_mapping({"run": {"folder": "a\n---\nb"}}))
    lines = [line for line in written.splitlines() if line and not line.lstrip().startswith("#")]
    assert all(re.match(r"(?:  )?\w+:", line) for line in lines)


def test_settings_of_a_verbalizer_that_is_not_chosen_are_written_if_they_were_changed() -> None:
    assert "warp_verbalizer:" not in to_yaml(RunConfig())
    changed = config_from_mapping({"warp_verbalizer": {"fit_steps": 9}})
    assert yaml.safe_load(to_yaml(changed))["warp_verbalizer"]["fit_steps"] == 9


def test_the_page_of_all_keys_is_up_to_date() -> None:
    page = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
    assert page == reference(), "run: python -m openprompt_meta.config.writing > docs/configuration.md"
