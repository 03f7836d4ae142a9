"""The text that the model learns from, and the text it is judged on: two long rows of tokens."""

from __future__ import annotations

import gzip
import hashlib
import subprocess
import sys
import tarfile
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from openprompt_meta.errors import DataError
from openprompt_meta.files import write_atomic
from openprompt_meta.progress import progress_bar
from openprompt_meta.tensor_files import DamagedFile, read_tensors, write_tensors
from tools.minilm_mlm.wiki_text import articles, paragraphs

# The sdist of a package that has Wikipedia's first 10^8 bytes of 2006 with it.
PACKAGE = "x-transformers==2.16.1"
MEMBER = "data/enwik8.gz"
SHA256 = "d52ea2118b505f79007e084b2f49acef9fd0e45fb481f84b2cab0a7191a7ef60"
_MOST_BYTES = 100_000_000

HELD_OUT = 50
"""One article in so many is never trained on."""
_FORMAT = "openprompt_meta.corpus.1"
_AT_ONCE = 2000


class Corpus:
    """Tokens of the articles to learn from and of those held out, each article ended by [SEP].

    Attributes:
        train: the token ids, in one row.
        held_out: those of articles that are never trained on.
    """

    def __init__(self, train: Tensor, held_out: Tensor) -> None:
        self.train = train
        self.held_out = held_out


def read_corpus(folder: Path, tokenizer: Any, show_progress: bool = True) -> Corpus:
    """The corpus for a tokenizer, from ``folder``, or fetched, cleaned, tokenised and kept there.

    Raises:
        DataError: the text cannot be fetched, or is not the one that is expected.
    """
    vocabulary = hashlib.sha256(repr(sorted(tokenizer.get_vocab().items())).encode()).hexdigest()
    kind = {"format": _FORMAT, "vocabulary": vocabulary, "text": SHA256}
    path = folder / "tokens.safetensors"
    kept = _kept(path, kind)
    if kept is not None:
        return kept
    folder.mkdir(parents=True, exist_ok=True)
    text = folder / "enwik8.gz"
    if not text.exists() or _sha256(text) != SHA256:
        _fetch(text)
    train, held_out = _tokenise(text, tokenizer, show_progress)
    write_tensors(path, {"train": train, "held_out": held_out}, kind)
    return Corpus(train, held_out)


def _kept(path: Path, kind: dict[str, str]) -> Corpus | None:
    """What an earlier call has written, if it is whole and of the same text and vocabulary."""
    try:
        tensors, metadata = read_tensors(path)
    except (OSError, DamagedFile):
        return None
    return Corpus(tensors["train"], tensors["held_out"]) if metadata == kind else None


def _tokenise(path: Path, tokenizer: Any, show_progress: bool) -> tuple[Tensor, Tensor]:
    rows: dict[bool, list[Tensor]] = {False: [], True: []}
    end = tokenizer.sep_token_id
    with progress_bar(
        total=_MOST_BYTES, title="reading Wikipedia", unit="B", unit_scale=True, show=show_progress
    ) as bar:
        for held_out, texts, size in _batches(path):
            for ids in tokenizer(texts, add_special_tokens=False, verbose=False)["input_ids"]:
                rows[held_out].append(torch.tensor([*ids, end], dtype=torch.int32))
            bar.update(size)
    return torch.cat(rows[False]), torch.cat(rows[True])


def _batches(path: Path) -> Iterator[tuple[bool, list[str], int]]:
    """Whether held out, the texts of some articles, and how many bytes of the dump they took."""
    waiting: dict[bool, list[str]] = {False: [], True: []}
    read = 0
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for article in articles(lines):
            held_out = zlib.crc32(article.title.encode()) % HELD_OUT == 0
            waiting[held_out].append(" ".join(paragraphs(article.markup)))
            read += len(article.markup)
            if len(waiting[held_out]) >= _AT_ONCE:
                yield held_out, waiting[held_out], read
                waiting[held_out], read = [], 0
    for held_out, texts in waiting.items():
        if texts:
            yield held_out, texts, read
            read = 0


def _fetch(target: Path) -> None:
    """Have pip fetch the package's sdist and take one file out of it."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", ":all:", "-d", name]
        done = subprocess.run([*command, PACKAGE], capture_output=True, text=True, check=False)  # noqa: S603
        sdists = list(folder.glob("*.tar.gz"))
        if done.returncode or not sdists:
            reason = (done.stderr.strip().splitlines() or ["pip gave no reason"])[-1]
            raise DataError(
                f"The text to learn from could not be fetched: {reason} It is {MEMBER} in the sdist of {PACKAGE}; "
                f"put that file at {target}."
            )
        with tarfile.open(sdists[0]) as sdist:
            member = next((m for m in sdist if m.isfile() and m.name.partition("/")[2] == MEMBER), None)
            source = sdist.extractfile(member) if member is not None else None
            content = source.read() if source is not None else b""
    if hashlib.sha256(content).hexdigest() != SHA256:
        raise DataError(f"{MEMBER} in the sdist of {PACKAGE} is not the file that is expected (sha256 {SHA256}).")
    write_atomic(target, content)


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
