"""Articles to learn from and articles held out, kept on disk, from the text that is expected and no other."""

from __future__ import annotations

import gzip
import hashlib
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from openprompt_meta.encoder.loading import LoadedMLM, load_mlm
from openprompt_meta.encoder.minilm import merged_model, with_head
from openprompt_meta.errors import DataError, RunError
from tools.minilm_mlm import corpus
from tools.minilm_mlm.corpus import read_corpus
from tools.minilm_mlm.fit import fit
from tools.minilm_mlm.judging import judge
from tools.minilm_mlm.settings import FitSettings

ARTICLES = 200
TEXT = " ".join(["the cat sat on the mat and looked at the dog ."] * 3)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """With a small dump in place of the large one; one article in five is held out."""
    pages = "".join(f"<page>\n<title>Article {i}</title>\n<text>{TEXT}</text>\n</page>\n" for i in range(ARTICLES))
    content = gzip.compress(f"<mediawiki>\n{pages}</mediawiki>\n".encode())
    (tmp_path / "enwik8.gz").write_bytes(content)
    monkeypatch.setattr(corpus, "SHA256", hashlib.sha256(content).hexdigest())
    monkeypatch.setattr(corpus, "HELD_OUT", 5)
    return tmp_path


def test_every_article_is_in_one_of_the_two(folder: Path, tiny: Callable[[str], LoadedMLM]) -> None:
    tokenizer = tiny("bert").tokenizer
    found = read_corpus(folder, tokenizer, show_progress=False)
    ends = [int((row == tokenizer.sep_token_id).sum()) for row in (found.train, found.held_out)]
    assert sum(ends) == ARTICLES
    assert 20 <= ends[1] <= 60
    one = tokenizer(TEXT, add_special_tokens=False)["input_ids"]
    assert found.train[: len(one)].tolist() == one


def test_it_is_made_once_and_again_if_damaged(
    folder: Path, tiny: Callable[[str], LoadedMLM], monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenizer = tiny("bert").tokenizer
    first = read_corpus(folder, tokenizer, show_progress=False)
    (folder / "tokens.safetensors").write_bytes((folder / "tokens.safetensors").read_bytes()[:-3])
    again = read_corpus(folder, tokenizer, show_progress=False)
    assert torch.equal(first.train, again.train)
    monkeypatch.setattr(corpus, "_tokenise", lambda *_: pytest.fail("it was there already"))
    assert torch.equal(read_corpus(folder, tokenizer, show_progress=False).held_out, first.held_out)


def test_another_text_is_not_taken(
    folder: Path, tiny: Callable[[str], LoadedMLM], monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "enwik8.gz").write_bytes(b"something else")
    refusal = SimpleNamespace(returncode=1, stderr="ERROR: there is no index\n")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: refusal)
    with pytest.raises(DataError, match=r"could not be fetched: ERROR: there is no index.*put that file at"):
        read_corpus(folder, tiny("bert").tokenizer, show_progress=False)


@pytest.mark.real_encoder
def test_from_settings_to_a_difference_that_loads(folder: Path, tmp_path: Path) -> None:
    """All of it with the real encoder, for a few steps: the result predicts better than the start."""
    settings = FitSettings(
        rank=4, steps=12, tokens_per_step=256, lengths=[32], warmup=1, judge_every=6, judge_tokens=1
    )
    run = tmp_path / "run"
    assert fit(settings, run, folder, show_progress=False)
    encoder, tokenizer, _, _ = load_mlm("minilm")
    held_out = read_corpus(folder, tokenizer, show_progress=False).held_out
    before = judge(with_head(encoder), held_out, tokenizer, 1)
    after = judge(merged_model(encoder, run / "result/difference.safetensors"), held_out, tokenizer, 1)
    assert after.accuracy > before.accuracy + 0.1
    assert after.loss < before.loss - 3
    assert (run / "result/made.json").is_file()


def test_a_folder_that_cannot_be_is_refused_in_a_sentence(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="cannot be made"):
        fit(FitSettings(steps=1), tmp_path / "file" / "run", folder, show_progress=False)
