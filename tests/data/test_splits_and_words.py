from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from openprompt_meta.config.schema import KNOWN_DATASETS
from openprompt_meta.data.classes import ClassSplit, random_class_split, read_label_words, words_of_class_name
from openprompt_meta.data.facts import facts_of
from openprompt_meta.data.loading import load
from openprompt_meta.data.readers.records import Records
from openprompt_meta.errors import DataError

# Classes for train, valid and test as the paper's table of data sets has them.
PAPER_COUNTS = {
    "20news": (8, 5, 7),
    "amazon": (10, 5, 9),
    "huffpost": (20, 5, 16),
    "reuters": (15, 5, 11),
    "hwu64": (23, 16, 25),
    "liu54": (18, 18, 18),
}


def make_records(labels: list[str], name: str = "mine") -> Records:
    return Records(name, name, tuple(f"text {i}" for i in range(len(labels))), tuple(labels), (None,) * len(labels))


@pytest.mark.parametrize("name", KNOWN_DATASETS)
def test_the_shipped_class_lists_have_the_papers_counts_and_cover_every_class(name: str) -> None:
    facts = facts_of(name)
    for which, lists in facts.splits.items():
        assert tuple(len(classes) for _, classes in lists.items()) == PAPER_COUNTS[name], which
        assert sorted(lists.classes) == sorted(facts.classes)


def test_three_sets_have_the_older_class_lists_too() -> None:
    assert {name for name in KNOWN_DATASETS if "distributional_signatures" in facts_of(name).splits} == {
        "20news",
        "amazon",
        "huffpost",
    }


@pytest.mark.parametrize("name", KNOWN_DATASETS)
def test_shipped_label_words_cover_every_class_and_none_is_shared(name: str) -> None:
    facts = facts_of(name)
    words = [word for entry in facts.label_words.values() for word in entry]
    assert set(facts.label_words) == set(facts.classes)
    assert all(2 <= len(entry) <= 5 for entry in facts.label_words.values())
    assert len(set(words)) == len(words)
    assert all(word == word.lower() and word.isalnum() for word in words)


@pytest.mark.parametrize("name", KNOWN_DATASETS)
def test_class_numbers_in_the_shipped_file_are_positions(name: str) -> None:
    import openprompt_meta.data.facts as package

    content = json.loads((Path(package.__file__).parent / f"{name}.json").read_text(encoding="utf-8"))
    assert [entry["id"] for entry in content["classes"].values()] == list(range(len(content["classes"])))


def test_some_class_numbers_are_the_authors() -> None:
    assert facts_of("20news").classes[0] == "talk.politics.mideast"
    assert facts_of("huffpost").classes[40] == "EDUCATION"
    assert facts_of("hwu64").classes[63] == "datetime/convert"


def test_a_known_set_is_split_as_asked() -> None:
    records = make_records(list(facts_of("20news").classes), "20news")
    assert load(records).test.classes == facts_of("20news").splits["authors"].test
    assert load(records, split="authors").train.classes == facts_of("20news").splits["authors"].train
    older = load(records, split="distributional_signatures")
    assert older.valid.classes == facts_of("20news").splits["distributional_signatures"].valid
    assert sorted(older.test.labels) == sorted(older.test.classes)
    with pytest.raises(DataError, match="Did you mean 'distributional_signatures'"):
        load(records, split="distributional_signature")


@given(size=st.integers(3, 40), seed=st.integers(0, 10**9), fold=st.integers(0, 20), data=st.data())
@settings(max_examples=80, deadline=None)
def test_random_splits_have_the_counts_and_share_no_class(
    size: int, seed: int, fold: int, data: st.DataObject
) -> None:
    train = data.draw(st.integers(1, size))
    valid = data.draw(st.integers(0, size - train))
    counts = (train, valid, size - train - valid)
    names = [f"c{i}" for i in range(size)]
    split = random_class_split(names, counts, seed=seed, fold=fold)
    assert tuple(len(classes) for _, classes in split.items()) == counts
    assert sorted(split.classes) == sorted(names)
    assert split == random_class_split(reversed(names), counts, seed=seed, fold=fold)


def test_folds_and_seeds_give_different_splits() -> None:
    names = [f"c{i}" for i in range(30)]
    splits = {random_class_split(names, (10, 10, 10), seed=seed, fold=fold) for seed in range(5) for fold in range(5)}
    assert len(splits) == 25


def test_counts_that_cannot_be_had_are_refused() -> None:
    with pytest.raises(DataError, match=r"5 \+ 5 \+ 5 = 15 classes .* has 4"):
        random_class_split("abcd", (5, 5, 5), seed=0)
    with pytest.raises(DataError, match="three numbers"):
        random_class_split("abcd", (2, 2), seed=0)
    with pytest.raises(DataError, match=r"needs counts.*has 2 classes"):
        load(make_records(["a", "b"]), split="random")


def test_a_users_file_of_class_lists_is_followed(tmp_path: Path) -> None:
    path = tmp_path / "lists.json"
    records = make_records(["a", "b", "c", "a"])
    path.write_text(json.dumps({"train": ["a"], "test": ["c"]}))
    dataset = load(records, split=path)
    assert dataset.train.texts == ("text 0", "text 3")
    assert list(dataset.splits) == ["train", "test"]
    with pytest.raises(DataError, match="has no split 'valid'"):
        _ = dataset.valid
    path.write_text(json.dumps({"default": {"train": ["b"], "test": ["a"]}, "label_ids": {"a": 0}}))
    assert load(records, split=str(path)).train.classes == ("b",)
    assert load(records, split=ClassSplit(("a",), ("b",), ("c",))).valid.classes == ("b",)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"train": ["a"], "test": ["a"]}, "'a' is listed under train and under test"),
        ({"train": ["a"], "vaild": ["b"]}, "unknown split 'vaild'.*Did you mean 'valid'"),
        ({"train": ["a", 3]}, "list of class names"),
        ({"valid": ["a"]}, "train classes is missing"),
        ({"train": ["aa"], "test": ["b"]}, "'aa'"),
        (["a"], "expected an object"),
        ({"other": {"train": ["a"]}}, "none called default"),
    ],
)
def test_a_wrong_file_of_class_lists_is_refused(tmp_path: Path, content: object, message: str) -> None:
    path = tmp_path / "lists.json"
    path.write_text(json.dumps(content))
    with pytest.raises(DataError, match=message):
        load(make_records(["a", "b"]), split=path)


def test_broken_or_missing_split_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no split file"):
        load(make_records(["a"]), split=tmp_path / "none.json")
    (tmp_path / "broken.json").write_text("{")
    with pytest.raises(DataError, match="line 1, column 2: not JSON"):
        load(make_records(["a"]), split=tmp_path / "broken.json")


def test_label_words_are_overridden_class_by_class(tmp_path: Path) -> None:
    records = make_records(list(facts_of("reuters").classes), "reuters")
    assert load(records, label_words={"tin": ["can", "metal"]}).label_words["tin"] == ("can", "metal")
    assert load(records, label_words={"tin": "can"}).label_words["gold"] == ("gold", "ounce")
    (tmp_path / "words.yaml").write_text("tin: [can]\ngold: bar\n")
    assert load(records, label_words=tmp_path / "words.yaml").label_words["gold"] == ("bar",)
    with pytest.raises(DataError, match=r"'tinn', which is no class.*Did you mean 'tin'"):
        load(records, label_words={"tinn": "can"})


def test_words_beside_the_data_come_before_the_shipped_ones_unless_told_otherwise() -> None:
    base = make_records(list(facts_of("reuters").classes), "reuters")
    records = Records(**{**vars(base), "label_words": {"tin": ("can",)}})
    assert load(records).label_words["tin"] == ("can",)
    assert load(records, label_words="shipped").label_words["tin"] == ("tin", "metal")


def test_words_that_yaml_takes_for_something_else_are_refused(tmp_path: Path) -> None:
    (tmp_path / "words.yml").write_text("affirm: [yes, right]\n")
    with pytest.raises(DataError, match="quotes"):
        read_label_words(tmp_path / "words.yml")
    (tmp_path / "words.yml").write_text("a: [b\n")
    with pytest.raises(DataError, match="line 2, column 1"):
        read_label_words(tmp_path / "words.yml")
    (tmp_path / "words.txt").write_text("x")
    with pytest.raises(DataError, match="are read from"):
        read_label_words(tmp_path / "words.txt")


def test_class_names_fall_apart_into_words() -> None:
    assert words_of_class_name("alarm/setTime_now") == ("alarm", "set", "time", "now")
    assert words_of_class_name("ARTS & CULTURE") == ("arts", "culture")
    assert words_of_class_name("++") == ("++",)
