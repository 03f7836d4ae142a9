"""Words of texts and their vectors: the language model's tokens and input embeddings, or those of a text file."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import stat
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, TypeAlias, TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from openprompt_meta.encoder.loading import LoadedMLM
from openprompt_meta.errors import DataError
from openprompt_meta.progress import ProgressBar, progress_bar
from openprompt_meta.tensor_files import DamagedFile, read_tensors, write_tensors

logger = logging.getLogger(__name__)

# -- A vocabulary: the words of some texts that have a vector, and the texts as numbers of them -----------------------

Corpus: TypeAlias = tuple[str, ...]
UNKNOWN = 0
"""The row of a text's one word if none of its words has a vector; its own vector is zero."""
_AT_ONCE = 1000


@dataclass(frozen=True)
class Vocabulary:
    """Words by number.

    Attributes:
        vectors: ``[V, d]``, in float32; the first row, of :data:`UNKNOWN`, is zero.
        rows: for each of the collections of texts, the numbers of each text's words.
    """

    vectors: Tensor
    rows: Mapping[Corpus, Sequence[Tensor]]

    def of_mean_length(self, length: float, among: Corpus) -> Vocabulary:
        """The same with vectors whose mean length is ``length``, by one factor.

        Args:
            length: to be reached.
            among: the mean is over the words of that collection of texts, each counted once.
        """
        used = torch.unique(torch.cat(list(self.rows[among])))
        mean = self.vectors[used[used != UNKNOWN]].norm(dim=-1).mean()
        return Vocabulary(self.vectors * (length / mean), self.rows)


def tokens_of_model(
    texts: Sequence[Corpus], loaded: LoadedMLM, max_words: int, show_progress: bool = False
) -> Vocabulary:
    """The language model's tokens, special ones aside, with its input embeddings for vectors.

    Args:
        texts: collections of texts, such as splits.
        loaded: its tokenizer and its embeddings are used.
        max_words: of a text; what is over is left out.
        show_progress: draw a progress bar on stderr.
    """

    def divided(some: Sequence[str]) -> list[list[int]]:
        encoded = loaded.tokenizer(list(some), add_special_tokens=False, truncation=True, max_length=max_words)
        found: list[list[int]] = encoded["input_ids"]
        return found

    rows = _divide(texts, divided, show_progress)
    used = sorted({token for collection in rows.values() for row in collection for token in row})
    embeddings = loaded.model.get_input_embeddings().weight.detach().float().cpu()
    return _vocabulary(rows, used, embeddings[torch.tensor(used, dtype=torch.long)])


def words_of_file(
    texts: Sequence[Corpus],
    path: str | os.PathLike[str],
    max_words: int,
    cache: Path | None = None,
    show_progress: bool = False,
) -> Vocabulary:
    """Words in small letters, with the vectors that a text file has of them.

    Args:
        texts: collections of texts, such as splits.
        path: :func:`read_vectors` says what is in it.
        max_words: of a text with a vector; what is over is left out.
        cache: folder in which the vectors of these words are kept; nowhere if ``None``.
        show_progress: draw progress bars on stderr.

    Raises:
        DataError: the file cannot be read as vectors, or has none of these words.
    """
    rows = _divide(texts, lambda some: [_WORD.findall(text.lower()) for text in some], show_progress)
    wanted = {word for collection in rows.values() for row in collection for word in row}
    vectors = kept_vectors(path, wanted, cache, show_progress)
    known = {
        collection: [[word for word in row if word in vectors][:max_words] for row in own]
        for collection, own in rows.items()
    }
    used = sorted(vectors)
    if not used:
        raise DataError(
            f"{path} has a vector of none of the {len(wanted)} words of the texts. Is it of their language?"
        )
    return _vocabulary(known, used, torch.from_numpy(np.stack([vectors[word] for word in used])))


_WORD = re.compile(r"[^\W_]+")


W = TypeVar("W", int, str)


def _divide(
    texts: Sequence[Corpus], divided: Callable[[Sequence[str]], list[list[W]]], show_progress: bool
) -> dict[Corpus, list[list[W]]]:
    rows: dict[Corpus, list[list[W]]] = {}
    with progress_bar(total=sum(map(len, texts)), title="words", unit="text", leave=False, show=show_progress) as bar:
        for collection in texts:
            own = rows[collection] = []
            for start in range(0, len(collection), _AT_ONCE):
                own += divided(collection[start : start + _AT_ONCE])
                bar.update(min(_AT_ONCE, len(collection) - start))
    return rows


def _vocabulary(rows: Mapping[Corpus, Sequence[Sequence[W]]], used: Sequence[W], vectors: Tensor) -> Vocabulary:
    number = {word: i for i, word in enumerate(used, start=UNKNOWN + 1)}
    numbered = {
        collection: [torch.tensor([number[word] for word in row] or [UNKNOWN]) for row in own]
        for collection, own in rows.items()
    }
    return Vocabulary(torch.cat([vectors.new_zeros(1, vectors.shape[1]), vectors]), numbered)


@dataclass(frozen=True)
class WordTexts:
    """Texts as numbers of words, to be batched."""

    rows: Sequence[Tensor]
    device: torch.device

    def __len__(self) -> int:
        return len(self.rows)

    def batch(self, indices: Sequence[int], labels: Sequence[int] | None = None) -> dict[str, Tensor]:
        """``words`` ``[B, L]`` with ``L`` the longest of them, ``is_word`` ``[B, L]``, and ``label`` if given."""
        rows = [self.rows[index] for index in indices]
        lengths = torch.tensor([len(row) for row in rows])
        words = pad_sequence(rows, batch_first=True, padding_value=UNKNOWN)
        batch = {"words": words, "is_word": torch.arange(words.shape[1]) < lengths.unsqueeze(1)}
        if labels is not None:
            batch["label"] = torch.tensor(list(labels), dtype=torch.long)
        return {key: value.to(self.device) for key, value in batch.items()}


# -- Vectors in a text file, GloVe's or fastText's: a word and its numbers a line -------------------------------------

_MOST_BYTES = 20 << 30
_LONGEST_LINE = 1 << 17
_MOST_NUMBERS = 8192
_CHUNK = 1 << 20
FORMAT = "openprompt_meta.word_vectors"
FORMAT_VERSION = "1"


def kept_vectors(
    path: str | os.PathLike[str], wanted: Collection[str], cache: Path | None, show_progress: bool = False
) -> dict[str, np.ndarray]:
    """What :func:`read_vectors` gives, kept as safetensors under the file's SHA-256 and the wanted words."""
    if cache is None:
        return read_vectors(path, wanted, show_progress)
    key = hashlib.sha256(json.dumps([checksum(path, show_progress), sorted(wanted)]).encode()).hexdigest()
    file = cache / f"word-vectors-{key[:32]}.safetensors"
    metadata = {"format": FORMAT, "format_version": FORMAT_VERSION, "key": key}
    try:
        tensors, found = read_tensors(file)
        if found != metadata:
            raise DamagedFile("it was made for something else")
        words = json.loads(bytes(tensors["words"].tolist()))
        return dict(zip(words, tensors["vectors"].numpy(), strict=True))
    except FileNotFoundError:
        pass
    except (OSError, DamagedFile, KeyError, ValueError) as error:
        logger.warning("The word vectors in %s cannot be used (%s); they are read anew.", file, error)
    vectors = read_vectors(path, wanted, show_progress)
    if not vectors:
        return vectors
    words = list(vectors)
    tensors = {
        "words": torch.tensor(list(json.dumps(words).encode()), dtype=torch.uint8),
        "vectors": torch.from_numpy(np.stack([vectors[word] for word in words])),
    }
    try:
        cache.mkdir(parents=True, exist_ok=True)
        write_tensors(file, tensors, metadata)
    except OSError as error:  # a run must not fail for want of a cache
        logger.warning("Word vectors cannot be kept in %s (%s); they are read anew next time.", cache, error)
    return vectors


def checksum(path: str | os.PathLike[str], show_progress: bool = False) -> str:
    """SHA-256 of a file of vectors. :class:`DataError` if it cannot be read."""
    found = hashlib.sha256()
    with _opened(path, "checksum", show_progress) as (file, bar):
        while chunk := file.read(_CHUNK):
            found.update(chunk)
            bar.update(len(chunk))
    return found.hexdigest()


def read_vectors(
    path: str | os.PathLike[str], wanted: Collection[str], show_progress: bool = False
) -> dict[str, np.ndarray]:
    """The vectors ``[d]`` that a text file has of the wanted words, in float32 and in the file's order.

    A line is a word and its numbers with one space between, in UTF-8; fastText's first line, two whole numbers, is
    passed over. Of a word that comes twice the first counts. Only the lines of wanted words are looked at closely.

    Raises:
        DataError: it cannot be read, is too large, or a line is not of that form; with the number of the line.
    """
    found: dict[str, np.ndarray] = {}
    dimension = 0
    sought = {word.encode() for word in wanted}
    with _opened(path, "word vectors", show_progress) as (file, bar):
        for number, line in enumerate(_lines(file, path), start=1):
            bar.update(len(line))
            fields = line.split()
            if number == 1 and len(fields) == 2 and all(field.isdigit() for field in fields):
                continue
            if not fields:
                continue
            if not dimension:
                dimension = len(fields) - 1
                if not 0 < dimension <= _MOST_NUMBERS:
                    raise DataError(
                        f"{path}, line {number}: {dimension} numbers after the word, expected 1 to {_MOST_NUMBERS}. "
                        "Give a text file of word vectors, such as glove.6B.100d.txt or a .vec of fastText."
                    )
            if fields[0] not in sought or len(fields) > dimension + 1:  # a "word" of several parts is none of ours
                continue
            word = fields[0].decode()
            if word not in found:
                found[word] = _numbers(fields[1:], dimension, f"{path}, line {number}")
    return found


def _numbers(fields: Sequence[bytes], dimension: int, where: str) -> np.ndarray:
    try:
        vector = np.array(fields, dtype=np.float32)
    except ValueError as error:
        raise DataError(f"{where}: {str(error)[:120]}. Expected a word and {dimension} numbers.") from None
    if len(vector) != dimension or not np.isfinite(vector).all():
        raise DataError(f"{where}: got {len(vector)} numbers, expected {dimension}, all of them finite.")
    return vector


def _lines(file: BinaryIO, path: str | os.PathLike[str]) -> Iterator[bytes]:
    number = 0
    while line := file.readline(_LONGEST_LINE + 1):
        number += 1
        if len(line) > _LONGEST_LINE:
            raise DataError(f"{path}, line {number}: longer than {_LONGEST_LINE:,} bytes. It is no file of vectors.")
        yield line


@contextmanager
def _opened(path: str | os.PathLike[str], title: str, show_progress: bool) -> Iterator[tuple[BinaryIO, ProgressBar]]:
    """A regular file of at most so many bytes, and a progress bar of them; a :class:`DataError` says why not."""
    try:
        status = os.stat(path)
        if not stat.S_ISREG(status.st_mode):
            raise DataError(f"{path} is no regular file. Give a text file of word vectors.")
        if status.st_size > _MOST_BYTES:
            raise DataError(f"{path} has {status.st_size:,} bytes, expected at most {_MOST_BYTES:,}.")
        bar = progress_bar(
            total=status.st_size, title=title, unit="B", unit_scale=True, leave=False, show=show_progress
        )
        with open(path, "rb") as file, bar:
            yield file, bar
    except OSError as error:
        raise DataError(f"The word vectors in {path} cannot be read: {error}.") from None
