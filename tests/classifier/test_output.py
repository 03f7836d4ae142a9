"""What comes out: no terminal is steered and no spreadsheet runs what stood in a text, a label or a key."""

from __future__ import annotations

import csv
import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from openprompt_meta import MetaPromptClassifier
from openprompt_meta.cli import main
from openprompt_meta.errors import one_line, printable
from openprompt_meta.files import plain_cell, without_formula
from tests.helpers.few_texts import TEXTS
from tests.helpers.victims import ROOT

STEERING = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202eevil\r\x08\x7f"
HOSTILE = f"{STEERING}rain\x00"


def on_a_terminal(*arguments: str) -> bytes:
    """What a terminal gets of a command, from stdout and stderr."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "openprompt_meta", *arguments]
    process = subprocess.Popen(
        command, stdout=theirs, stderr=theirs, stdin=subprocess.DEVNULL, env={**os.environ, "PYTHONPATH": str(ROOT)}
    )
    os.close(theirs)
    shown = b""
    try:
        while part := os.read(ours, 65536):
            shown += part
    except OSError:  # how Linux says that the other end is closed
        pass
    finally:
        os.close(ours)
        process.wait(60)
    return shown


@pytest.fixture
def hostile(unfitted: MetaPromptClassifier, tmp_path: Path) -> str:
    """A saved classifier of which a class and its texts would steer a terminal."""
    labels = [HOSTILE, "b", "b", "=1+1", "=1+1", HOSTILE]
    unfitted.fit([f"{text} {STEERING}" for text in TEXTS], labels).save_pretrained(tmp_path / "hostile")
    return str(tmp_path / "hostile")


@pytest.mark.slow
@pytest.mark.parametrize("options", [("explain", "DIR", HOSTILE), ("eval", "DIR", "FILE"), ("predict", "DIR", "FILE")])
@pytest.mark.parametrize("as_json", [False, True])
def test_no_terminal_is_steered(hostile: str, tmp_path: Path, options: tuple[str, ...], as_json: bool) -> None:
    rows = [{"text": f"{text} {STEERING}", "label": HOSTILE} for text in TEXTS]
    file = tmp_path / "texts.jsonl"
    file.write_text("\n".join(map(json.dumps, rows)), "utf-8")
    arguments = [{"DIR": hostile, "FILE": str(file)}.get(word, word).replace("\0", "") for word in options]
    shown = on_a_terminal(*arguments, *(["--json"] if as_json else []), *(["--quiet"] if "predict" in options else []))
    assert b"evil" in shown
    raw = shown.decode("utf-8").replace("\r\n", "\n")
    assert printable(raw) == raw


def test_errors_spell_out_what_would_steer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["predict", f"{tmp_path}/{STEERING}", "x.txt"]) == 2
    assert main(["train", "demo", f"meta.{STEERING}=1"]) == 2
    for wrong in (["predict", "x", "y", STEERING], [STEERING], ["table", STEERING], ["serve", "--port", STEERING]):
        with pytest.raises(SystemExit):
            main(wrong)
    said = capsys.readouterr().err
    assert "\\u001b" in said
    assert printable(said) == said


def test_a_file_or_a_pipe_gets_everything_as_it_is(
    hostile: str, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    (tmp_path / "texts.jsonl").write_text(json.dumps({"text": HOSTILE}), "utf-8")
    assert main(["predict", hostile, str(tmp_path / "texts.jsonl"), "--quiet"]) == 0
    assert json.loads(capfdbinary.readouterr().out)["text"] == HOSTILE


def test_signs_that_steer_are_spelt_as_in_json_and_all_others_stay() -> None:
    for harmless in ("", "ünïcode 🌧", "👩\u200d🔬", "a\tb\n", "العربية"):
        assert printable(harmless) == harmless
    assert json.loads(f'"{printable(STEERING)}"') == STEERING
    assert one_line("a\nb\tc\x1b") == "a\\nb\\tc\\u001b"


# -- formulas ---------------------------------------------------------------------------------------------------------

FORMULAS = ["=1+1", "+cmd|' /C calc'!A0", "-2+3", "@SUM(A1)", "\t=1", "\r=1", " =1", "\uff1d1", "=HYPERLINK(1)"]
HARMLESS = ["rain", "-5", "+3.25", "-1e-06", "1=1", "'quoted'", "", "a -b", "'"]


@pytest.mark.parametrize("cell", FORMULAS)
def test_a_formula_is_quoted_and_read_as_it_was(cell: str) -> None:
    assert without_formula(cell) == f"'{cell}"
    assert plain_cell(without_formula(cell)) == cell


@pytest.mark.parametrize("cell", HARMLESS)
def test_what_is_no_formula_stays(cell: str) -> None:
    assert without_formula(cell) == cell
    assert plain_cell(cell) == cell


@pytest.mark.parametrize("suffix", ["csv", "tsv"])
def test_tables_hold_no_formulas_and_are_gone_on_with(
    unfitted: MetaPromptClassifier, tmp_path: Path, suffix: str
) -> None:
    unfitted.fit(TEXTS[:4], ["=1+1", "=1+1", "@b", "@b"]).save_pretrained(tmp_path / "saved")
    texts = [*FORMULAS, *filter(None, HARMLESS)]
    rows = [json.dumps({"=text": text, "+more": "=2"}) for text in texts]
    source = tmp_path / "texts.jsonl"
    out = tmp_path / f"out.{suffix}"
    command = ["predict", str(tmp_path / "saved"), str(source), "--text-column", "=text", "--all", "--quiet"]
    source.write_text("\n".join(rows[:9]), "utf-8")
    assert main([*command, "--out", str(out)]) == 0
    source.write_text("\n".join(rows), "utf-8")
    assert main([*command, "--out", str(out)]) == 0
    with out.open(encoding="utf-8", newline="") as file:
        written = list(csv.reader(file, delimiter="," if suffix == "csv" else "\t"))
    assert len(written) == 1 + len(texts)
    assert not [cell for row in written for cell in row if without_formula(cell) != cell]
    assert [plain_cell(row[0]) for row in written[1:]] == texts
    assert written[0][:3] == ["'=text", "'+more", "predicted_label"]
    raw = tmp_path / f"raw.{suffix}"
    assert main([*command, "--out", str(raw), "--raw-cells"]) == 0
    assert main([*command, "--out", str(raw), "--raw-cells"]) == 0
    with raw.open(encoding="utf-8", newline="") as file:
        written = list(csv.reader(file, delimiter="," if suffix == "csv" else "\t"))
    assert [row[0] for row in written] == ["=text", *texts]
