"""The texts of a split as batches: as OpenPrompt's data loader gives them, or wrapped, tokenised and queried once."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from openprompt.data_utils import InputExample
from torch import Tensor

from openprompt_meta.encoder.queries import query_vectors
from openprompt_meta.encoder.wrapping import TokenRows, wrap_texts
from openprompt_meta.prompts.pool_template import PromptPoolTemplate

# -- The texts of a split as OpenPrompt's data loader gives them: the reference for `TokenizedTexts` ------------------


class OpenPromptTexts:
    """Texts wrapped and tokenised one at a time by OpenPrompt, and padded to the whole length budget.

    Batches bring no query vectors: the template computes them in every pass in which its pool is asked.

    Args:
        texts: the texts.
        template: wraps them.
        tokenizer_wrapper: an OpenPrompt tokenizer wrapper, with its length budget.
        device: where batches go.
    """

    def __init__(
        self,
        texts: Sequence[str],
        template: PromptPoolTemplate,
        tokenizer_wrapper: Any,
        device: torch.device | str = "cpu",
    ) -> None:
        self._texts = texts
        self._template = template
        self._wrapper = tokenizer_wrapper
        self._device = torch.device(device)
        self._features: dict[int, dict[str, Tensor]] = {}

    @property
    def max_seq_length(self) -> int:
        """The length budget in tokens."""
        return int(self._wrapper.max_seq_length)

    def __len__(self) -> int:
        return len(self._texts)

    def batch(self, indices: Sequence[int], labels: Sequence[int] | None = None) -> dict[str, Tensor]:
        """The texts at ``indices`` as one wrapped batch, ``[B, max_seq_length]``, with ``label`` ``[B]`` if given."""
        rows = [self._row(index) for index in indices or (0,)]
        batch = {key: torch.stack([row[key] for row in rows])[: len(indices)] for key in rows[0]}
        if labels is not None:
            batch["label"] = torch.tensor(list(labels), dtype=torch.long)
        return {key: value.to(self._device) for key, value in batch.items()}

    def queries(self, indices: Sequence[int]) -> Tensor:
        """Query vectors of the texts at ``indices``, ``[B, d_o]``."""
        return self._template.queries(self.batch(indices))

    def _row(self, index: int) -> dict[str, Tensor]:
        if index not in self._features:
            wrapped = self._template.wrap_one_example(InputExample(guid=str(index), text_a=self._texts[index]))
            features = self._wrapper.tokenize_one_example(wrapped, teacher_forcing=False)
            self._features[index] = {key: torch.tensor(values) for key, values in features.items()}
        return self._features[index]


# -- The texts of a split, wrapped, tokenised and queried once, and batches of them padded to their longest -----------


class TokenizedTexts:
    """The texts of a split as the template wraps them, ready to be batched.

    All of them are wrapped when a batch is first asked for, and their query vectors computed or read from the cache if
    the language model is frozen, in which case those never change. Neither depends on which batches are asked for: a
    resumed run sees the same bits.

    Args:
        texts: the texts.
        template: wraps them.
        tokenizer_wrapper: an OpenPrompt tokenizer wrapper, with its length budget.
        keep_queries: whether queries may be kept, that is, whether the language model that answers them is frozen.
        device: where batches go.
        cache: folder in which queries are kept from run to run; nowhere if ``None``.
        show_progress: draw a progress bar on stderr while queries are computed.
    """

    def __init__(
        self,
        texts: Sequence[str],
        template: PromptPoolTemplate,
        tokenizer_wrapper: Any,
        keep_queries: bool = True,
        device: torch.device | str = "cpu",
        cache: Path | None = None,
        show_progress: bool = False,
    ) -> None:
        self._texts = texts
        self._template = template
        self._wrapper = tokenizer_wrapper
        self._keep_queries = keep_queries
        self._device = torch.device(device)
        self._cache = cache
        self._show_progress = show_progress

    @property
    def max_seq_length(self) -> int:
        """The length budget in tokens."""
        return int(self._wrapper.max_seq_length)

    def __len__(self) -> int:
        return len(self._texts)

    @cached_property
    def _rows(self) -> TokenRows:
        return wrap_texts(self._texts, self._template, self._wrapper)

    @cached_property
    def _kept_queries(self) -> Tensor | None:
        if not self._keep_queries:
            return None
        return query_vectors(self._rows, self._template.query_function, self._cache, self._show_progress)

    def batch(self, indices: Sequence[int], labels: Sequence[int] | None = None) -> dict[str, Tensor]:
        """The texts at ``indices`` as one wrapped batch.

        Returns:
            ``input_ids``, ``attention_mask``, ``loss_ids``, ``soft_token_ids`` ``[B, L]`` with ``L`` the longest of
            them, ``query`` ``[B, d_o]`` if queries are kept, ``label`` ``[B]`` if labels are given.
        """
        batch = self._rows.batch(indices)
        if self._kept_queries is not None:
            batch["query"] = self._kept_queries[torch.as_tensor(list(indices), dtype=torch.long)]
        if labels is not None:
            batch["label"] = torch.tensor(list(labels), dtype=torch.long)
        return {key: value.to(self._device) for key, value in batch.items()}

    def queries(self, indices: Sequence[int]) -> Tensor:
        """Query vectors of the texts at ``indices``, ``[B, d_o]``."""
        return self._template.queries(self.batch(indices))
