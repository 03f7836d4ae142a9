"""Mangled data files: a data set or a DataError, soon, and nothing written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openprompt_meta.data.checks import check
from openprompt_meta.data.dataset import TextDataset
from openprompt_meta.data.loading import load
from openprompt_meta.errors import DataError
from tests.helpers.fuzzing import fuzzed, junk, mangled, only_reading, tree
from tests.helpers.small_runs import write_data

FILES = ["train.jsonl", "valid.jsonl", "test.jsonl", "splits.json", "labels.json"]
CSV = 'text,label,note\n"tell me, please",weather,1\nrain ""again,weather,\n"two\nlines",sport,3\ngoal,sport,\n'
AUTHORS = "".join(json.dumps({"raw": f"text {i}", "label": i % 64}) + "\n" for i in range(70))
WORDS = "weather: [rain, storm]\nsport: goal\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fuzz")


def check_loading(source: Path, **options: Any) -> None:
    """The property: a data set that can be looked over, or a refusal."""
    before = tree(source.parent)
    with only_reading():
        try:
            dataset = load(source, **options)
        except DataError as error:
            told = str(error)
        else:
            told = "loaded"
            assert isinstance(dataset, TextDataset)
            for split in dataset:
                assert all(isinstance(text, str) and text.strip() for text in split.texts)
                assert set(split.labels) <= set(split.classes)
            assert dataset.label_words.keys() >= set(dataset.classes)
            json.dumps(check(dataset, ways=2, shots=1, queries=1).as_dict()).encode()
    assert 0 < len(told) < 50_000
    assert tree(source.parent) == before


@fuzzed(60)
@given(st.data())
def test_mangled_bytes_in_a_folder_of_our_layout(folder: Path, data: st.DataObject) -> None:
    layout = write_data(folder / "layout", {"train": ["a", "b"], "valid": ["c"], "test": ["d"]}, each=3)
    for name in data.draw(st.sets(st.sampled_from(FILES), min_size=1, max_size=2)):
        (layout / name).write_bytes(data.draw(mangled((layout / name).read_bytes())))
    check_loading(layout)


@fuzzed(60)
@given(st.data())
def test_other_values_in_a_folder_of_our_layout(folder: Path, data: st.DataObject) -> None:
    layout = write_data(folder / "values", {"train": ["a", "b"], "valid": ["c"], "test": ["d"]}, each=3)
    name = data.draw(st.sampled_from(FILES))
    if name.endswith(".jsonl"):
        rows = [json.loads(line) for line in (layout / name).read_text().splitlines()]
        place = data.draw(st.integers(0, len(rows) - 1))
        rows[place] = data.draw(junk() | st.fixed_dictionaries({"text": junk(), "label": junk()}))
        (layout / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        content = json.loads((layout / name).read_text())
        inner = content["default"] if name == "splits.json" else content
        inner[data.draw(st.sampled_from([*inner, "x", "label_ids"]))] = data.draw(junk())
        (layout / name).write_text(json.dumps(data.draw(st.sampled_from([content, inner]))))
    check_loading(layout)


@fuzzed(60)
@given(st.data(), st.sampled_from(["csv", "tsv"]))
def test_mangled_tables(folder: Path, data: st.DataObject, suffix: str) -> None:
    file = folder / f"table.{suffix}"
    content = CSV if suffix == "csv" else CSV.replace(",", "\t")
    file.write_bytes(data.draw(mangled(content.encode()) | st.text().map(lambda text: text.encode("utf-8"))))
    check_loading(file, split="random", counts=(1, 1, 0))


@fuzzed(30)
@given(st.data())
def test_mangled_files_of_the_authors(folder: Path, data: st.DataObject) -> None:
    file = folder / "hwu64.json"
    file.write_bytes(data.draw(mangled(AUTHORS.encode())))
    check_loading(file, split="random", counts=(2, 1, 1))


@fuzzed(40)
@given(st.data(), st.sampled_from(["yaml", "json"]))
def test_mangled_label_words(folder: Path, data: st.DataObject, suffix: str) -> None:
    table = folder / "words" / "table.csv"
    table.parent.mkdir(exist_ok=True)
    table.write_text("text,label\nrain,weather\ngoal,sport\n")
    words = folder / "words" / f"words.{suffix}"
    content = WORDS if suffix == "yaml" else '{"weather": ["rain", "storm"], "sport": "goal"}'
    words.write_bytes(data.draw(mangled(content.encode())))
    check_loading(table, split="random", counts=(1, 1, 0), label_words=words)
