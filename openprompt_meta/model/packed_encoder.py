"""A BERT-like encoder run over texts laid end to end, for what it says at the [MASK] alone.

The same weights and the same mathematics as transformers' own forward pass, with less work: linear layers see no
padding, and the last layer, of which only the [MASK] is looked at, computes keys and values for every token but all
the rest for that one position.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from openprompt_meta.model.packing import Group, in_passes, pack
from openprompt_meta.prompts.query import evaluation_mode

__all__ = ["SLOTS_OF_A_PASS", "PackedEncoder", "packed_encoder"]

# How many slots go through all layers before the next do, by type of device. On a CPU few enough that much of what a
# layer has written is still in the cache when the next one reads it (with MiniLM 2048 to 8192 did about equally well);
# elsewhere all at once, because an accelerator gains by larger passes.
SLOTS_OF_A_PASS = {"cpu": 4096}

# By these parts BERT, RoBERTa, ELECTRA and their descendants are known.
_PARTS_OF_A_LAYER = (
    "attention.self.query",
    "attention.self.key",
    "attention.self.value",
    "attention.output.dense",
    "attention.output.LayerNorm",
    "intermediate.dense",
    "intermediate.intermediate_act_fn",
    "output.dense",
    "output.LayerNorm",
)


class PackedEncoder:
    """What a BERT-like encoder says at the [MASK] of packed texts.

    Dropout is not applied: it is for encoders in evaluation mode. Use :func:`packed_encoder` to get one, which knows
    whether a model is of that kind.

    Args:
        encoder: the model's encoder.
        compiled: let ``torch.compile`` fuse what comes after attention in each layer.
    """

    def __init__(self, encoder: Any, compiled: bool = False) -> None:
        self._encoder = encoder
        self._after_attention = torch.compile(_after_attention, dynamic=True) if compiled else _after_attention
        self._layers: Sequence[Any] = list(self._encoder.encoder.layer)
        self._num_heads: int = self._encoder.config.num_attention_heads
        self._eager: bool = getattr(self._encoder.config, "_attn_implementation", "eager") == "eager"
        positions = self._encoder.embeddings.position_embeddings
        # RoBERTa counts positions from behind the padding's id.
        self._first_position = 0 if positions.padding_idx is None else positions.padding_idx + 1

    def word_embeddings(self, token_ids: Tensor) -> Tensor:
        """Input embeddings ``[N, d_i]`` of tokens ``[N]``."""
        embedded: Tensor = self._encoder.get_input_embeddings()(token_ids)
        return embedded

    def embed(self, embeds: Tensor, columns: Tensor, token_types: Tensor | None = None) -> Tensor:
        """What enters the first layer, ``[N, d]``: embeddings ``[N, d_i]`` with their positions, normalised.

        Args:
            embeds: of tokens or of prompts.
            columns: ``[N]``, positions in the text, from 0.
            token_types: ``[N]``; 0 everywhere by default.
        """
        embedded: Tensor = self._encoder.embeddings(
            inputs_embeds=embeds.unsqueeze(0),
            position_ids=(columns + self._first_position).unsqueeze(0),
            token_type_ids=(torch.zeros_like(columns) if token_types is None else token_types).unsqueeze(0),
        )
        if hasattr(self._encoder, "embeddings_project"):  # ELECTRA's embeddings are narrower than its layers
            embedded = self._encoder.embeddings_project(embedded)
        return embedded.squeeze(0)

    def at_slots(self, embedded: Tensor, groups: Sequence[Group], slots: Tensor) -> Tensor:
        """The last layer's output at one slot of every row, ``[R, d]``.

        Args:
            embedded: ``[N, d]`` from :meth:`embed`, in the order of a packing.
            groups: of that packing.
            slots: ``[R]``, the slot to look at in each row, in the order of the packing.
        """
        passes = list(in_passes(groups, SLOTS_OF_A_PASS.get(embedded.device.type, len(embedded))))
        sizes = [sum(group.slots for group in one) for one in passes]
        rows = [sum(group.rows for group in one) for one in passes]
        starts = [0, *accumulate(sizes[:-1])]
        parts = zip(embedded.split(sizes), passes, slots.split(rows), starts, strict=True)
        return torch.cat([self._pass(part, one, own - start) for part, one, own, start in parts])

    def _pass(self, hidden: Tensor, groups: Sequence[Group], slots: Tensor) -> Tensor:
        """All layers over some of the rows."""
        for layer in self._layers[:-1]:
            hidden = self._layer(layer, hidden, hidden, groups, [group.length for group in groups])
        return self._layer(self._layers[-1], hidden[slots], hidden, groups, [1] * len(groups))

    def at_mask(self, batch: Mapping[str, Any]) -> Tensor:
        """What a wrapped batch of plain tokens says at its [MASK]s, ``[B, d]``: for texts without a prompt."""
        packing = pack([batch])
        types = packing.flat("token_type_ids") if "token_type_ids" in batch else None
        embedded = self.embed(self.word_embeddings(packing.flat("input_ids")), packing.columns, types)
        return self.at_slots(embedded, packing.groups, packing.slots_where("loss_ids"))[packing.place]

    def _layer(
        self, layer: Any, asking: Tensor, answering: Tensor, groups: Sequence[Group], asking_lengths: Sequence[int]
    ) -> Tensor:
        """One transformer layer for the slots of ``asking``, which attend to those of ``answering``."""
        attention = layer.attention.self
        queries = attention.query(asking).split(
            [group.rows * length for group, length in zip(groups, asking_lengths, strict=True)]
        )
        keys = attention.key(answering).split([group.slots for group in groups])
        values = attention.value(answering).split([group.slots for group in groups])
        # split, not slices: the gradient of a slice is as large as what it was cut from.
        parts = zip(queries, keys, values, groups, strict=True)
        context = torch.cat([self._attend(query, key, value, group) for query, key, value, group in parts])
        return self._after_attention(layer, context, asking)

    def _attend(self, query: Tensor, key: Tensor, value: Tensor, group: Group) -> Tensor:
        queries, keys, values = (
            part.view(group.rows, -1, self._num_heads, part.shape[-1] // self._num_heads).transpose(1, 2)
            for part in (query, key, value)
        )  # [rows, heads, length, size]
        if self._eager:
            scores = (queries * queries.shape[-1] ** -0.5) @ keys.transpose(-1, -2)
            if group.keys is not None:
                scores = scores.masked_fill(~group.keys, torch.finfo(scores.dtype).min)
            attended = scores.softmax(dim=-1) @ values
        else:
            attended = F.scaled_dot_product_attention(queries, keys, values, group.keys)
        joined: Tensor = attended.transpose(1, 2).reshape(query.shape)
        return joined


def _after_attention(layer: Any, context: Tensor, asking: Tensor) -> Tensor:
    """The rest of a layer, position by position."""
    joined = layer.attention.output
    hidden = joined.LayerNorm(joined.dense(context) + asking)
    widened = layer.intermediate.intermediate_act_fn(layer.intermediate.dense(hidden))
    output: Tensor = layer.output.LayerNorm(layer.output.dense(widened) + hidden)
    return output


def packed_encoder(model: nn.Module, compiled: bool = False) -> PackedEncoder | None:
    """A :class:`PackedEncoder` with a model's weights, or ``None`` if the model is not of that kind.

    A model that looks like one is compared with its own forward pass on two short texts before it is trusted.
    """
    encoder: Any = getattr(model, "base_model", model)
    layers = getattr(getattr(encoder, "encoder", None), "layer", None)
    embeddings = getattr(encoder, "embeddings", None)
    if not layers or not hasattr(embeddings, "position_embeddings"):
        return None
    if not all(_has_part(layer, part) for layer in layers for part in _PARTS_OF_A_LAYER):
        return None
    packed = PackedEncoder(encoder, compiled)
    return packed if _agrees(packed, encoder) else None


def _has_part(layer: nn.Module, path: str) -> bool:
    part: Any = layer
    for name in path.split("."):
        part = getattr(part, name, None)
    return part is not None


@torch.no_grad()
def _agrees(packed: PackedEncoder, encoder: Any) -> bool:
    device = next(encoder.parameters()).device
    mask = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]], device=device)
    token_ids = torch.arange(2, 12, device=device).view(2, 5) % encoder.get_input_embeddings().num_embeddings
    batch = {"input_ids": token_ids, "attention_mask": mask, "loss_ids": torch.zeros_like(mask)}
    batch["loss_ids"][0, 3] = batch["loss_ids"][1, 1] = 1
    with evaluation_mode(encoder):
        expected = encoder(token_ids, attention_mask=mask).last_hidden_state[batch["loss_ids"] > 0]
        try:
            found = packed.at_mask(batch)
        except (TypeError, RuntimeError):
            return False
    tolerance = 5e-2 if expected.dtype in (torch.bfloat16, torch.float16) else 1e-4
    return found.shape == expected.shape and torch.allclose(found, expected, rtol=tolerance, atol=tolerance)
