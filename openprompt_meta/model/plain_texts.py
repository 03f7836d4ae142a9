"""The texts of a split as OpenPrompt's data loader gives them: the reference for `EncodedTexts`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from openprompt.data_utils import InputExample
from torch import Tensor

from openprompt_meta.prompts import PromptPoolTemplate

__all__ = ["PlainTexts"]


class PlainTexts:
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
        rows = [self._row(index) for index in indices]
        batch = {key: torch.stack([row[key] for row in rows]) for key in rows[0]}
        if labels is not None:
            batch["label"] = torch.tensor(list(labels))
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
