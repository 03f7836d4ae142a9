"""Our data sets as OpenPrompt sees them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from openprompt_meta.errors import DataError
from openprompt_meta.openprompt_runs.run import DemoIntentsProcessor, JsonlFolderProcessor
from tests.helpers.openprompt_runs import CLASSES, write_folder

pytestmark = pytest.mark.prompts

SPLITS = ("train", "dev", "test")


def test_files_with_the_same_classes_are_taken_as_they_are(tmp_path: Path) -> None:
    processor = JsonlFolderProcessor()
    examples = {split: processor.get_examples(str(write_folder(tmp_path)), split) for split in SPLITS}
    assert {split: len(found) for split, found in examples.items()} == {"train": 12, "dev": 6, "test": 12}
    assert processor.labels == list(CLASSES)
    rows = [json.loads(line) for line in (tmp_path / "test.jsonl").read_text().splitlines()]
    assert [(e.text_a, CLASSES[e.label]) for e in examples["test"]] == [(row["text"], row["label"]) for row in rows]


def test_files_with_classes_of_their_own_need_shots() -> None:
    with pytest.raises(DataError, match=r"are in valid and not in train.*Set dataset\.shots"):
        JsonlFolderProcessor().get_examples("demo", "train")


def test_shots_divide_each_class_without_overlap() -> None:
    processor = DemoIntentsProcessor(num_classes=4, shots=3, dev_shots=2, seed=5)
    parts = {split: processor.get_examples(None, split) for split in SPLITS}
    assert len(processor.labels) == 4
    for split, size in (("train", 3), ("dev", 2), ("test", 31)):
        labels = [example.label for example in parts[split]]
        assert sorted(labels) == sorted(list(range(4)) * size)
    texts = [example.text_a for found in parts.values() for example in found]
    assert len(texts) == len(set(texts)) == 4 * 36


def test_the_seed_decides_and_nothing_else() -> None:
    def texts(seed: int) -> list[str]:
        return [
            example.text_a for example in DemoIntentsProcessor(num_classes=4, seed=seed).get_examples(None, "train")
        ]

    assert texts(1) == texts(1)
    assert texts(1) != texts(2)


def test_more_shots_contain_the_fewer() -> None:
    few, more = (DemoIntentsProcessor(num_classes=3, shots=shots, dev_shots=1) for shots in (2, 6))
    fewer = {example.text_a for example in few.get_examples(None, "train")}
    assert fewer < {example.text_a for example in more.get_examples(None, "train")}


def test_a_part_that_is_not_there_is_what_openprompt_expects(tmp_path: Path) -> None:
    folder = write_folder(tmp_path, sizes={"train": 3, "test": 3})
    with pytest.raises(FileNotFoundError):
        JsonlFolderProcessor().get_examples(str(folder), "dev")


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"num_classes": 37}, "has 36 classes"),
        ({"num_classes": 1}, "must be at least 2"),
        ({"shots": 36}, "leave none for the test"),
        ({"shots": 0}, "must be at least 1"),
        ({"shots": None, "dev_shots": 2}, r"goes with dataset\.shots"),
    ],
)
def test_what_cannot_be_drawn_is_refused(options: dict[str, int], reason: str) -> None:
    with pytest.raises(DataError, match=reason):
        DemoIntentsProcessor(**options).get_examples(None, "train")


def test_a_folder_must_be_named() -> None:
    with pytest.raises(DataError, match=r"dataset\.path is not set"):
        JsonlFolderProcessor(shots=1).get_examples(None, "train")
