"""The fast path: several batches, each with a pool of its own, in one pass of a BERT-like encoder without padding."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from openprompt_meta.errors import ModelError
from openprompt_meta.model.mask_classifier import MaskOnlyClassifier, MaskReading, at_least_float32
from openprompt_meta.model.packed_encoder import packed_encoder
from openprompt_meta.model.packing import Group, pack
from openprompt_meta.prompts import PromptPool

__all__ = ["LaidOut", "PackedClassifier"]


@dataclass(frozen=True)
class LaidOut:
    """Batches laid end to end and embedded, but for the prompts.

    Attributes:
        embedded: ``[N, d]``, what enters the first layer; anything where the prompts go.
        groups: of the packing.
        order: ``[R]``, which row (counted over the batches) stands where.
        place: ``[R]``, its inverse.
        mask_slots: ``[R]``, where each row's [MASK] is, in the order of the packing.
        prompt_slots: ``[R · L_p]``, where the prompts go, likewise.
        prompt_columns: ``[R · L_p]``, their positions in their texts.
        prompt_types: ``[R · L_p]``, their token types if the batches have any.
        queries: ``[B, d_o]`` of each batch.
    """

    embedded: Tensor
    groups: tuple[Group, ...]
    order: Tensor
    place: Tensor
    mask_slots: Tensor
    prompt_slots: Tensor
    prompt_columns: Tensor
    prompt_types: Tensor | None
    queries: tuple[Tensor, ...]


class PackedClassifier(MaskOnlyClassifier):
    """``MaskOnlyClassifier`` for BERT-like encoders that are frozen and in evaluation mode.

    Tokens are embedded once for any number of readings, texts are laid end to end without padding, and the last layer
    runs at the [MASK] alone. Reading changes nothing in the template or the classifier.

    Takes what ``PromptForClassification`` takes, and ``compiled`` to have ``torch.compile`` fuse parts of the layers.

    Raises:
        ModelError: for a language model that is not of that kind.
    """

    def __init__(self, *args: Any, compiled: bool = False, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        encoder = packed_encoder(self.plm, compiled)
        if encoder is None:
            raise ModelError(
                f"{type(self.plm).__name__} is not built as BERT is, which PackedClassifier needs. Use "
                "MaskOnlyClassifier."
            )
        self._packed_encoder = encoder

    @torch.no_grad()
    def lay_out(self, batches: Sequence[Mapping[str, Any]]) -> LaidOut:
        """The batches laid end to end, with all that does not depend on the prompts computed."""
        packing = pack(batches)
        types = packing.flat("token_type_ids") if "token_type_ids" in batches[0] else None
        words = self._packed_encoder.word_embeddings(packing.flat("input_ids"))
        prompt_slots = packing.slots_where("soft_token_ids")
        return LaidOut(
            embedded=self._packed_encoder.embed(words, packing.columns, types),
            groups=packing.groups,
            order=packing.order,
            place=packing.place,
            mask_slots=packing.slots_where("loss_ids"),
            prompt_slots=prompt_slots,
            prompt_columns=packing.columns[prompt_slots],
            prompt_types=None if types is None else types[prompt_slots],
            queries=tuple(self._queries(batch) for batch in batches),
        )

    def _queries(self, batch: Mapping[str, Any]) -> Tensor:
        """The batch's own query vectors, or those of the packed encoder if it is the one to ask."""
        if "query" in batch or self.template.query_function.frozen_copy:
            given: Tensor = self.template.queries(batch)
            return given
        inputs, is_mask = self.template.without_pool(batch)
        return self._packed_encoder.at_mask({**inputs, "loss_ids": is_mask.long()}).to(self.template.pool.keys.dtype)

    def read_masks(
        self, laid_out: LaidOut, pools: Sequence[PromptPool], verbalizers: Sequence[Any] | None = None
    ) -> list[MaskReading]:
        """What the language model says at the [MASK] of each text of each batch, in one pass over all of them."""
        verbalizers = [self.verbalizer] * len(pools) if verbalizers is None else verbalizers
        embedded = laid_out.embedded
        prompts = torch.cat([pool(query) for pool, query in zip(pools, laid_out.queries, strict=True)])
        prompts = prompts[laid_out.order].flatten(0, 1)  # [R · L_p, d_i]
        prompts = self._packed_encoder.embed(
            prompts.to(embedded.dtype), laid_out.prompt_columns, laid_out.prompt_types
        )
        hidden = embedded.index_copy(0, laid_out.prompt_slots, prompts)
        features = self._packed_encoder.at_slots(hidden, laid_out.groups, laid_out.mask_slots)[laid_out.place]
        parts = features.split([len(query) for query in laid_out.queries])
        return [
            at_least_float32(part, self._logits(part, verbalizer))
            for part, verbalizer in zip(parts, verbalizers, strict=True)
        ]

    def _read(self, batch: Mapping[str, Any], verbalizer: Any) -> MaskReading:
        (reading,) = self.read_masks(self.lay_out([batch]), [self.template.pool], [verbalizer])
        return reading
