"""Texts from anywhere, wrapped and tokenised, in batches of about the same length."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor

from openprompt_meta.config import RunConfig
from openprompt_meta.model.length_groups import groups_by_length
from openprompt_meta.model.token_rows import TokenRows
from openprompt_meta.model.wrapping import wrap_texts
from openprompt_meta.prompts import PromptPoolTemplate
from openprompt_meta.use.base_model import BaseModel

__all__ = ["batches_by_length", "rows_by_length", "wrapped"]


def wrapped(base: BaseModel, config: RunConfig, template: PromptPoolTemplate, texts: Sequence[str]) -> TokenRows:
    """The texts wrapped and tokenised; one thread at a time, which is what a fast tokenizer takes."""
    wrapper = base.loaded.wrapper(tokenizer=base.loaded.tokenizer, max_seq_length=config.dataset.max_seq_length)
    with base.tokenizing:
        return wrap_texts(texts, template, wrapper)


def rows_by_length(
    rows: TokenRows, most_tokens: int, device: torch.device
) -> Iterator[tuple[list[int], dict[str, Tensor]]]:
    """Batches of rows, shortest first, with the positions of their rows."""
    for indices in groups_by_length(rows.lengths.tolist(), most_tokens):
        yield indices, {key: value.to(device) for key, value in rows.batch(indices).items()}


def batches_by_length(batch: Mapping[str, Tensor], most_tokens: int) -> tuple[list[dict[str, Tensor]], Tensor]:
    """A batch divided into batches, shortest rows first, and where each of its rows then is."""
    mask = batch["attention_mask"]
    groups = [
        torch.tensor(group, device=mask.device) for group in groups_by_length(mask.sum(dim=1).tolist(), most_tokens)
    ]
    order = torch.cat(groups)
    place = torch.empty_like(order)
    place[order] = torch.arange(len(order), device=mask.device)
    return [{key: value[group] for key, value in batch.items()} for group in groups], place
