"""Several data sets as one to learn from, and what of one is held out in another."""

from __future__ import annotations

from pathlib import Path

import pytest

from openprompt_meta.config.validation import config_from_mapping
from openprompt_meta.data.classes import telling_words
from openprompt_meta.data.dataset import Split, TextDataset
from openprompt_meta.data.loading import load, open_dataset
from openprompt_meta.data.mixtures import mixture_of, with_at_most
from openprompt_meta.errors import DataError
from tests.helpers.small_runs import write_data


def _dataset(name: str, **splits: dict[str, list[str]]) -> TextDataset:
    made = {}
    for part, classes in splits.items():
        rows = [(text, label) for label, texts in classes.items() for text in texts]
        made[part] = Split(part, tuple(t for t, _ in rows), tuple(label for _, label in rows), tuple(classes))
    words = {label: (label,) for classes in splits.values() for label in classes}
    return TextDataset(name, made, words, f"made up {name}")


def _texts(word: str, count: int = 20) -> list[str]:
    return [f"{word} number {i}" for i in range(count)]


def test_a_mixture_keeps_texts_words_and_which_classes_belong_together() -> None:
    one = _dataset("one", train={"a": _texts("ant"), "b": _texts("bee")}, test={"c": _texts("cow")})
    two = _dataset(
        "two", train={"a": _texts("alp"), "d": _texts("dam")}, test={"e": _texts("elk"), "f": _texts("fox")}
    )
    mixed = mixture_of([one, two])
    assert mixed.name == "one+two"
    assert mixed.train.domains == (("one/a", "one/b"), ("two/a", "two/d"))
    assert mixed.train.shares == (1, 1)
    assert mixed.label_words["two/d"] == ("d",)
    assert {mixed.train.texts[i] for i in mixed.train.indices["two/a"]} == set(_texts("alp"))
    assert mixed.test.domains == (("two/e", "two/f"),), "a lone class makes no task"
    assert mixture_of([one, two], evenly=False).train.shares == (40, 40)


def test_what_one_data_set_holds_out_is_not_learned_from_in_another() -> None:
    shared = _texts("elk")
    one = _dataset(
        "one",
        train={
            "Set_Alarm": _texts("ant"),  # the name of a test class
            "renamed": [*shared[:12], *_texts("roe", 8)],  # many of the texts of one
            "other": [*_texts("owl", 30), shared[0].upper()],  # one of its texts
            "rest": _texts("rat"),
        },
    )
    two = _dataset(
        "two", train={"x": _texts("xen"), "y": _texts("yak")}, test={"iot/alarm_set": shared, "z": _texts("zoo")}
    )
    train = mixture_of([one, two]).train
    assert set(train.classes) == {"one/other", "one/rest", "two/x", "two/y"}
    assert len(train.indices["one/other"]) == 30
    assert not {text.casefold() for text in train.texts} & set(shared)
    apart = mixture_of([one], apart_from=[two]).train
    assert set(apart.classes) == {"one/other", "one/rest"}


def test_no_class_has_more_than_the_most_and_the_draw_is_the_seed_s() -> None:
    many = _dataset("many", train={"a": _texts("ant", 30), "b": _texts("bee", 3)}, test={"c": _texts("cow", 9)})
    few = with_at_most(many, 5)
    assert few.train.sizes == {"a": 5, "b": 3}
    assert few.test.sizes == {"c": 5}
    assert set(few.train.texts) < set(many.train.texts)
    assert few == with_at_most(many, 5)
    assert few.train.texts != with_at_most(many, 5, seed=1).train.texts


def test_names_have_to_differ() -> None:
    one = _dataset("one", train={"a": ["x"], "b": ["y"]})
    with pytest.raises(DataError, match="called 'one'"):
        mixture_of([one, one])


def test_a_yaml_may_have_a_list_in_place_of_the_section(tmp_path: Path) -> None:
    first, second = write_data(tmp_path / "first"), write_data(tmp_path / "second", {"train": ["sun", "rain"]})
    config = config_from_mapping({"dataset": {"name": "both", "mixture": [str(first), str(second)]}})
    found = open_dataset(config.dataset)
    assert len(found.train.domains) == 2
    assert set(found.valid.classes) == {f"first/{name}" for name in load(first).valid.classes}


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("book_hotel", ("book", "hotel")),
        ("rec.autos", ("rec", "autos")),
        ("BoardGames", ("board", "games")),
        ("WORLD NEWS", ("world", "news")),
        ("no", ("no",)),
        ("天気", ("天気",)),
        ("class B fire", ("class", "b", "fire")),
        ("3", ()),
        ("label_a", ()),
        ("LABEL_12", ()),
        ("Topic 7", ()),
        ("-1", ()),
        ("???", ()),
    ],
)
def test_a_class_name_tells_something_or_nothing(name: str, words: tuple[str, ...]) -> None:
    assert telling_words(name) == words
