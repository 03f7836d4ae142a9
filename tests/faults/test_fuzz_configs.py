"""Mangled configurations, overrides and template texts: a configuration or a refusal, soon, and nothing written."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from openprompt_meta.config.loading import load_config
from openprompt_meta.config.schema import RunConfig, describe
from openprompt_meta.config.template_text import check_pieces, parse_template_text
from openprompt_meta.config.validation import config_from_mapping
from openprompt_meta.config.writing import to_yaml
from openprompt_meta.config.yaml_file import parse_yaml
from openprompt_meta.errors import ConfigError, TemplateError
from tests.helpers.fuzzing import fuzzed, junk, mangled, only_reading, tree

ROOT = Path(__file__).parents[2]
SHIPPED = sorted(
    path.relative_to(ROOT / "yamls") for path in (ROOT / "yamls").rglob("*.yaml") if "openprompt" not in path.parts
)
PATHS = [key.path for key in describe()]
LAYOUT = '{"placeholder": "text_a", "shortenable": True} {"pool"} Topic is {"mask"}.'


@pytest.fixture(scope="module")
def yamls(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fuzz") / "yamls"
    shutil.copytree(ROOT / "yamls", folder)
    return folder


def check(file: Path, *overrides: str) -> None:
    """The property: a configuration that reads back as the same one, or a refusal."""
    before = tree(file.parents[1])
    with only_reading():
        try:
            config = load_config(file, overrides)
        except ConfigError as error:
            told = str(error)
        else:
            told = "loaded"
            assert isinstance(config, RunConfig)
            assert config_from_mapping(parse_yaml(to_yaml(config), "written").content) == config
    assert 0 < len(told) < 50_000
    assert tree(file.parents[1]) == before


@fuzzed(60)
@given(st.data())
def test_mangled_bytes_of_the_shipped_yamls(yamls: Path, data: st.DataObject) -> None:
    shipped = yamls / data.draw(st.sampled_from(SHIPPED))
    file = shipped.with_name("fuzzed.yaml")
    file.write_bytes(data.draw(mangled(shipped.read_bytes())))
    check(file)


@fuzzed(60)
@given(st.data())
def test_other_values_in_the_shipped_yamls(yamls: Path, data: st.DataObject) -> None:
    shipped = yamls / data.draw(st.sampled_from(SHIPPED))
    content: dict[str, Any] = yaml.safe_load(shipped.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        section, _, name = data.draw(
            st.sampled_from([*PATHS, "inherit", "preset", "version", "x", "meta", "run"])
        ).rpartition(".")
        owner = content.setdefault(section, {}) if section else content
        if isinstance(owner, dict):
            owner[name] = data.draw(junk())
    file = shipped.with_name("fuzzed.yaml")
    # Halves of characters cannot be written; PyYAML escapes everything else.
    file.write_text(yaml.safe_dump(content), encoding="utf-8", errors="replace")
    check(file)


@fuzzed(60)
@given(
    st.lists(
        st.tuples(
            st.sampled_from([*PATHS, "version", "preset", "inherit", "a.b.c", "", "."]), st.text() | junk().map(str)
        ),
        max_size=4,
    ),
    st.lists(st.text(), max_size=2),
)
def test_overrides(yamls: Path, pairs: list[tuple[str, str]], others: list[str]) -> None:
    check(yamls / "demo.yaml", *(f"{path}={value}" for path, value in pairs), *others)


@fuzzed(100)
@given(st.data())
def test_template_texts(data: st.DataObject) -> None:
    fragments = st.sampled_from(
        [
            '{"mask"}',
            '{"pool"}',
            '{"placeholder": "text_a"}',
            '{"',
            '"}',
            "{",
            "}",
            "'",
            "\\",
            " ",
            "x",
            "{1}",
            "{None: 1}",
            '{"mask": None, "pool"}',
            '{"text": ()}',
            "{[]}",
            '{"shortenable": "no"}',
            '"add_prefix_space": 3',
        ]
    )
    text = data.draw(
        st.lists(fragments | st.text(max_size=5), max_size=12).map("".join)
        | mangled(LAYOUT.encode()).map(lambda content: content.decode("utf-8", "surrogateescape"))
    )
    with only_reading():
        try:
            pieces = parse_template_text(text)
            check_pieces(pieces)
        except TemplateError as error:
            told = str(error)
        else:
            told = "loaded"
            assert sum("mask" in piece for piece in pieces) == 1
    assert 0 < len(told) < 5_000
