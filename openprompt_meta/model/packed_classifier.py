"""The fast path: several batches, each with its own pool, together through a BERT-like encoder without padding."""

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
    """Batches laid end to end, with all computed that neither the prompts nor tuning can change.

    Attributes:
        token_ids: ``[N]``; anything where the prompts go.
        columns: ``[N]``, positions in the texts.
        token_types: ``[N]`` if the batches have any.
        embedded: ``[N, d]``, what enters the first layer, likewise; ``None`` if the embeddings are being tuned.
        groups: of the packing.
        order: ``[R]``, which row (counted over the batches) stands where.
        place: ``[R]``, its inverse.
        mask_slots: ``[R]``, where each row's [MASK] is, in the order of the packing.
        prompt_slots: ``[R · L_p]``, where the prompts go, likewise.
        queries: ``[B, d_o]`` of each batch, none if there are no prompts to mix; ``None`` if who answers is tuned.
        batches: what was laid out.
    """

    token_ids: Tensor
    columns: Tensor
    token_types: Tensor | None
    embedded: Tensor | None
    groups: tuple[Group, ...]
    order: Tensor
    place: Tensor
    mask_slots: Tensor
    prompt_slots: Tensor
    queries: tuple[Tensor, ...] | None
    batches: Sequence[Mapping[str, Any]]


class PackedClassifier(MaskOnlyClassifier):
    """``MaskOnlyClassifier`` for BERT-like encoders in evaluation mode.

    Texts are laid end to end without padding, and the last layer runs at the [MASK] alone. Tokens of a frozen encoder
    are embedded once for any number of readings, those of a tuned one in each. Reading changes nothing in the
    template or the classifier.

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
        """The batches laid end to end, to be read any number of times."""
        packing = pack(batches)
        token_ids, columns = packing.flat("input_ids"), packing.columns
        types = packing.flat("token_type_ids") if "token_type_ids" in batches[0] else None
        prompt_slots = packing.slots_where("soft_token_ids")
        asking = batches if len(prompt_slots) else ()
        tuned = any(parameter.requires_grad for parameter in self.plm.parameters())
        return LaidOut(
            token_ids=token_ids,
            columns=columns,
            token_types=types,
            embedded=None if tuned else self._embedded_words(token_ids, columns, types),
            groups=packing.groups,
            order=packing.order,
            place=packing.place,
            mask_slots=packing.slots_where("loss_ids"),
            prompt_slots=prompt_slots,
            queries=None if tuned else tuple(self._queries(batch) for batch in asking),
            batches=batches,
        )

    def _embedded_prompts(self, laid_out: LaidOut, pools: Sequence[PromptPool], dtype: torch.dtype) -> Tensor:
        """Each text's own mixture of its pool's prompts, as it enters the first layer, ``[R · L_p, d]``."""
        queries = laid_out.queries
        if queries is None:
            queries = tuple(self.template.pool_queries(batch) for batch in laid_out.batches)
        mixed = torch.cat([pool(query) for pool, query in zip(pools, queries, strict=True)])
        mixed = mixed[laid_out.order].flatten(0, 1).to(dtype)
        slots, types = laid_out.prompt_slots, laid_out.token_types
        return self._packed_encoder.embed(mixed, laid_out.columns[slots], None if types is None else types[slots])

    def _embedded_words(self, token_ids: Tensor, columns: Tensor, types: Tensor | None) -> Tensor:
        return self._packed_encoder.embed(self._packed_encoder.word_embeddings(token_ids), columns, types)

    def _queries(self, batch: Mapping[str, Any]) -> Tensor:
        """What the template asks its pool with, or the same by the packed encoder if there is an encoder to ask."""
        template = self.template
        if template.pool.num_prompts == 1 or "query" in batch or template.query_function.frozen_copy:
            given: Tensor = template.pool_queries(batch)
            return given
        inputs, is_mask = template.without_pool(batch)
        return self._packed_encoder.at_mask({**inputs, "loss_ids": is_mask.long()}).to(template.pool.keys.dtype)

    def read_masks(
        self, laid_out: LaidOut, pools: Sequence[PromptPool], verbalizers: Sequence[Any] | None = None
    ) -> list[MaskReading]:
        """What the language model says at the [MASK] of each text of each batch, all of them together."""
        verbalizers = [self.verbalizer] * len(pools) if verbalizers is None else verbalizers
        hidden = laid_out.embedded
        if hidden is None:
            hidden = self._embedded_words(laid_out.token_ids, laid_out.columns, laid_out.token_types)
        if len(laid_out.prompt_slots):
            prompts = self._embedded_prompts(laid_out, pools, hidden.dtype)
            hidden = hidden.index_copy(0, laid_out.prompt_slots, prompts)
        features = self._packed_encoder.at_slots(hidden, laid_out.groups, laid_out.mask_slots)[laid_out.place]
        parts = features.split([len(batch["input_ids"]) for batch in laid_out.batches])
        return [
            at_least_float32(part, self._logits(part, verbalizer))
            for part, verbalizer in zip(parts, verbalizers, strict=True)
        ]

    def _read(self, batch: Mapping[str, Any], verbalizer: Any) -> MaskReading:
        (reading,) = self.read_masks(self.lay_out([batch]), [self.template.pool], [verbalizer])
        return reading
