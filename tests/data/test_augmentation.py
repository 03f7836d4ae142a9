"""Texts said differently: the same for the same key, and never nothing."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from openprompt_meta.data.augmentation import (
    by_paraphrases,
    by_synonyms,
    read_paraphrases,
    read_synonyms,
    swapped_and_shortened,
)
from openprompt_meta.errors import DataError

TEXT = "please play the next song of this band again and again"


def test_words_change_places_and_are_left_out() -> None:
    said = [swapped_and_shortened(TEXT, "views", seed) for seed in range(400)]
    assert all(not Counter(one.split()) - Counter(TEXT.split()) for one in said), "no word comes from elsewhere"
    assert len(set(said)) > 200
    left_out = sum(len(TEXT.split()) - len(one.split()) for one in said) / (400 * len(TEXT.split()))
    assert left_out == pytest.approx(0.1, abs=0.02)
    assert said == [swapped_and_shortened(TEXT, "views", seed) for seed in range(400)]


def test_something_is_always_left() -> None:
    assert {swapped_and_shortened("two words", seed) for seed in range(200)} >= {"words two", "two", "words"}
    assert all(swapped_and_shortened("two words", seed) for seed in range(200))
    assert [swapped_and_shortened(text) for text in ("", "word")] == ["", "word"]


def test_synonyms_take_the_place_of_words_that_have_some(tmp_path: Path) -> None:
    file = tmp_path / "synonyms.txt"
    file.write_text("song, tune , Track\n\nalone\nplay,start\n", encoding="utf-8")
    groups = read_synonyms(file)
    assert groups["tune"] == ["song", "Track"]
    assert "alone" not in groups
    said = {by_synonyms(groups)("Play this song", seed) for seed in range(60)}
    assert said == {"start this song", "Play this tune", "Play this Track"}
    assert by_synonyms(groups)(TEXT.replace("song", "hit").replace("play", "put"), 1) != TEXT


def test_paraphrases_come_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "paraphrases.jsonl"
    file.write_text('{"text": "a b", "paraphrases": ["c d", "e f", " "]}\n\n', encoding="utf-8")
    said = by_paraphrases(read_paraphrases(file))
    assert {said("a b", seed) for seed in range(30)} == {"c d", "e f"}
    assert {said("x y", seed) for seed in range(60)} <= {"y x", "x", "y", "x y"}


@pytest.mark.parametrize(
    ("read", "content", "reason"),
    [
        (read_synonyms, "alone\n", "no line of two words"),
        (read_paraphrases, '{"text": "a"}\n', 'line 1.*expected {"text"'),
        (read_paraphrases, '\n{"text": "a", "paraphrases": [3]}\n', "line 2"),
        (read_paraphrases, "no json\n", "line 1.*not JSON"),
    ],
)
def test_what_is_no_such_file_is_refused(read: object, content: str, reason: str, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text(content, encoding="utf-8")
    with pytest.raises(DataError, match=reason):
        read(file)  # type: ignore[operator]
    with pytest.raises(DataError, match="There is no file"):
        read(tmp_path / "none")  # type: ignore[operator]
