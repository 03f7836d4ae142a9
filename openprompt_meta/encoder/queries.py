"""Query vectors of all texts of a split: computed once in large batches by length, and kept on disk.

They are the frozen language model's features of a text before any prompt is added, so they depend on its weights
and on the tokens it is shown (a matter of text, tokenizer, template and length budget), and on nothing else. Both make
the name of the file. A file that is damaged or of another kind is made anew; two processes that make the same file at
once each write it whole, and the later one stays.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from openprompt_meta.encoder.batching import groups_by_length
from openprompt_meta.encoder.loading import fingerprint
from openprompt_meta.encoder.packed import packed_encoder
from openprompt_meta.encoder.wrapping import TokenRows
from openprompt_meta.progress import progress_bar
from openprompt_meta.prompts.query import QueryFunction, evaluation_mode
from openprompt_meta.tensor_files import (
    DamagedFile,
    bytes_of,
    map_tensors,
    write_tensors,
)

logger = logging.getLogger(__name__)

FORMAT = "openprompt_meta.queries"
FORMAT_VERSION = "1"
_TOKENS_AT_ONCE = 4096
_TENSOR = "queries"


def query_vectors(
    rows: TokenRows, function: QueryFunction, folder: Path | None = None, show_progress: bool = False
) -> Tensor:
    """Query vectors ``[n, d_o]``, on the CPU in single precision or better, memory-mapped if they come from disk.

    Args:
        rows: the wrapped texts, pool and all.
        function: the query function of a frozen language model.
        folder: where to keep them; nowhere if ``None``.
        show_progress: draw a progress bar on stderr while computing.
    """
    texts = rows.without("soft_token_ids")
    if function.features == "mean":  # as the template has it
        texts = texts.without("loss_ids")
    if folder is None:
        return _compute(texts, function, show_progress)
    key = _key(texts, function)
    file = folder / f"queries-{key[:32]}.safetensors"
    kept = _read(file, key, len(rows))
    if kept is not None:
        return kept
    computed = _compute(texts, function, show_progress)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_tensors(file, {_TENSOR: computed}, _metadata(key))
    except OSError as error:  # a run must not fail for want of a cache
        logger.warning("Query vectors cannot be kept in %s (%s); they are computed anew next time.", folder, error)
        return computed
    return computed


def _key(texts: TokenRows, function: QueryFunction) -> str:
    """The model's weights and precision, what is read, and all that it is shown: tokens as the template has them."""
    digest = hashlib.sha256(fingerprint(function.encoder).encode())
    if function.features != "mask":
        digest.update(function.features.encode())
    if function.kind != "features":
        digest.update(function.kind.encode())
    for name in sorted(texts.columns):
        digest.update(name.encode())
        digest.update(bytes_of(texts.columns[name]))
    digest.update(bytes_of(texts.ends))
    return digest.hexdigest()


def _read(file: Path, key: str, rows: int) -> Tensor | None:
    """What a file keeps under ``key``; ``None`` if there is no file, or it is not what it should be."""
    try:
        tensors, metadata = map_tensors(file)
        if metadata != _metadata(key) or tensors.keys() != {_TENSOR} or len(tensors[_TENSOR]) != rows:
            raise DamagedFile("it was made for something else")
    except FileNotFoundError:
        return None
    except (OSError, DamagedFile) as error:
        logger.warning("The query vectors in %s cannot be used (%s); they are computed anew.", file, error)
        return None
    return tensors[_TENSOR]


def _metadata(key: str) -> dict[str, str]:
    return {"format": FORMAT, "format_version": FORMAT_VERSION, "key": key}


@torch.no_grad()
def _compute(texts: TokenRows, function: QueryFunction, show_progress: bool) -> Tensor:
    """Batches by length, so that little is padded; which batches there are depends on the lengths alone."""
    packed = packed_encoder(function.encoder)
    device = next(function.encoder.parameters()).device
    found: list[Tensor] = []
    order: list[int] = []
    bar = progress_bar(total=len(texts), title="query vectors", unit="text", leave=False, show=show_progress)
    with bar, evaluation_mode(function.encoder):
        for indices in groups_by_length(texts.lengths.tolist(), _TOKENS_AT_ONCE):
            batch = {key: value.to(device) for key, value in texts.batch(indices).items()}
            answer = _ask(function, batch) if packed is None else packed.query(batch, function)
            found.append(answer.to(torch.promote_types(answer.dtype, torch.float32)).cpu())
            order += indices
            bar.update(len(indices))
    queries = torch.empty(len(texts), found[0].shape[1], dtype=found[0].dtype)
    queries[torch.tensor(order)] = torch.cat(found)
    return queries


def _ask(function: QueryFunction, batch: Mapping[str, Any]) -> Tensor:
    inputs = {key: batch[key] for key in ("input_ids", "attention_mask", "token_type_ids") if key in batch}
    return function(inputs, batch["loss_ids"] > 0)
