"""Untrusted YAML: plain values with their lines, or a ConfigError."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from openprompt_meta.config.loading import load_config
from openprompt_meta.config.schema import RunConfig
from openprompt_meta.config.yaml_file import MAX_BYTES, parse_yaml
from openprompt_meta.errors import ConfigError

Refusal = Callable[..., str]

HOSTILE = {
    "an object": "run: {folder: !!python/object/apply:os.mkdir [PLANTED]}",
    "a module": "run: {folder: !!python/module:os }",
    "a name": "run: {folder: !!python/name:os.system }",
    "a constructor": "!!python/object/new:type {args: [x, [], {}]}",
    "a tuple": "run: {seeds: !!python/tuple [0, 1]}",
    "a tag of its own": "run: !mine {seeds: [0]}",
    "a set": "run: {seeds: !!set {0, 1}}",
    "bytes": "run: {folder: !!binary aGk=}",
    "a tagged key": "!!python/name:os.system : 5",
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_tags_that_are_no_plain_values_are_refused_and_do_nothing(text: str, refusal: Refusal, tmp_path: Path) -> None:
    planted = tmp_path / "planted"
    told = refusal(text.replace("PLANTED", str(planted)))
    assert "line 1" in told
    assert "is refused" in told
    assert not planted.exists()


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("meta: {way: 3}\nmeta: {way: 4}", "line 2: the key 'meta' is given twice, first in"),
        ("meta:\n  way: 3\n  shot: 1\n  way: 3", "line 4: the key 'meta.way' is given twice"),
        ("1: a\n1: b", "line 2: the key '1' is given twice"),
        ("1: a\non: b", "on: unknown key"),
        ("meta:\n\tway: 3", "line 2, column 1: the line is indented with a tab"),
        ("meta: [", "line 1"),
        ("meta: {way: 3}\n---\nmeta: {way: 3}", "line 2"),
        ("meta: {<<: {way: 3}}", "line 1: merge keys (<<) are not read here; use inherit"),
        ("? [a, b]\n: 5", "line 1: a key must be a name"),
        ("meta: {way: !!int many}", "line 1: 'many' cannot be read as int"),
        ("meta: {way: !!bool many}", "line 1: 'many' cannot be read as bool"),
        ("meta: {way: " + "9" * 5000 + "}", "line 1: '9999"),
        ("meta: *nowhere", "line 1"),
        ("meta: @", "line 1"),
        ("a: \x07", "run.yaml"),
    ],
)
def test_what_is_no_sound_yaml_is_refused_with_its_line(text: str, told: str, refusal: Refusal) -> None:
    assert told in refusal(text)


def test_aliases_are_followed(tmp_path: Path) -> None:
    content = parse_yaml("warp_verbalizer: &w {fit_steps: 3}\ndart_verbalizer: *w", "x").content
    assert content["dart_verbalizer"] == {"fit_steps": 3}


def test_aliases_that_multiply_are_refused(refusal: Refusal) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 12)]
    assert "once aliases (*name) are followed" in refusal("\n".join(lines))


def test_an_alias_that_holds_itself_is_refused(refusal: Refusal) -> None:
    assert "levels" in refusal("run: &a {seeds: *a}")
    assert "levels" in refusal("run: {seeds: &a [*a]}")


@pytest.mark.parametrize("opening", ["[", "{a: "])
def test_a_file_nested_without_end_is_refused(opening: str, refusal: Refusal) -> None:
    assert "nested too deeply" in refusal("meta: " + opening * 20_000)


def test_a_file_too_large_for_a_configuration_is_refused(refusal: Refusal) -> None:
    assert "larger than 1,000,000 bytes" in refusal("#" * (MAX_BYTES + 1))


def test_a_file_that_is_not_utf8_is_refused_with_the_line(tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_bytes("plm:\n  model_path: mod\xe8le\n".encode("latin-1"))
    with pytest.raises(ConfigError, match="line 2: the file is not UTF-8"):
        load_config(file)


def test_a_byte_order_mark_does_no_harm(tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_bytes(b"\xef\xbb\xbfmeta: {way: 3}\r\n")
    assert load_config(file).meta.way == 3


def test_what_looks_like_a_date_is_text(load: Callable[..., RunConfig]) -> None:
    assert load("run: {folder: 2024-01-31}").run.folder == "2024-01-31"


def test_a_mangled_file_gives_a_configuration_or_a_config_error_and_nothing_else(tmp_path: Path) -> None:
    original = (
        b"inherit: [base.yaml]\npreset: authors\nplm: {model_path: 'bert-base-uncased', dropout: false}\n"
        b"dataset: &d\n  name: hwu64\n  split_counts: [20, 5, 5]\n"
        b'prompt_pool_template:\n  text: \'{"placeholder": "text_a"} {"pool"} Topic is {"mask"}.\'\n'
        b"rep_verbalizer: {mix_lambda: 0.5, temperature: 1e1}\nmeta:\n  way: 5\n  patience: null\n"
        b"run: {seeds: [0, 1]}\n"
    )
    pieces = [b"\t", b"\n", b"  ", b": ", b"[", b"]", b"{", b"}", b"&d ", b"*d", b"!!", b"!!python/name:os ", b"<<"]
    pieces += [b"'", b'"', b"|", b">", b"%", b"---\n", b"\xff", b"\x00", b"null", b"-1", b".nan", b"0x" + b"f" * 5000]
    pieces += [b"? ", b"- ", b"#", b"~", b"1e999", b"\xc2\x85", b"=", b"yes"]
    (tmp_path / "base.yaml").write_bytes(b"meta: {shot: 1}\n")
    file = tmp_path / "run.yaml"
    generator = random.Random(0)
    outcomes = {"loaded": 0, "refused": 0}
    for _ in range(400):
        content = bytearray(original)
        for _ in range(generator.randint(1, 4)):
            start = generator.randrange(len(content))
            end = start + generator.choice([0, 0, 1, 3, 30])
            content[start:end] = generator.choice([b"", *pieces])
        file.write_bytes(content)
        try:
            assert isinstance(load_config(file), RunConfig)
            outcomes["loaded"] += 1
        except ConfigError:
            outcomes["refused"] += 1
    assert min(outcomes.values()) > 10, outcomes
