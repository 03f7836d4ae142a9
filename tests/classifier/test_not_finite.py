"""Weights that are finite and too large to compute with: an error that names the text, never a row with NaN."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import httpx
import pytest
import safetensors.torch

from openprompt_meta import MetaPromptClassifier
from openprompt_meta.cli import main
from openprompt_meta.errors import NotFiniteError
from openprompt_meta.tensor_files import read_tensors, write_tensors
from tests.helpers.few_texts import QUESTIONS
from tests.helpers.services import running

MESSAGE = r"The text 'will it rain' gets no probabilities: .* is infinite or not a number"


@pytest.fixture
def runaway(fitted: MetaPromptClassifier, tmp_path: Path) -> Path:
    """A saved classifier whose prompts are finite and of the order of 1e30."""
    folder = tmp_path / "runaway"
    fitted.save_pretrained(folder)
    tensors, metadata = read_tensors(folder / "prompt_pool.safetensors")
    write_tensors(folder / "prompt_pool.safetensors", {**tensors, "prompts": tensors["prompts"] * 1e30}, metadata)
    description = json.loads((folder / "classifier.json").read_text("utf-8"))
    digest = hashlib.sha256((folder / "prompt_pool.safetensors").read_bytes()).hexdigest()
    description["files"]["prompt_pool.safetensors"] = digest
    (folder / "classifier.json").write_text(json.dumps(description), "utf-8")
    assert safetensors.torch.load_file(folder / "prompt_pool.safetensors")["prompts"].isfinite().all()
    return folder


def test_predicting_and_explaining_name_the_text_and_the_cause(runaway: Path) -> None:
    classifier = MetaPromptClassifier.from_pretrained(runaway)
    for ask in (classifier.predict, classifier.predict_proba, lambda texts: classifier.explain(texts[0])):
        with pytest.raises(NotFiniteError, match=MESSAGE + ".*fit it again"):
            ask(QUESTIONS[:1])


@pytest.mark.parametrize("arguments", [["--json"], ["--all"], ["--out", "out.csv"], ["--out", "out.jsonl"]])
def test_the_command_writes_no_row_for_it_and_fails(
    runaway: Path,
    arguments: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("texts.txt").write_text("\n".join(QUESTIONS), "utf-8")
    for _ in range(2):  # a second time nothing may be taken for done
        assert main(["predict", str(runaway), "texts.txt", "--quiet", *arguments]) == 2
        out, err = capfdbinary.readouterr()
        assert out == b""
        assert b"gets no probabilities" in err
        assert not any(file.read_bytes() for file in Path().glob("out.*"))
    assert main(["explain", str(runaway), QUESTIONS[0], "--json"]) == 2


def test_a_row_with_nan_is_not_taken_for_done(
    fitted: MetaPromptClassifier, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fitted.save_pretrained(tmp_path / "saved")
    (tmp_path / "texts.txt").write_text("rain\nsoup\n", "utf-8")
    for written in ("nan", "inf", "-0.5", "1.5"):
        out = tmp_path / "out.csv"
        out.write_text(f"text,predicted_label,predicted_probability\nrain,food,{written}\n", "utf-8")
        command = ["predict", str(tmp_path / "saved"), str(tmp_path / "texts.txt"), "--out", str(out), "--quiet"]
        assert main(command) == 2
        assert f"predicted_probability is {written}, expected a number from 0 to 1" in capsys.readouterr().err


def test_a_number_beyond_all_floats_is_no_json(
    fitted: MetaPromptClassifier, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fitted.save_pretrained(tmp_path / "saved")
    (tmp_path / "texts.jsonl").write_text('{"text": "rain", "weight": 1e999}\n', "utf-8")
    assert main(["predict", str(tmp_path / "saved"), str(tmp_path / "texts.jsonl"), "--json", "--quiet"]) == 2
    captured = capsys.readouterr()
    assert "line 1: 1e999 is a larger number" in captured.err
    assert captured.out == ""


def test_the_service_refuses_it_and_answers_others(runaway: Path) -> None:
    with running(MetaPromptClassifier.from_pretrained(runaway)) as client:
        for path, body in (("/predict", {"texts": QUESTIONS[:1]}), ("/explain", {"text": QUESTIONS[0]})):
            answer: httpx.Response = client.post(path, json=body)
            assert answer.status_code == 409
            assert "gets no probabilities" in answer.json()["error"]
        assert client.get("/health").status_code == 200
