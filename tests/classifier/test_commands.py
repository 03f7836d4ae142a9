"""`openprompt-meta fit | predict | eval | explain`, called as a shell would."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from openprompt_meta import MetaPromptClassifier
from openprompt_meta.cli import main
from tests.helpers.few_texts import LABELS, QUESTIONS, TEXTS

HARD = ['a "quoted" text, with a comma', "two\nlines", "", "  spaces  ", "ünïcode 🌧", "tab\there", "last"]
PROBABILITIES = ["probability of food", "probability of sport", "probability of weather"]


@pytest.fixture
def saved(fitted: MetaPromptClassifier, tmp_path: Path) -> str:
    fitted.save_pretrained(tmp_path / "saved")
    return str(tmp_path / "saved")


@pytest.fixture
def examples(tmp_path: Path) -> str:
    return write_csv(tmp_path / "few.csv", ["text", "label"], zip(TEXTS, LABELS, strict=True))


def write_csv(path: Path, header: list[str], rows: Any) -> str:
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([header, *rows])
    return str(path)


def table(content: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(content, newline="")))


def check_rows(rows: list[dict[str, Any]], texts: list[str], classifier: MetaPromptClassifier) -> None:
    """Rows are the texts in their order, each with what the classifier says by itself."""
    assert [row["text"] for row in rows] == texts
    expected = np.concatenate([classifier.predict_proba([text]) for text in texts])
    for row, own in zip(rows, expected, strict=True):
        assert row["predicted_label"] == classifier.classes_[own.argmax()]
        assert float(row["predicted_probability"]) == pytest.approx(own.max(), abs=2e-5)


# -- fit --------------------------------------------------------------------------------------------------------------


def test_fit_makes_a_classifier_that_predicts_as_one_made_in_python(
    tiny_run: Path, fitted: MetaPromptClassifier, examples: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path / "out")
    assert main(["fit", str(tiny_run), "--data", examples, "--out", out]) == 0
    assert "3 classes from 6 examples: food, sport, weather" in capsys.readouterr().out
    loaded = MetaPromptClassifier.from_pretrained(out)
    assert np.array_equal(loaded.predict_proba(QUESTIONS), fitted.predict_proba(QUESTIONS))
    assert main(["fit", out, "--data", examples, "--out", out, "--json", "--inner-steps", "1", "--no-texts"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert (printed["classes"], printed["examples"]) == (["food", "sport", "weather"], 6)
    assert len(printed["inner_losses"]) == 1
    assert printed["bytes"] == sum(file.stat().st_size for file in Path(out).iterdir())
    assert MetaPromptClassifier.from_pretrained(out).task_.texts is None


def test_fit_puts_scores_on_test_texts_into_the_card(
    tiny_run: Path, examples: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path / "out")
    assert main(["fit", str(tiny_run), "--data", examples, "--out", out, "--test", examples, "--json"]) == 0
    scores = json.loads(capsys.readouterr().out)["test"]
    assert scores["texts"] == 6
    assert f"| `accuracy` | {scores['accuracy']:.4f} |" in (Path(out) / "README.md").read_text("utf-8")


def test_fit_takes_label_words_where_they_have_a_say(
    tiny_run: Path, examples: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = tmp_path / "words.json"
    words.write_text(json.dumps({"weather": ["rain"], "sport": ["game"], "food": "soup"}))
    command = ["fit", str(tiny_run), "--data", examples, "--out", str(tmp_path / "out"), "--label-words", str(words)]
    assert main(command) == 2
    assert "mix_lambda is 1" in capsys.readouterr().err
    assert main([*command, "--mix-lambda", "0.5"]) == 0
    assert main(["explain", str(tmp_path / "out"), "rain"]) == 0
    assert "label words" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("words,label\nrain,a\n", "few.csv, line 2: there is no column 'text'; the columns are 'words', 'label'"),
        ("text,class\nrain,a\n", "there is no column 'label'.*--label-column"),
        ("text,label\nrain,\n", "line 2: the label is ''"),
        ("text,label\n,a\n", "line 2: the text is ''"),
        ("text,label\nrain,a,b\n", "line 2: 3 cells, but the header has 2"),
        ("text,label\n", "holds no rows"),
        ("", "holds no rows"),
        ("text,label\nrain,a\nsun,a\n", "All examples are of one class, 'a'"),
        ("text,label\nrain,a\nRAIN,b\n", "labelled 'a' and 'b'"),
        ("text,label\nr\xe4in,a\n".encode("latin-1"), "line 2: not UTF-8"),
        ("text,label\nrain,a\n".encode("utf-16"), "not UTF-8"),
    ],
)
def test_fit_refuses_a_file_with_the_line_of_what_is_wrong(
    tiny_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str | bytes, message: str
) -> None:
    file = tmp_path / "few.csv"
    file.write_bytes(content.encode() if isinstance(content, str) else content)
    assert main(["fit", str(tiny_run), "--data", str(file), "--out", str(tmp_path / "out")]) == 2
    printed = capsys.readouterr()
    assert re.search(message, printed.err), printed.err
    assert printed.out == ""
    assert not (tmp_path / "out").exists()


def test_fit_takes_whole_numbers_of_json_lines(tiny_run: Path, tmp_path: Path) -> None:
    file = tmp_path / "few.jsonl"
    file.write_text(
        "".join(json.dumps({"text": t, "label": len(n)}) + "\n" for t, n in zip(TEXTS, LABELS, strict=True))
    )
    assert main(["fit", str(tiny_run), "--data", str(file), "--out", str(tmp_path / "out")]) == 0
    assert MetaPromptClassifier.from_pretrained(tmp_path / "out").task_.classes == (4, 5, 7)


# -- predict ----------------------------------------------------------------------------------------------------------


def test_predict_keeps_the_order_and_the_columns_of_a_table(
    saved: str, fitted: MetaPromptClassifier, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [(str(i), text, "x,y") for i, text in enumerate([*QUESTIONS, *HARD])]
    for suffix, delimiter in ((".csv", ","), (".tsv", "\t")):
        file = tmp_path / f"texts{suffix}"
        with file.open("w", encoding="utf-8-sig", newline="") as stream:
            csv.writer(stream, delimiter=delimiter).writerows([("id", "text", "note"), *rows])
        assert main(["predict", saved, str(file)]) == 0
        printed = list(csv.DictReader(io.StringIO(capsys.readouterr().out, newline=""), delimiter=delimiter))
        check_rows(printed, [*QUESTIONS, *HARD], fitted)
        assert [(row["id"], row["note"]) for row in printed] == [(number, note) for number, _, note in rows]


def test_predict_reads_lines_and_writes_every_probability_if_asked(
    saved: str, fitted: MetaPromptClassifier, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "texts.txt"
    file.write_bytes("\n".join(QUESTIONS).encode() + b"\r\n")
    assert main(["predict", saved, str(file), "--all"]) == 0
    rows = table(capsys.readouterr().out)
    check_rows(rows, list(QUESTIONS), fitted)
    found = [[float(row[name]) for name in PROBABILITIES] for row in rows]
    np.testing.assert_allclose(found, fitted.predict_proba(QUESTIONS), atol=2e-5)


def test_predict_writes_json_lines_with_all_that_was_in_them(
    saved: str, fitted: MetaPromptClassifier, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "texts.jsonl"
    lines = [{"text": text, "more": {"nested": [1, None]}} for text in HARD]
    file.write_text("\n\n".join(json.dumps(line) for line in lines), encoding="utf-8")
    assert main(["predict", saved, str(file), "--json", "--all"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    check_rows(rows, HARD, fitted)
    assert all(row["more"] == {"nested": [1, None]} for row in rows)
    assert main(["predict", saved, str(file), "--out", str(tmp_path / "out.csv")]) == 0
    assert [row["more"] for row in table((tmp_path / "out.csv").read_text("utf-8"))] == ['{"nested": [1, null]}'] * 7


def test_predict_reads_a_pipe(saved: str, fitted: MetaPromptClassifier, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "openprompt_meta", "predict", saved, "-"]
    given = "\n".join(QUESTIONS).encode()
    ended = subprocess.run(command, input=given, capture_output=True, check=True)
    check_rows(table(ended.stdout.decode()), list(QUESTIONS), fitted)
    assert b"Traceback" not in ended.stderr


def test_predict_streams(
    saved: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    """Rows are written before later ones are read: the pipe's end would never come otherwise."""
    monkeypatch.setattr("openprompt_meta.cli.classifier._AT_A_TIME", 2)
    written: list[int] = []

    class Endless(io.RawIOBase):
        lines = iter([b"rain\n"] * 5)

        def isatty(self) -> bool:
            return False

        def readline(self, size: int | None = -1) -> bytes:
            written.append(capsysbinary.readouterr().out.count(b"\n"))
            return next(self.lines, b"")

    monkeypatch.setattr(sys, "stdin", type("In", (), {"buffer": Endless()})())
    assert main(["predict", saved, "-"]) == 0
    assert written == [0, 0, 3, 0, 2, 0]


def test_a_reader_that_has_enough_ends_it_quietly(
    saved: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "texts.txt").write_text("rain\n" * 3)
    reading, writing = os.pipe()
    os.close(reading)
    with open(writing, "w") as stdout:
        monkeypatch.setattr(sys, "stdout", stdout)
        assert main(["predict", saved, str(tmp_path / "texts.txt")]) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("kind", ["csv", "tsv", "jsonl"])
def test_predict_goes_on_with_a_file_that_was_cut_anywhere(
    saved: str, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    texts, out = tmp_path / "texts.jsonl", tmp_path / f"out.{kind}"
    texts.write_text(
        "".join(json.dumps({"text": text, "n": i}) + "\n" for i, text in enumerate(HARD)), encoding="utf-8"
    )
    monkeypatch.setattr("openprompt_meta.cli.classifier._AT_A_TIME", 2)
    command = ["predict", saved, str(texts), "--out", str(out)]
    assert main(command) == 0
    whole = out.read_bytes()
    first = whole.index(b"\n", whole.index(b"\n") + 1 if kind != "jsonl" else 0) + 1
    for end in range(first, len(whole) + 1, 5):
        out.write_bytes(whole[:end])
        assert main(command) == 0
        again = out.read_bytes()
        if again != whole:  # the last digit of a probability may depend on the batch
            assert len(again.splitlines()) == len(whole.splitlines())
            assert [line.rsplit(b"0.", 1)[0] for line in again.splitlines()] == [
                line.rsplit(b"0.", 1)[0] for line in whole.splitlines()
            ]
    capsys.readouterr()
    assert main(command) == 0
    assert f"7 rows in {out}, 7 of them from before" in capsys.readouterr().err


def test_rows_that_are_there_are_not_done_again(saved: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts, out = tmp_path / "texts.txt", tmp_path / "out.csv"
    texts.write_text("".join(f"rain on day {i}\n" for i in range(50)))
    command = ["predict", saved, str(texts), "--out", str(out)]
    assert main(command) == 0
    whole = out.read_text()
    out.write_text("".join(whole.splitlines(keepends=True)[:41]))
    done: list[int] = []
    stock = MetaPromptClassifier.predict_proba
    monkeypatch.setattr(MetaPromptClassifier, "predict_proba", lambda self, t: done.append(len(t)) or stock(self, t))
    assert main(command) == 0
    assert done == [8, 10]  # a few that are there, to compare; then those that are not
    assert [row["text"] for row in table(out.read_text())] == texts.read_text().splitlines()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("my notes\n", "does not hold predictions to go on with"),
        ("my notes", "does not hold predictions to go on with"),
        ("text,predicted_label\nrain,food\n", "there is no predicted_label with its predicted_probability"),
        ("text,predicted_label,predicted_probability\nrain,law,0.5\n", "'law' is no class of this classifier"),
        ("text,predicted_label,predicted_probability\nsnow,food,0.5\n", "Row 1 .* has the text 'snow'"),
        ("text,predicted_label,predicted_probability\nrain,food,0.999\n", "It is another classifier's"),
        ("text,more,predicted_label,predicted_probability\n{0},x,{1},{2}\n", "columns"),
        ("text,predicted_label,predicted_probability\n{0},{1},{2}\nsun,food,1\ngoal,food,1\n", "nothing"),
        (b"\xff\xfe\x00", "not UTF-8"),
    ],
)
def test_a_file_of_something_else_is_refused_and_stays(
    saved: str,
    fitted: MetaPromptClassifier,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    content: str | bytes,
    message: str,
) -> None:
    texts, out = tmp_path / "texts.txt", tmp_path / "out.csv"
    texts.write_text("rain\nsun\n")
    own = fitted.predict_proba(["rain"])[0]
    if isinstance(content, str):
        content = content.format("rain", fitted.classes_[own.argmax()], own.max()).encode()
    out.write_bytes(content)
    assert main(["predict", saved, str(texts), "--out", str(out)]) == 2
    assert re.search(message, capsys.readouterr().err)
    assert out.read_bytes() == content


def test_a_header_alone_is_gone_on_with(saved: str, tmp_path: Path) -> None:
    texts, out = tmp_path / "texts.txt", tmp_path / "out.csv"
    texts.write_text("rain\nsun\n")
    out.write_text("text,predicted_label,predicted_probability\n")
    assert main(["predict", saved, str(texts), "--out", str(out)]) == 0
    assert [row["text"] for row in table(out.read_text())] == ["rain", "sun"]


def test_what_was_written_before_a_row_that_is_refused_stays(
    saved: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("openprompt_meta.cli.classifier._AT_A_TIME", 2)
    texts, out = tmp_path / "texts.jsonl", tmp_path / "out.jsonl"
    good = "".join(json.dumps({"text": text}) + "\n" for text in ("rain", "sun", "goal"))
    texts.write_text(good + '{"text": null}\n')
    command = ["predict", saved, str(texts), "--out", str(out)]
    assert main(command) == 2
    assert "line 4: the text is missing" in capsys.readouterr().err
    assert len(out.read_text().splitlines()) == 2
    texts.write_text(good + '{"text": "soup"}\n')
    assert main(command) == 0
    assert [json.loads(line)["text"] for line in out.read_text().splitlines()] == ["rain", "sun", "goal", "soup"]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("texts.csv", b"words\nrain\n", "line 1: there is no column 'text'; the columns are 'words'"),
        ("texts.csv", b"text,text\na,b\n", "two columns are called 'text'"),
        ("texts.csv", b'text\n"rain\n', "not a table"),
        ("texts.csv", b"text,predicted_label\nrain,a\n", "a column 'predicted_label' already"),
        ("texts.csv", "text\nrègn\n".encode("latin-1"), "line 2: not UTF-8"),
        ("texts.txt", b"rain\n\xff\n", "line 2: not UTF-8"),
        ("texts.jsonl", b'{"text": "rain"}\n[1]\n', "line 2: expected an object"),
        ("texts.jsonl", b'{"text": "rain"}\n{"text": \n', "line 2, column"),
        ("texts.jsonl", b'{"text": 3}\n', r"line 1: the text is 3 \(int\)"),
        ("texts.jsonl", b"[" * 100_000, "line 1"),
        ("texts.xlsx", b"PK", "unknown kind of file"),
    ],
)
def test_predict_refuses_a_file_with_the_line_of_what_is_wrong(
    saved: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, content: bytes, message: str
) -> None:
    (tmp_path / name).write_bytes(content)
    assert main(["predict", saved, str(tmp_path / name)]) == 2
    assert re.search(message, capsys.readouterr().err)


def test_predict_takes_cells_of_a_megabyte(saved: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write_csv(tmp_path / "texts.csv", ["text"], [["rain and storm " * 70_000], ["sun"]])
    before = csv.field_size_limit()
    assert main(["predict", saved, file]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 3
    assert csv.field_size_limit() == before


def test_predict_says_what_it_cannot_open_or_write(
    saved: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "texts.txt").write_text("rain\n")
    for command, message in [
        ([str(tmp_path / "none.txt")], "cannot be opened: No such file"),
        (
            [str(tmp_path / "texts.txt"), "--out", str(tmp_path / "none" / "out.csv")],
            "cannot be written: No such file",
        ),
        ([str(tmp_path / "texts.txt"), "--out", "out.xlsx"], "unknown kind of file"),
        ([str(tmp_path / "texts.txt"), "--out", "out.txt"], "predictions are written as"),
        ([str(tmp_path / "texts.txt"), "--out", "out.csv", "--json"], "predictions are written as"),
    ]:
        assert main(["predict", saved, *command]) == 2
        assert message in capsys.readouterr().err
    assert main(["predict", str(tmp_path), str(tmp_path / "texts.txt")]) == 2
    assert "classifier.json is missing" in capsys.readouterr().err


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="/dev/full is Linux's")
def test_a_full_disk_is_a_message(
    saved: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "texts.txt").write_text("rain\n")
    with open("/dev/full", "wb", buffering=0) as full:
        monkeypatch.setattr(sys, "stdout", type("Out", (), {"buffer": full, "fileno": full.fileno})())
        assert main(["predict", saved, str(tmp_path / "texts.txt")]) == 2
    assert "No space left on device" in capsys.readouterr().err


# -- eval and explain -------------------------------------------------------------------------------------------------


def test_eval_counts_what_was_taken_for_what(
    saved: str, fitted: MetaPromptClassifier, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    expected = ["weather", "sport", "food", "weather", "food"]
    file = write_csv(tmp_path / "test.csv", ["t", "y"], zip(QUESTIONS, expected, strict=True))
    command = ["eval", saved, file, "--text-column", "t", "--label-column", "y"]
    assert main([*command, "--json"]) == 0
    scores = json.loads(capsys.readouterr().out)
    predicted = list(fitted.predict(QUESTIONS))
    assert scores["accuracy"] == np.mean([a == b for a, b in zip(predicted, expected, strict=True)])
    pairs = list(zip(expected, predicted, strict=True))
    assert scores["classes"] == ["food", "sport", "weather"]
    for i, true in enumerate(scores["classes"]):
        for j, taken in enumerate(scores["classes"]):
            assert scores["confusion_matrix"][i][j] == pairs.count((true, taken))
    f1 = []
    for name in set(expected) | set(predicted):
        hits = pairs.count((name, name))
        f1.append(2 * hits / (expected.count(name) + predicted.count(name)))
    assert scores["macro_f1"] == pytest.approx(np.mean(f1))
    assert main(command) == 0
    assert f"5 texts: accuracy {scores['accuracy']:.4f}, macro-F1 {scores['macro_f1']:.4f}" in capsys.readouterr().out


def test_eval_reads_numbers_of_a_table_as_the_classes_they_are(
    unfitted: MetaPromptClassifier, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    unfitted.fit(TEXTS, [len(name) for name in LABELS]).save_pretrained(tmp_path / "saved")
    file = write_csv(tmp_path / "test.csv", ["text", "label"], [(TEXTS[0], 7), (TEXTS[5], 4)])
    assert main(["eval", str(tmp_path / "saved"), file, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["classes"] == [4, 5, 7]


def test_eval_refuses_labels_that_are_no_class(saved: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write_csv(tmp_path / "test.csv", ["text", "label"], [("rain", "weather"), ("a bill", "law")])
    assert main(["eval", saved, file]) == 2
    assert "labels that the classifier does not know: 'law'" in capsys.readouterr().err


def test_explain_prints_what_explain_returns(
    saved: str, fitted: MetaPromptClassifier, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", saved, QUESTIONS[1], "--words", "2", "--examples", "3", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == fitted.explain(QUESTIONS[1], words=2, examples=3).as_dict()
    assert main(["explain", saved, QUESTIONS[1]]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith(f"{fitted.predict([QUESTIONS[1]])[0]}\n")
    assert "attention over the prompts" in printed
    assert TEXTS[0] in printed


def test_a_pool_without_classes_is_refused_with_the_command_that_makes_some(
    unfitted: MetaPromptClassifier, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    unfitted.save_pretrained(tmp_path / "pool")
    assert main(["explain", str(tmp_path / "pool"), "rain"]) == 2
    assert f"openprompt-meta fit {tmp_path / 'pool'}" in capsys.readouterr().err


@pytest.mark.real_encoder
def test_from_examples_to_predictions_on_the_packaged_encoder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    MetaPromptClassifier().save_pretrained(tmp_path / "pool")
    rows = [
        ("will it rain tomorrow", "weather"),
        ("how cold is it", "weather"),
        ("play jazz", "music"),
        ("next song", "music"),
    ]
    few = write_csv(tmp_path / "few.csv", ["text", "label"], rows)
    assert main(["fit", str(tmp_path / "pool"), "--data", few, "--out", str(tmp_path / "mine")]) == 0
    (tmp_path / "texts.txt").write_text("is it going to snow\nturn this song up\n")
    capsys.readouterr()
    assert main(["predict", str(tmp_path / "mine"), str(tmp_path / "texts.txt")]) == 0
    assert [row["predicted_label"] for row in table(capsys.readouterr().out)] == ["weather", "music"]


def test_texts_on_standard_input_never_answer_whether_to_run_code(saved: str, tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    description = json.loads((Path(saved) / "classifier.json").read_text("utf-8"))
    hostile = Path(shutil.copytree(description["base_model"]["name"], tmp_path / "hostile"))
    (hostile / "mine.py").write_text(
        f"from pathlib import Path\nPath({str(marker)!r}).touch()\nfrom transformers import BertConfig as Mine\n"
    )
    config = json.loads((hostile / "config.json").read_text("utf-8"))
    config |= {"model_type": "of_mine", "auto_map": {"AutoConfig": "mine.Mine"}}
    (hostile / "config.json").write_text(json.dumps(config))
    description["base_model"]["name"] = str(hostile)
    (Path(saved) / "classifier.json").write_text(json.dumps(description))
    command = [sys.executable, "-m", "openprompt_meta", "predict", saved, "-"]
    done = subprocess.run(command, input=b"y\ny\nrain\n", capture_output=True, check=False)
    assert done.returncode == 2
    assert done.stdout == b""
    assert b"brings code of its own" in done.stderr
    assert b"Traceback" not in done.stderr
    assert not marker.exists()
