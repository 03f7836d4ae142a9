"""The frozen language model under a classifier: loaded once, shared, and known by its fingerprint."""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from openprompt_meta.config.schema import RunConfig
from openprompt_meta.encoder.loading import LoadedMLM, fingerprint
from openprompt_meta.methods.language_model import load_language_model

__all__ = ["BaseModel", "load_base_model"]


@dataclass(frozen=True)
class BaseModel:
    """A frozen language model and what identifies it.

    Attributes:
        loaded: model, tokenizer and OpenPrompt's wrapper; shared by every classifier on it, changed by none.
        fingerprint: sha256 over the model's tensors, whatever they are called.
        tokenizer_fingerprint: sha256 over the vocabulary.
        wordless_ids: tokens that tell a reader nothing: special ones, and places that a vocabulary keeps free.
        tokenizing: held while the tokenizer is used: a fast tokenizer may not be entered twice.
    """

    loaded: LoadedMLM
    fingerprint: str
    tokenizer_fingerprint: str
    wordless_ids: Sequence[int]
    tokenizing: threading.Lock = field(default_factory=threading.Lock)


_KEPT = 2
_loaded: dict[tuple[object, ...], BaseModel] = {}
_loading = threading.Lock()


def load_base_model(config: RunConfig) -> BaseModel:
    """The language model that a configuration asks for, frozen; the last few are kept and shared.

    Raises:
        ModelError: it cannot be loaded.
    """
    path = config.plm.model_path
    key = (path, config.plm.attn_implementation, config.plm.precision, config.run.device, _state_of(Path(path)))
    with _loading:
        if key not in _loaded:
            loaded = load_language_model(config)
            loaded.model.eval()
            vocabulary: dict[str, int] = loaded.tokenizer.get_vocab()
            found = BaseModel(
                loaded,
                fingerprint(loaded.model),
                _vocabulary_fingerprint(vocabulary),
                [*loaded.tokenizer.all_special_ids, *_unused(vocabulary)],
            )
            while len(_loaded) >= _KEPT:
                del _loaded[next(iter(_loaded))]
            _loaded[key] = found
        return _loaded[key]


def _state_of(folder: Path) -> tuple[tuple[str, int, int], ...]:
    """Names, sizes and times of a folder's files, so that a model which changes on disk is read anew."""
    if not folder.is_dir():
        return ()
    files = sorted(file for file in folder.iterdir() if file.is_file())
    return tuple((file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in files)


def _vocabulary_fingerprint(vocabulary: Mapping[str, int]) -> str:
    return hashlib.sha256(json.dumps(sorted(vocabulary.items())).encode()).hexdigest()


def _unused(vocabulary: Mapping[str, int]) -> Iterator[int]:
    return (number for token, number in vocabulary.items() if re.fullmatch(r"[\[<]unused\d+[\]>]", token))
