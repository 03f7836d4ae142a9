"""Data untrusted files: read, or refused with file and line."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from openprompt_meta.cli import main
from openprompt_meta.data.classes import read_label_words
from openprompt_meta.data.loading import load, read_records
from openprompt_meta.errors import DataError
from tests.helpers.hostile import billion_laughs

LONG = "x" * 1_000_000
ROW = '{"text": "a", "label": "b"}\n'

JSON_LINES = {
    "an array": ("[1, 2]\n", "line 1: expected an object"),
    "a file that is an array": (
        '[\n{"text": "a", "label": "b"}\n]\n',
        "the file seems to hold one JSON array",
    ),
    "a number": (ROW + "17\n", "line 2: expected an object"),
    "null": (ROW + "\n\nnull\n", "line 4: expected an object"),
    "not a number": (ROW + '{"text": NaN, "label": "b"}\n', "line 2: NaN is no JSON"),
    "infinity": ('{"text": "a", "label": "b", "weight": -Infinity}\n', "line 1: -Infinity is no JSON"),
    "a key twice": (ROW + '{"text": "a", "text": "c", "label": "b"}\n', "line 2: the key 'text' is given twice"),
    "half a character": ('{"text": "\\ud800", "label": "b"}\n', "line 1: the text holds half a character"),
    "half a character as a class": ('{"text": "a", "label": "\\udfff"}\n', "line 1: the label holds half a character"),
    "a number of many digits": ('{"text": ' + "9" * 5000 + ', "label": "b"}\n', "line 1: "),
    "lists without end": ("[" * 100_000 + "\n", "line 1: "),
    "objects without end": ('{"a":' * 100_000 + "\n", "line 1: "),
    "a text that is a number": ('{"text": 3, "label": "b"}\n', "line 1: the text is 3"),
    "a text that is nothing": ('{"text": null, "label": "b"}\n', "line 1: the text is missing"),
    "a label of another kind": ('{"text": "a", "label": 1.5}\n', "line 1: the label is 1.5"),
    "a label that is true": ('{"text": "a", "label": true}\n', "line 1: the label is True"),
    "no label": ('{"text": "a"}\n', "line 1: there is no column 'label'"),
    "a control character": ('{"text": "a\x01", "label": "b"}\n', "line 1, column 12: not JSON"),
    "a row cut off": (ROW + '{"text": "a", "la', "line 2, column 15: not JSON"),
    "two rows on a line": (ROW.strip() + ROW, "line 1, column 28: not JSON"),
    "zero bytes": ("\0\0\0\0", "line 1, column 1: not JSON"),
    "nothing": ("", "no texts were found"),
    "empty lines": ("\n\n  \n", "no texts were found"),
}
TABLES = {
    "a quote that never ends": ('text,label\n"a,b\nc,d\n', "line 2: not a table"),
    "a quote in the middle": ('text,label\n"a"b,c\n', "line 2: not a table"),
    "a cell too many": ("text,label\na,b\na,b,c\n", "line 3: 3 cells, but the header has 2"),
    "a cell too few": ("text,label\na\n", "line 2: 1 cells"),
    "a column twice": ("text,label,text\na,b,c\n", "line 1: two columns are called 'text'"),
    "no such column": ("texts,label\na,b\n", "there is no column 'text'"),
    "an empty text": ("text,label\n ,b\n", "line 2: the text is empty"),
    "an empty label": ("text,label\na,\n", "line 2: the label is empty"),
    "a text of a megabyte": (f"text,label\n{LONG},b\n", "line 2: not a table: field larger than field limit"),
    "a header alone": ("text,label\n", "no texts were found"),
    "nothing": ("", "no texts were found"),
}
CLASS_LISTS = {
    "a list": "[]",
    "nothing": "",
    "a list of one class twice": '{"train": ["a", "a"]}',
    "a split twice": '{"train": ["a"], "train": ["b"]}',
    "an unknown split": '{"train": ["a"], "dev/../..": ["b"]}',
    "a number as a class": '{"train": [1]}',
    "a class in two splits": '{"train": ["a"], "test": ["a"]}',
    "no train classes": '{"train": []}',
    "a string": '{"train": "a"}',
    "lists without end": "[" * 100_000,
    "not a number": '{"train": [NaN]}',
    "a path as a class": '{"train": ["../../etc/passwd"]}',
    "digits": '{"train": ' + "9" * 5000 + "}",
}


def refusal(function: Callable[[], object]) -> str:
    with pytest.raises(DataError) as caught:
        function()
    assert len(str(caught.value)) < 2_000
    return str(caught.value)


@pytest.mark.parametrize(("content", "told"), JSON_LINES.values(), ids=JSON_LINES.keys())
def test_json_lines_are_refused_with_their_line(content: str, told: str, tmp_path: Path) -> None:
    (tmp_path / "data.jsonl").write_text(content, encoding="utf-8")
    message = refusal(lambda: read_records(tmp_path / "data.jsonl"))
    assert "data.jsonl" in message
    assert told in message


@pytest.mark.parametrize(("content", "told"), TABLES.values(), ids=TABLES.keys())
@pytest.mark.parametrize("suffix", ["csv", "tsv"])
def test_tables_are_refused_with_their_line(content: str, told: str, suffix: str, tmp_path: Path) -> None:
    file = tmp_path / f"data.{suffix}"
    file.write_text(content if suffix == "csv" else content.replace(",", "\t"), encoding="utf-8")
    message = refusal(lambda: read_records(file))
    assert file.name in message
    assert told in message


@pytest.mark.parametrize("content", CLASS_LISTS.values(), ids=CLASS_LISTS.keys())
def test_class_lists_are_refused_with_their_file(content: str, tmp_path: Path) -> None:
    (tmp_path / "data.jsonl").write_text(ROW, encoding="utf-8")
    (tmp_path / "lists.json").write_text(content, encoding="utf-8")
    assert "lists.json" in refusal(lambda: load(tmp_path / "data.jsonl", split=tmp_path / "lists.json"))


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-32", "latin-1", "cp037"])
@pytest.mark.parametrize("suffix", ["csv", "jsonl", "json"])
def test_other_encodings_are_refused_with_the_file(encoding: str, suffix: str, tmp_path: Path) -> None:
    content = "text,label\ncafé,b\n" if suffix == "csv" else '{"text": "café", "label": "b"}\n'
    (tmp_path / f"data.{suffix}").write_bytes(content.encode(encoding))
    assert f"data.{suffix}" in refusal(lambda: read_records(tmp_path / f"data.{suffix}"))


def test_what_is_odd_but_sound_is_read(tmp_path: Path) -> None:
    (tmp_path / "data.jsonl").write_text(
        f'\ufeff{{"text": "{LONG}", "label": "../../etc"}}\r\n{{"text": "\\u0000\u2028", "label": "b", "x": [1]}}',
        encoding="utf-8",
    )
    records = read_records(tmp_path / "data.jsonl")
    assert records.texts == (LONG, "\0\u2028")
    assert records.labels == ("../../etc", "b")
    (tmp_path / "data.csv").write_bytes(b'\xef\xbb\xbf,text,label,\r\n1,"a ""b""\nc",d,\r\n\r\n2,e,f,\r\n')
    records = read_records(tmp_path / "data.csv")
    assert records.texts == ('a "b"\nc', "e")
    assert records.labels == ("d", "f")


@pytest.mark.parametrize("name", ["data.jsonl", "data.csv", "folder/train.jsonl", "folder/splits.json"])
def test_pipes_devices_and_links_in_a_circle_are_refused_and_not_waited_for(name: str, tmp_path: Path) -> None:
    file = tmp_path / name
    file.parent.mkdir(exist_ok=True)
    source = file if file.parent == tmp_path else file.parent
    if name == "folder/splits.json":
        (file.parent / "train.jsonl").write_text(ROW)
    os.mkfifo(file)
    if name != "folder/splits.json":
        refusal(lambda: load(source, split="random", counts=(1, 0, 0)))
    refusal(lambda: load(tmp_path, split=file if file.suffix == ".json" else tmp_path / "none.json"))
    file.unlink()
    file.symlink_to(file)
    refusal(lambda: load(source, split=file if file.suffix == ".json" else "default"))
    file.unlink()
    file.symlink_to("/dev/zero")
    refusal(lambda: load(source, split=file if file.suffix == ".json" else "default"))


def test_names_that_no_disk_takes_are_refused(tmp_path: Path) -> None:
    for name in ("x" * 1000, "a\0b", "x/" * 400, str(tmp_path / "file" / "below")):
        (tmp_path / "file").write_text("")
        refusal(lambda name=name: read_records(name))  # type: ignore[misc]


@pytest.mark.parametrize("kind", ["list", "mapping"])
def test_label_words_that_multiply_are_refused(kind: str, tmp_path: Path) -> None:
    (tmp_path / "words.yaml").write_text(billion_laughs(kind))
    assert "once aliases (*name) are followed" in refusal(lambda: read_label_words(tmp_path / "words.yaml"))


@pytest.mark.parametrize(
    "content", ["", "[]", '{"a": []}', '{"a": [1]}', '{"a": {}}', '{"a": "b", "a": "c"}', "[" * 100_000, "\xff", "NaN"]
)
@pytest.mark.parametrize("suffix", ["json", "yaml"])
def test_label_words_are_refused_with_their_file(content: str, suffix: str, tmp_path: Path) -> None:
    file = tmp_path / f"words.{suffix}"
    file.write_bytes(content.encode("latin-1"))
    assert file.name in refusal(lambda: read_label_words(file))


def test_the_command_refuses_with_one_sentence_and_code_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "data.jsonl").write_text(ROW + json.dumps({"text": ["a"], "label": "b"}))
    assert main(["data", "check", str(tmp_path / "data.jsonl")]) == 2
    told = capsys.readouterr().err
    assert "data.jsonl, line 2" in told
    assert told.count("\n") == 1
