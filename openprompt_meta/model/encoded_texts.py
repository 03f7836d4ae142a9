"""Texts wrapped, tokenised and queried once each, and batches of them padded to their longest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from openprompt.data_utils import InputExample
from torch import Tensor

from openprompt_meta.prompts import PromptPoolTemplate

__all__ = ["EncodedTexts"]


class EncodedTexts:
    """The texts of a split as the template wraps them, ready to be batched.

    Wrapping and tokenising are OpenPrompt's. Each text is encoded when it is first asked for and kept, with its query
    vector if the language model is frozen, in which case that never changes. Queries are computed for one text at a
    time, without padding, so that they do not depend on which texts were asked for together: a resumed run sees the
    same bits.

    Args:
        texts: the texts.
        template: wraps them.
        tokenizer_wrapper: an OpenPrompt tokenizer wrapper, with its length budget.
        keep_queries: whether queries may be kept, that is, whether the language model that answers them is frozen.
        device: where batches go.
    """

    def __init__(
        self,
        texts: Sequence[str],
        template: PromptPoolTemplate,
        tokenizer_wrapper: Any,
        keep_queries: bool = True,
        device: torch.device | str = "cpu",
    ) -> None:
        self._texts = texts
        self._template = template
        self._wrapper = tokenizer_wrapper
        self._keep_queries = keep_queries
        self._device = torch.device(device)
        self._encoded: dict[int, dict[str, Tensor]] = {}

    @property
    def max_seq_length(self) -> int:
        """The length budget in tokens."""
        return int(self._wrapper.max_seq_length)

    def __len__(self) -> int:
        return len(self._texts)

    def batch(self, indices: Sequence[int], labels: Sequence[int] | None = None) -> dict[str, Tensor]:
        """The texts at ``indices`` as one wrapped batch.

        Returns:
            ``input_ids``, ``attention_mask``, ``loss_ids``, ``soft_token_ids`` ``[B, L]`` with ``L`` the longest of
            them, ``query`` ``[B, d_o]`` if queries are kept, ``label`` ``[B]`` if labels are given.
        """
        rows = [self._row(index) for index in indices]
        batch = {key: self._stack([row[key] for row in rows], key) for key in rows[0]}
        if labels is not None:
            batch["label"] = torch.tensor(list(labels), device=self._device)
        return batch

    def _stack(self, values: list[Tensor], key: str) -> Tensor:
        if key == "query":
            return torch.cat(values)
        padding = self._wrapper.tokenizer.pad_token_id if key == "input_ids" else 0
        return torch.nn.utils.rnn.pad_sequence(values, batch_first=True, padding_value=padding)

    def _row(self, index: int) -> dict[str, Tensor]:
        if index not in self._encoded:
            self._encoded[index] = self._encode(self._texts[index], index)
        return self._encoded[index]

    def _encode(self, text: str, index: int) -> dict[str, Tensor]:
        wrapped = self._template.wrap_one_example(InputExample(guid=str(index), text_a=text))
        features = self._wrapper.tokenize_one_example(wrapped, teacher_forcing=False)
        length = sum(features["attention_mask"])  # OpenPrompt pads every text to the budget; batches need less
        row = {
            key: torch.tensor(features[key][:length], device=self._device)
            for key in ("input_ids", "attention_mask", "token_type_ids", "loss_ids", "soft_token_ids")
            if key in features
        }
        if self._keep_queries:
            row["query"] = self._template.queries({key: value.unsqueeze(0) for key, value in row.items()})
        return row
