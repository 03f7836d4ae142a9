"""Words of texts and their vectors, by the language model's tokens and by text files."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from openprompt_meta.encoder import words
from openprompt_meta.encoder.loading import LoadedMLM, load_mlm
from openprompt_meta.encoder.words import UNKNOWN, WordTexts, read_vectors, tokens_of_model, words_of_file
from openprompt_meta.errors import DataError

TRAIN = ("The cat sat", "a CAT, again!", "")
TEST = ("the dog zzz", "zzz")
GLOVE = "the 1 2 3\n, 9 9 9\ncat 0.5 -1e-1 0\nat name@domain.com 1 1 1\nsat 0 0 4\ncat 7 7 7\n"


@pytest.fixture
def loaded(tiny_mlm_folder: Callable[[str], Any]) -> LoadedMLM:
    return load_mlm(tiny_mlm_folder("bert"))


@pytest.fixture
def glove(tmp_path: Path) -> Path:
    file = tmp_path / "glove.txt"
    file.write_text(GLOVE, encoding="utf-8")
    return file


def spelt(vocabulary: words.Vocabulary, row: torch.Tensor) -> list[list[float]]:
    return [[round(value, 4) for value in vector] for vector in vocabulary.vectors[row].tolist()]


def test_tokens_have_the_models_input_embeddings(loaded: LoadedMLM) -> None:
    texts = ("weather on day", "sport")
    vocabulary = tokens_of_model([texts, ("weather",)], loaded, max_words=2)
    embeddings = loaded.model.get_input_embeddings().weight
    for text, row in zip(texts, vocabulary.rows[texts], strict=True):
        tokens = loaded.tokenizer(text, add_special_tokens=False)["input_ids"][:2]
        assert torch.equal(vocabulary.vectors[row], embeddings[torch.tensor(tokens)])
    assert torch.equal(vocabulary.rows[("weather",)][0], vocabulary.rows[texts][0][:1])


def test_words_of_a_file_are_in_small_letters_and_others_left_out(glove: Path) -> None:
    vocabulary = words_of_file([TRAIN, TEST], glove, max_words=2)
    assert [spelt(vocabulary, row) for row in vocabulary.rows[TRAIN]] == [
        [[1, 2, 3], [0.5, -0.1, 0]],  # of three words two
        [[0.5, -0.1, 0]],  # no comma, and no second line of "cat"
        [[0, 0, 0]],
    ]
    assert [spelt(vocabulary, row) for row in vocabulary.rows[TEST]] == [[[1, 2, 3]], [[0, 0, 0]]]
    assert vocabulary.rows[TEST][1].tolist() == [UNKNOWN]


def test_the_first_line_of_fasttext_is_passed_over(tmp_path: Path) -> None:
    file = tmp_path / "wiki.vec"
    file.write_text("2 3\nthe 1 2 3\ncat 4 5 6\n", encoding="utf-8")
    assert {word: vector.tolist() for word, vector in read_vectors(file, {"cat", "2"}).items()} == {"cat": [4, 5, 6]}


def test_the_mean_length_is_over_the_training_words_each_once(glove: Path) -> None:
    vocabulary = words_of_file([("the the cat zzz",), ("sat",)], glove, 9)
    scaled = vocabulary.of_mean_length(3.0, among=("the the cat zzz",))
    lengths = [14**0.5, 0.26**0.5]
    assert torch.allclose(scaled.vectors, vocabulary.vectors * (3 / (sum(lengths) / 2)), rtol=1e-5)


def test_batches_say_where_words_are() -> None:
    texts = WordTexts([torch.tensor([3, 4]), torch.tensor([5]), torch.tensor([6, 7, 8])], torch.device("cpu"))
    batch = texts.batch([1, 2], [0, 1])
    assert batch["words"].tolist() == [[5, UNKNOWN, UNKNOWN], [6, 7, 8]]
    assert batch["is_word"].tolist() == [[True, False, False], [True, True, True]]
    assert batch["label"].tolist() == [0, 1]


@pytest.mark.parametrize(
    ("content", "wanted", "reason"),
    [
        ("the 1 2\ncat 1 x\n", "cat", "line 2.*Expected a word and 2 numbers"),
        ("the 1 2\ncat 1\n", "cat", "line 2: got 1 numbers, expected 2"),
        ("the 1 2\ncat 1 nan\n", "cat", "line 2: got 2 numbers.*finite"),
        ("the\n", "cat", "line 1: 0 numbers"),
        ("the 1 2\n" + "x" * 200_000 + "\n", "cat", "line 2: longer than"),
    ],
)
def test_what_is_no_file_of_vectors_is_refused_by_line(content: str, wanted: str, reason: str, tmp_path: Path) -> None:
    file = tmp_path / "vectors.txt"
    file.write_text(content, encoding="utf-8")
    with pytest.raises(DataError, match=reason):
        read_vectors(file, {wanted})


def test_what_cannot_be_read_or_fits_no_text_is_refused(tmp_path: Path, glove: Path) -> None:
    for path, reason in ((tmp_path, "no regular file"), (tmp_path / "none", "cannot be read")):
        with pytest.raises(DataError, match=reason):
            words_of_file([TRAIN], path, 5)
    with pytest.raises(DataError, match="none of the 1 words"):
        words_of_file([("zzz",)], glove, 5)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(DataError, match="no regular file"):
        read_vectors(tmp_path / "pipe", {"cat"})


def test_vectors_are_kept_by_the_files_content(glove: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = tmp_path / "cache"
    first = words_of_file([TRAIN, TEST], glove, 5, cache)
    (kept,) = cache.iterdir()
    with monkeypatch.context() as patch:
        patch.setattr(words, "read_vectors", None)  # any call would fail
        again = words_of_file([TRAIN, TEST], glove, 5, cache)
    assert torch.equal(first.vectors, again.vectors)
    assert all(map(torch.equal, first.rows[TRAIN], again.rows[TRAIN]))
    kept.write_bytes(kept.read_bytes()[:-3])
    assert torch.equal(words_of_file([TRAIN, TEST], glove, 5, cache).vectors, first.vectors)
    glove.write_text(GLOVE.replace("0.5", "0.75"), encoding="utf-8")
    changed = words_of_file([TRAIN, TEST], glove, 5, cache)
    assert not torch.equal(first.vectors, changed.vectors)
    assert len(list(cache.iterdir())) == 2
