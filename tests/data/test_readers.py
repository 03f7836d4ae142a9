from __future__ import annotations

import csv
import io
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from openprompt_meta.data.facts import facts_of
from openprompt_meta.data.loading import load, read_records
from openprompt_meta.data.readers.files import read_table
from openprompt_meta.data.readers.libraries import read_examples
from openprompt_meta.data.readers.records import Source
from openprompt_meta.errors import DataError

Row = tuple[str, str]


def write_jsonl(path: Path, rows: list[Any], **names: str) -> Path:
    text, label = names.get("text", "text"), names.get("label", "label")
    path.write_text(
        "".join(json.dumps({text: row[0], label: row[1]}, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8"
    )
    return path


def write_layout(folder: Path, splits: dict[str, list[Row]], lists: dict[str, list[str]] | None = None) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, rows in splits.items():
        write_jsonl(folder / f"{name}.jsonl", rows)
    if lists is None:
        lists = {name: list(dict.fromkeys(label for _, label in rows)) for name, rows in splits.items()}
    (folder / "splits.json").write_text(json.dumps({"default": lists}))
    return folder


SPLITS: dict[str, list[Row]] = {
    "train": [("one &lt; two", "a"), ("three", "b")],
    "valid": [("four", "c")],
    "test": [("five", "d"), ("six", "d")],
}


def test_a_folder_in_the_layout_is_read_as_it_stands(tmp_path: Path) -> None:
    folder = write_layout(tmp_path / "mine", SPLITS)
    (folder / "labels.json").write_text(json.dumps({"a": ["alpha"], "b": "beta"}))
    dataset = load(folder)
    assert dataset.name == "mine"
    # HTML entities stay: the sets of the paper hold them, and a figure must not depend on who unescapes.
    assert dataset.train.texts == ("one &lt; two", "three")
    assert dataset.test.labels == ("d", "d")
    assert dataset.valid.classes == ("c",)
    assert dataset.label_words == {"a": ("alpha",), "b": ("beta",), "c": ("c",), "d": ("d",)}


def test_the_authors_file_gets_class_names_and_the_authors_split(tmp_path: Path) -> None:
    facts = facts_of("reuters")
    rows = [(f"text {i} {name}", i) for i, name in enumerate(facts.classes)]
    write_jsonl(tmp_path / "reuters.json", rows, text="raw")
    dataset = load(read_records("reuters", root=tmp_path))
    assert dataset.train.classes == facts.splits["authors"].train
    assert dataset.test.texts[0] == f"text {facts.classes.index('nat-gas')} nat-gas"
    assert dataset.label_words["acq"] == ("acquisition", "merger", "takeover")


def test_a_number_that_the_set_does_not_have_is_refused_with_its_line(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "reuters.json", [("fine", 0), ("not", 31)], text="raw")
    with pytest.raises(DataError, match=r"reuters\.json, line 2: label 31 has no class name; 31 names"):
        load(read_records("reuters", root=tmp_path))


def test_an_authors_file_under_another_name_needs_to_be_told_its_set(tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "dump.json", [("x", 0)], text="raw")
    with pytest.raises(DataError, match="not one of the known data sets"):
        read_records(path)
    assert read_records(Source(where=path, name="amazon")).labels == ("Amazon_Instant_Video",)


def test_tables_with_other_columns_are_read(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_bytes(
        '\ufeffid,utterance,intent\r\n1,"hello, ""you""\r\nthere",greet\r\n2,bye,leave\r\n'.encode()
    )
    records = read_records(Source(where=tmp_path / "rows.csv", text_column="utterance", label_column="intent"))
    assert records.texts == ('hello, "you"\r\nthere', "bye")
    assert records.labels == ("greet", "leave")
    (tmp_path / "rows.tsv").write_text("text\tlabel\nhello, you\tgreet\n")
    assert read_records(tmp_path / "rows.tsv").texts == ("hello, you",)


def test_a_folder_of_tables_keeps_the_splits_of_its_file_names(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "train.jsonl", [("x", "a")])
    (tmp_path / "dev.csv").write_text("text,label\ny,b\n")
    write_jsonl(tmp_path / "test.jsonl", [("z", "c")])
    dataset = load(tmp_path)
    assert {split.name: split.texts for split in dataset} == {"train": ("x",), "valid": ("y",), "test": ("z",)}


def test_a_missing_column_is_named_with_its_neighbour(tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "a.jsonl", [("x", "a")], text="texts")
    with pytest.raises(
        DataError, match=r"a\.jsonl, line 1: there is no column 'text'.*text_column.*Did you mean 'texts'"
    ):
        read_records(path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"text": "x", "label": "a"}\n\n{"text": "y", label: "a"}\n', r"line 3, column 15: not JSON"),
        (b'[\n{"text": "x", "label": "a"}]\n', r"line 1.*one JSON array"),
        (b'["x", "a"]\n', r"line 1: expected an object"),
        (
            b'{"text": "x", "label": "a"}\n{"text": "caf\xe9", "label": "a"}\n',
            r"line 2: not UTF-8 \(byte 0xe9\).*iconv",
        ),
        (b'{"text": " \\t", "label": "a"}\n', r"line 1: the text is empty.*drop: \[empty\]"),
        (b'{"text": "x", "label": ""}\n', r"line 1: the label is empty"),
        (b'{"text": "x", "label": 3}\n', r"line 1: the label is 3 \(int\).*class_names"),
        (b'{"text": "x", "label": true}\n', r"line 1: the label is True \(bool\)"),
        (b'{"text": "x", "label": null}\n', r"line 1: the label is missing"),
        (b'{"text": ["x"], "label": "a"}\n', r"line 1: the text is \['x'\] \(list\)"),
        (b"", r"no texts were found"),
        (b"[" * 100_000, r"line 1.*(nested|not JSON)"),
    ],
)
def test_what_is_wrong_in_a_jsonl_file_is_said_with_its_line(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "a.jsonl").write_bytes(content)
    with pytest.raises(DataError, match=message):
        read_records(tmp_path / "a.jsonl")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"text,label\nx,a\nhello, you,b\n", r"line 3: 3 cells, but the header has 2.*quotes"),
        (b'text,label\n"x\ny",a\n"open,b\n', r"line 4: not a table"),
        (b'text,label\n"a\nb",c\ncaf\xe9,d\n', r"line 4: not UTF-8"),
        (b"text;label\nx;a\n", r"there is no column 'text'; the columns are 'text;label'"),
        (b"text,label\n", "no texts were found"),
    ],
)
def test_what_is_wrong_in_a_csv_file_is_said_with_its_line(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "a.csv").write_bytes(content)
    with pytest.raises(DataError, match=message):
        read_records(tmp_path / "a.csv")


def test_empty_texts_can_be_left_out(tmp_path: Path) -> None:
    folder = write_layout(tmp_path / "x", {**SPLITS, "train": [("", "a"), ("one", "a"), ("two", "b")]})
    assert load(folder, drop=["empty"]).train.texts == ("one", "two")


def test_integer_labels_get_the_names_that_are_given(tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "a.jsonl", [("x", 1), ("y", 0)])
    assert read_records(Source(where=path, class_names=["no", "yes"])).labels == ("yes", "no")
    assert read_table(Source(where=path, class_names={0: "no", 1: "yes"})).labels == ("yes", "no")


# Line separators that str.splitlines would cut at, quotes, entities, astral characters.
TEXTS = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\x00"), min_size=1, max_size=30).filter(
    str.strip
)


@given(rows=st.lists(st.tuples(TEXTS, TEXTS), min_size=1, max_size=8))
@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whatever_is_written_as_jsonl_or_csv_is_read_back(tmp_path: Path, rows: list[Row]) -> None:
    read_back = read_records(write_jsonl(tmp_path / "a.jsonl", rows))
    assert list(zip(read_back.texts, read_back.labels, strict=True)) == rows
    buffer = io.StringIO(newline="")
    csv.writer(buffer, quoting=csv.QUOTE_ALL).writerows([("text", "label"), *rows])
    (tmp_path / "a.csv").write_bytes(buffer.getvalue().encode("utf-8"))
    read_back = read_records(tmp_path / "a.csv")
    assert list(zip(read_back.texts, read_back.labels, strict=True)) == rows


@given(content=st.binary(max_size=120), suffix=st.sampled_from([".jsonl", ".csv", ".tsv", ".json"]))
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_content_raises_anything_but_a_data_error(tmp_path: Path, content: bytes, suffix: str) -> None:
    path = tmp_path / f"a{suffix}"
    path.write_bytes(content)
    try:
        records = read_records(path)
    except DataError:
        return
    assert len(records.texts) == len(records.labels) > 0


def test_a_saved_hugging_face_folder_is_read_with_its_class_names(tmp_path: Path) -> None:
    import datasets

    features = datasets.Features({"text": datasets.Value("string"), "label": datasets.ClassLabel(names=["no", "yes"])})
    parts = {
        "train": datasets.Dataset.from_dict({"text": ["x", "y"], "label": [1, 1]}, features=features),
        "validation": datasets.Dataset.from_dict({"text": ["z"], "label": [0]}, features=features),
    }
    datasets.DatasetDict(parts).save_to_disk(str(tmp_path / "saved"))
    dataset = load(tmp_path / "saved")
    assert dataset.train.labels == ("yes", "yes")
    assert dataset.valid.texts == ("z",)
    with pytest.raises(DataError, match=r"no column 'txt'.*Did you mean 'text'"):
        load(read_records(Source(where=tmp_path / "saved", text_column="txt")))


def test_a_single_saved_table_without_splits_needs_a_class_split(tmp_path: Path) -> None:
    import datasets

    table = datasets.Dataset.from_dict({"text": list("uvwxyz"), "label": list("aabbcc")})
    table.save_to_disk(str(tmp_path / "saved"))
    with pytest.raises(DataError, match="random split with counts"):
        load(tmp_path / "saved")
    assert len(load(tmp_path / "saved", split="random", counts=(1, 1, 1)).classes) == 3


def test_an_old_datasets_library_is_refused_because_it_can_run_foreign_code(monkeypatch: pytest.MonkeyPatch) -> None:
    import datasets

    monkeypatch.setattr(datasets, "__version__", "3.6.0")
    with pytest.raises(DataError, match="can run code"):
        load("hf:some/name")


def test_hub_names_go_to_load_dataset_without_any_permission_to_run_code(monkeypatch: pytest.MonkeyPatch) -> None:
    import datasets

    asked: list[Any] = []

    def load_dataset(*arguments: Any, **options: Any) -> Any:
        asked.append((arguments, options))
        return {"train": datasets.Dataset.from_dict({"text": ["x", "y"], "label": ["a", "b"]})}

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    records = read_records(Source(where="hf:some/name", config="small", revision="abc"))
    assert records.labels == ("a", "b")
    assert asked == [(("some/name", "small"), {"revision": "abc"})]

    def fail(*_: Any, **__: Any) -> Any:
        raise ConnectionError("no route to the hub")

    monkeypatch.setattr(datasets, "load_dataset", fail)
    with pytest.raises(DataError, match="ConnectionError: no route"):
        read_records("hf:some/name")


@dataclass
class Example:
    text_a: str
    label: Any
    text_b: str = ""


class HeadlineProcessor:
    labels = ("World", "Sports")

    def get_examples(self, data_dir: str, split: str) -> list[Example]:
        if split == "dev":
            raise FileNotFoundError(f"{data_dir}/dev.csv")
        return [Example("title", 0, "body"), Example("alone", "Sports")]


def test_a_processor_of_openprompt_is_read_by_its_shape_alone() -> None:
    records = read_examples(HeadlineProcessor(), "some/agnews")
    assert records.texts == ("title body", "alone") * 2
    assert records.labels == ("World", "Sports") * 2
    assert records.parts == ("train", "train", "test", "test")
    # Train and test of an ordinary data set share all classes: not a test of unseen ones.
    with pytest.raises(DataError, match=r"2 classes of agnews are in two splits .* random split"):
        load(records)
    assert load(records, split="random", counts=(1, 0, 1)).train.texts != ()


def test_a_processor_that_finds_nothing_says_so() -> None:
    class Empty(HeadlineProcessor):
        def get_examples(self, data_dir: str, split: str) -> list[Example]:
            raise FileNotFoundError("no file")

    with pytest.raises(DataError, match="Empty found no file for train, dev, test in nowhere"):
        read_examples(Empty(), "nowhere")


def test_a_real_openprompt_processor_is_read(tmp_path: Path) -> None:
    from openprompt.data_utils.text_classification_dataset import AgnewsProcessor

    import openprompt_meta  # noqa: F401 -- lets openprompt be imported

    for part in ("train", "test"):
        (tmp_path / f"{part}.csv").write_text('"3","Shares rise","A good day\\for all."\n')
    records = read_examples(AgnewsProcessor(), tmp_path)
    assert records.labels == ("Business", "Business")
    assert records.texts[0].startswith("Shares rise A good day")


def test_missing_sources_say_what_can_be_given(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="Did you mean 'hwu64'"):
        read_records("hwu46", root=tmp_path)
    with pytest.raises(DataError, match="openprompt-meta data download liu54"):
        read_records("liu54", root=tmp_path)
    with pytest.raises(DataError, match="Did you mean 'layout'"):
        read_records("demo", format="layuot")
    with pytest.raises(DataError, match="no file that ends in"):
        read_records(tmp_path)


def test_importing_the_package_does_not_import_heavy_libraries() -> None:
    import subprocess
    import sys

    heavy = ("torch", "datasets", "transformers", "numpy")
    code = f"import sys, openprompt_meta.data; print([name for name in {heavy} if name in sys.modules])"
    assert (
        subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.strip() == "[]"
    )


def test_a_known_set_that_is_not_there_names_the_command_that_fetches_it(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"openprompt-meta data download hwu64 --to .*sets"):
        read_records(tmp_path / "sets" / "hwu64")


def test_the_authors_file_is_found_where_the_folder_would_be(tmp_path: Path) -> None:
    (tmp_path / "hwu64.json").write_text('{"raw": "wake me at six", "label": 0}\n', encoding="utf-8")
    assert read_records(tmp_path / "hwu64").texts == ("wake me at six",)
