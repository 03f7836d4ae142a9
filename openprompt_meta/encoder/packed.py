"""The packed engine: texts laid end to end through a BERT-like encoder, without padding, several tasks at once."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from openprompt_meta.encoder.batching import length_groups
from openprompt_meta.encoder.classifier import EncoderOutput, MaskOnlyClassifier
from openprompt_meta.errors import ModelError
from openprompt_meta.prompts.pool import PromptPool
from openprompt_meta.prompts.pooling import Features, joined_features, mean_over_tokens
from openprompt_meta.prompts.prefix import first_position
from openprompt_meta.prompts.query import QueryFunction, evaluation_mode

# -- Texts of different lengths laid end to end, so that no work is spent on padding ----------------------------------

# What attending to one more group costs, in tokens that are padded instead. On a CPU next to nothing, so that rows of
# one length make a group; on an accelerator a launch costs more than a few padded rows.
_GROUP_COST = {"cpu": 3}
_GROUP_COST_ELSEWHERE = 512


@dataclass(frozen=True)
class Group:
    """Rows that are attended to together: neighbours in the packing, each ``length`` slots long."""

    rows: int
    length: int
    keys: Tensor | None
    """``[rows, 1, 1, length]``, true at tokens and false at padding; ``None`` if there is no padding."""

    @property
    def slots(self) -> int:
        """How many slots of the packing the group takes."""
        return self.rows * self.length

    def part(self, start: int, end: int) -> Group:
        """The rows from ``start`` to before ``end``."""
        rows = len(range(self.rows)[start:end])
        if rows == self.rows:
            return self
        keys = None if self.keys is None else self.keys[start:end]
        return Group(rows, self.length, None if keys is None or bool(keys.all()) else keys)


@dataclass(frozen=True)
class Packing:
    """Where the tokens of several wrapped batches stand when laid end to end, shorter rows first.

    Attributes:
        groups: the rows in the order of the packing.
        order: ``[R]``, which row (counted over all batches) stands where.
        place: ``[R]``, where each row stands: the inverse of ``order``.
        tokens: ``[N]``, which of the batches' tokens (counted row by row, without padding) is in each slot.
        columns: ``[N]``, the position of each slot in its row.
        valid: ``[N]``, false in the few slots that are padding.
    """

    groups: tuple[Group, ...]
    order: Tensor
    place: Tensor
    tokens: Tensor
    columns: Tensor
    valid: Tensor
    _batches: Sequence[Mapping[str, Any]]

    def flat(self, key: str) -> Tensor:
        """What the batches hold under ``key`` (``[B, L]`` each), as the packing has it: ``[N]``."""
        parts = [batch[key][batch["attention_mask"].bool()] for batch in self._batches]
        return torch.cat(parts)[self.tokens]

    def slots_where(self, key: str) -> Tensor:
        """The slots in which ``key`` is above zero, row by row in the order of the packing."""
        return ((self.flat(key) > 0) & self.valid).nonzero().flatten()

    def slots_to_read(self, features: Features) -> Tensor:
        """``[R]``, the slot of each row's [MASK]; its first one if a mean is read: there may be no [MASK]."""
        slots = self.slots_where("loss_ids")
        return slots if len(slots) or features != "mean" else (self.columns == 0).nonzero().flatten()


def pack(batches: Sequence[Mapping[str, Any]], group_cost: int | None = None) -> Packing:
    """Lay the rows of wrapped batches end to end.

    Args:
        batches: each padded on the right, with ``attention_mask`` ``[B, L]``.
        group_cost: padded tokens that one group less is worth; by default what suits the device.
    """
    device: torch.device = batches[0]["attention_mask"].device
    if group_cost is None:
        group_cost = _GROUP_COST.get(device.type, _GROUP_COST_ELSEWHERE)
    lengths = torch.cat([batch["attention_mask"].sum(dim=1) for batch in batches])  # [R]
    listed = lengths.tolist()
    members = length_groups(listed, group_cost)
    order = torch.tensor([row for group in members for row in group], device=device)
    place = torch.empty_like(order)
    place[order] = torch.arange(len(order), device=device)

    padded = [(len(group), max(listed[row] for row in group)) for group in members]
    room = torch.tensor([longest for rows, longest in padded for _ in range(rows)], device=device)  # slots a row
    starts = lengths.cumsum(dim=0) - lengths  # where a row's tokens start in the batches
    own = torch.repeat_interleave(torch.arange(len(order), device=device), room)  # the place of each slot's row
    columns = torch.arange(len(own), device=device) - (room.cumsum(dim=0) - room)[own]
    real = lengths[order][own]
    valid = columns < real
    tokens = starts[order][own] + torch.minimum(columns, real - 1)

    groups, at = [], 0
    for rows, longest in padded:
        keys = valid[at : at + rows * longest].view(rows, 1, 1, longest)
        groups.append(Group(rows, longest, None if bool(keys.all()) else keys))
        at += rows * longest
    return Packing(tuple(groups), order, place, tokens, columns, valid, batches)


def in_passes(groups: Sequence[Group], most_slots: int) -> Iterator[list[Group]]:
    """The rows of the groups in their order, divided into passes of at most ``most_slots`` slots or one row each."""
    taken: list[Group] = []
    room = most_slots
    for group in groups:
        start = 0
        while start < group.rows:
            rows = room // group.length
            if rows < 1 and taken:
                yield taken
                taken, room = [], most_slots
                continue
            part = group.part(start, start + max(1, rows))
            taken.append(part)
            room -= part.slots
            start += part.rows
    if taken:
        yield taken


# -- packed encoder ---------------------------------------------------------------------------------------------------
# A BERT-like encoder run over texts laid end to end, for what it says at the [MASK] alone.
#
# The same weights and the same mathematics as transformers' own forward pass, with less work: linear layers see no
# padding, and the last layer, if only the [MASK] is looked at, computes keys and values for every token but all
# the rest for that one position.

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


class _KeysAndValues(NamedTuple):
    """What is attended to in one layer, ``[P, heads, L_p, size]`` each, and what is added to the scores of it."""

    keys: Tensor
    values: Tensor
    score: float


@dataclass(frozen=True)
class Prefix:
    """Prompts that texts attend to, and that attend to themselves alone.

    Attributes:
        embedded: ``[P, L_p, d]``, what of each enters the first layer.
        of_rows: ``[R]``, which of them each row attends to, in the order of the packing.
        strength: what a position of a prompt counts for beside one of a text.
    """

    embedded: Tensor
    of_rows: Tensor
    strength: float = 1.0


@dataclass(frozen=True)
class _PrefixOfPass:
    """What the rows of a pass attend to: all prompts by layer, ``[P, heads, L_p, size]`` each, and which is whose."""

    layers: Sequence[_KeysAndValues]
    of_rows: Tensor

    def in_layer(self, number: int, groups: Sequence[Group]) -> list[_KeysAndValues]:
        """For each group ``[rows, heads, L_p, size]``; copied here, so that there is one layer's at a time."""
        keys, values, score = self.layers[number]
        if len(keys) == 1:  # a single prompt need not be copied
            sizes = [(group.rows, -1, -1, -1) for group in groups]
            return [_KeysAndValues(keys.expand(*size), values.expand(*size), score) for size in sizes]
        parts = self.of_rows.split([group.rows for group in groups])
        return [_KeysAndValues(keys[own], values[own], score) for own in parts]


class PackedEncoder:
    """What a BERT-like encoder says of packed texts, at the [MASK] or on average.

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
        self.first_position = first_position(self._encoder)

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
            position_ids=(columns + self.first_position).unsqueeze(0),
            token_type_ids=(torch.zeros_like(columns) if token_types is None else token_types).unsqueeze(0),
        )
        if hasattr(self._encoder, "embeddings_project"):  # ELECTRA's embeddings are narrower than its layers
            embedded = self._encoder.embeddings_project(embedded)
        return embedded.squeeze(0)

    def read(
        self,
        embedded: Tensor,
        groups: Sequence[Group],
        slots: Tensor,
        at_mask: bool = True,
        mean: bool = False,
        prefix: Prefix | None = None,
        depth: int | None = None,
    ) -> tuple[Tensor | None, Tensor | None]:
        """The last layer's output of every row: at one slot ``[R, d]``, and averaged over its tokens ``[R, d]``.

        Args:
            embedded: ``[N, d]`` from :meth:`embed`, in the order of a packing.
            groups: of that packing.
            slots: ``[R]``, the slot to look at in each row, in the order of the packing.
            at_mask: whether to look there.
            mean: whether to average.
            prefix: prompts to attend to, if they stand outside of the texts.
            depth: to go through the first layers only, as many as this.
        """
        layers = self._layers[:depth]
        passes = list(in_passes(groups, SLOTS_OF_A_PASS.get(embedded.device.type, len(embedded))))
        sizes = [sum(group.slots for group in one) for one in passes]
        rows = [sum(group.rows for group in one) for one in passes]
        starts = [0, *accumulate(sizes[:-1])]
        prefixes: Sequence[_PrefixOfPass | None] = [None] * len(passes)
        if prefix is not None:
            by_layer = self.keys_and_values(prefix, depth)
            prefixes = [_PrefixOfPass(by_layer, own) for own in prefix.of_rows.split(rows)]
        parts = zip(embedded.split(sizes), passes, slots.split(rows), starts, prefixes, strict=True)
        found = [self._pass(layers, part, one, own - start, mean, beside) for part, one, own, start, beside in parts]
        means = [own for _, own in found if own is not None]
        return torch.cat([own for own, _ in found]) if at_mask else None, torch.cat(means) if means else None

    def keys_and_values(self, prefix: Prefix, depth: int | None = None) -> list[_KeysAndValues]:
        """What texts attend to of each prompt in each layer, or in the first ``depth`` of them."""
        layers = self._layers[:depth]
        prompts, length, _ = prefix.embedded.shape
        hidden, groups = prefix.embedded.flatten(0, 1), (Group(prompts, length, None),)
        found = []
        for layer in layers:
            attention = layer.attention.self
            keys, values = (self._heads(part(hidden), prompts) for part in (attention.key, attention.value))
            found.append(_KeysAndValues(keys, values, math.log(prefix.strength)))
            if layer is not layers[-1]:
                hidden = self._layer(layer, hidden, hidden, groups, [length])
        return found

    def _pass(
        self,
        layers: Sequence[Any],
        hidden: Tensor,
        groups: Sequence[Group],
        slots: Tensor,
        mean: bool,
        prefix: _PrefixOfPass | None,
    ) -> tuple[Tensor, Tensor | None]:
        """Layers over some of the rows, which attend to ``prefix`` as well if there is one."""
        lengths = [group.length for group in groups]
        for number, layer in enumerate(layers):
            beside = None if prefix is None else prefix.in_layer(number, groups)
            if layer is layers[-1] and not mean:
                return self._layer(layer, hidden[slots], hidden, groups, [1] * len(groups), beside), None
            hidden = self._layer(layer, hidden, hidden, groups, lengths, beside)
        parts = zip(groups, hidden.split([group.slots for group in groups]), strict=True)
        return hidden[slots], torch.cat([_row_means(group, part) for group, part in parts])

    @torch.no_grad()
    def query(self, batch: Mapping[str, Any], function: QueryFunction) -> Tensor:
        """What ``function`` asks with for a wrapped batch of plain tokens, ``[B, d_o]``."""
        if function.kind == "features":
            return self.read_batch(batch, function.features)
        if function.kind == "first_layer":
            return self.read_batch(batch, "mean", depth=1)
        return mean_over_tokens(self.word_embeddings(batch["input_ids"]), batch["attention_mask"])

    def read_batch(self, batch: Mapping[str, Any], features: Features, depth: int | None = None) -> Tensor:
        """Features ``[B, d_o]`` of a wrapped batch of plain tokens: for texts without a prompt.

        Args:
            batch: the texts.
            features: what to read.
            depth: to go through the first layers only, as many as this.
        """
        packing = pack([batch])
        types = packing.flat("token_type_ids") if "token_type_ids" in batch else None
        embedded = self.embed(self.word_embeddings(packing.flat("input_ids")), packing.columns, types)
        slots = packing.slots_to_read(features)
        return joined_features(
            *self.read(embedded, packing.groups, slots, features != "mean", features != "mask", depth=depth)
        )[packing.place]

    def _layer(
        self,
        layer: Any,
        asking: Tensor,
        answering: Tensor,
        groups: Sequence[Group],
        asking_lengths: Sequence[int],
        prefixes: Sequence[_KeysAndValues] | None = None,
    ) -> Tensor:
        """One transformer layer for the slots of ``asking``, which attend to those of ``answering``.

        ``prefixes``, one for each group, are attended to as well.
        """
        attention = layer.attention.self
        queries = attention.query(asking).split(
            [group.rows * length for group, length in zip(groups, asking_lengths, strict=True)]
        )
        keys = attention.key(answering).split([group.slots for group in groups])
        values = attention.value(answering).split([group.slots for group in groups])
        # split, not slices: the gradient of a slice is as large as what it was cut from.
        beside: Sequence[_KeysAndValues | None] = prefixes or [None] * len(groups)
        parts = zip(queries, keys, values, groups, beside, strict=True)
        context = torch.cat([self._attend(*part) for part in parts])
        return self._after_attention(layer, context, asking)

    def _heads(self, part: Tensor, rows: int) -> Tensor:
        """``[rows, heads, length, size]`` of ``[rows · length, d]``."""
        return part.view(rows, -1, self._num_heads, part.shape[-1] // self._num_heads).transpose(1, 2)

    def _attend(
        self, query: Tensor, key: Tensor, value: Tensor, group: Group, prefix: _KeysAndValues | None
    ) -> Tensor:
        queries, keys, values = (self._heads(part, group.rows) for part in (query, key, value))
        mask = group.keys  # true at keys, or what is added to scores
        if prefix is not None:
            keys, values = torch.cat([prefix.keys, keys], dim=2), torch.cat([prefix.values, values], dim=2)
            mask = _mask_beside(prefix, group, queries.dtype, queries.device)
        if self._eager:
            scores = (queries * queries.shape[-1] ** -0.5) @ keys.transpose(-1, -2)
            if mask is not None and mask.dtype == torch.bool:
                scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
            elif mask is not None:
                scores = scores + mask
            attended = scores.softmax(dim=-1) @ values
        else:
            attended = F.scaled_dot_product_attention(queries, keys, values, mask)
        joined: Tensor = attended.transpose(1, 2).reshape(query.shape)
        return joined


def _mask_beside(prefix: _KeysAndValues, group: Group, dtype: torch.dtype, device: torch.device) -> Tensor | None:
    """The mask of a group whose rows attend to a prefix too, ``[rows or 1, 1, 1, L_p + length]``."""
    length = prefix.keys.shape[2]
    is_key = None if group.keys is None else F.pad(group.keys, (length, 0), value=True)
    if prefix.score == 0:
        return is_key
    scores = torch.zeros(1, 1, 1, length + group.length, dtype=dtype, device=device)
    scores[..., :length] = prefix.score
    return scores if is_key is None else scores.masked_fill(~is_key, torch.finfo(dtype).min)


def _row_means(group: Group, hidden: Tensor) -> Tensor:
    """Hidden states of a group's slots averaged over the tokens of each row, ``[rows, d]``."""
    rows = hidden.view(group.rows, group.length, -1)
    is_token = torch.ones_like(rows[..., 0]) if group.keys is None else group.keys.view(group.rows, group.length)
    return mean_over_tokens(rows, is_token)


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
        hidden = encoder(token_ids, attention_mask=mask).last_hidden_state
        expected = joined_features(hidden[batch["loss_ids"] > 0], mean_over_tokens(hidden, mask))
        try:
            found = packed.read_batch(batch, "both")
        except (TypeError, RuntimeError):
            return False
    tolerance = 5e-2 if hidden.dtype in (torch.bfloat16, torch.float16) else 1e-4
    return found.shape == expected.shape and torch.allclose(found, expected, rtol=tolerance, atol=tolerance)


# -- The fast path: several batches, each with its own pool, together through a BERT-like encoder without padding -----


@dataclass(frozen=True)
class PreparedBatches:
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
        prompt_slots: ``[R · L_p]``, where the prompts go, likewise; none if they stand outside of the texts.
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

    Texts are laid end to end without padding, and if only the [MASK] is read the last layer runs there alone. Tokens
    of a frozen encoder are embedded once for any number of readings, those of a tuned one in each. Reading changes
    nothing in the template or the classifier.

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
        self.packed_encoder = encoder

    @torch.no_grad()
    def prepare(self, batches: Sequence[Mapping[str, Any]]) -> PreparedBatches:
        """The batches laid end to end, to be read any number of times."""
        prefix = self._as_prefix
        packing = pack([self._without_pool(batch) for batch in batches] if prefix else batches)
        token_ids, columns = packing.flat("input_ids"), packing.columns
        types = packing.flat("token_type_ids") if "token_type_ids" in batches[0] else None
        prompt_slots = columns[:0] if prefix else packing.slots_where("soft_token_ids")
        asking = batches if prefix or len(prompt_slots) else ()
        tuned = any(parameter.requires_grad for parameter in self.plm.parameters())
        return PreparedBatches(
            token_ids=token_ids,
            columns=columns,
            token_types=types,
            embedded=None if tuned else self._embedded_words(token_ids, columns, types),
            groups=packing.groups,
            order=packing.order,
            place=packing.place,
            mask_slots=packing.slots_to_read(self.features),
            prompt_slots=prompt_slots,
            queries=None if tuned else tuple(self._queries(batch) for batch in asking),
            batches=batches,
        )

    def _embedded_prompts(
        self, prepared: PreparedBatches, pools: Sequence[PromptPool], queries: Sequence[Tensor], dtype: torch.dtype
    ) -> Tensor:
        """Each text's own mixture of its pool's prompts, as it enters the first layer, ``[R · L_p, d]``."""
        mixed = torch.cat([pool(query) for pool, query in zip(pools, queries, strict=True)])
        mixed = mixed[prepared.order].flatten(0, 1).to(dtype)
        slots, types = prepared.prompt_slots, prepared.token_types
        return self.packed_encoder.embed(mixed, prepared.columns[slots], None if types is None else types[slots])

    def _embedded_words(self, token_ids: Tensor, columns: Tensor, types: Tensor | None) -> Tensor:
        return self.packed_encoder.embed(self.packed_encoder.word_embeddings(token_ids), columns, types)

    @property
    def _as_prefix(self) -> bool:
        return getattr(self.template, "as_prefix", False)

    def _without_pool(self, batch: Mapping[str, Any]) -> dict[str, Tensor]:
        """The texts by themselves, as a batch to be packed."""
        inputs, is_mask = self.template.without_pool(batch)
        return {**inputs, "loss_ids": is_mask.long()}

    def _prefix(
        self, prepared: PreparedBatches, pools: Sequence[PromptPool], queries: Sequence[Tensor], dtype: torch.dtype
    ) -> Prefix:
        """The prompts that stand outside of the texts: a single one of a pool once for all of a batch."""
        mixed: list[Tensor] = []
        rows: list[Tensor] = []
        first: dict[int, int] = {}  # by pool: several batches may share a single prompt
        count = 0
        for pool, query in zip(pools, queries, strict=True):
            if pool.num_prompts > 1 or id(pool) not in first:
                mixed.append(pool(query if pool.num_prompts > 1 else query[:1]))
                first[id(pool)] = count
                count += len(mixed[-1])
            start, alone = first[id(pool)], pool.num_prompts == 1
            rows.append(start + (torch.zeros if alone else torch.arange)(len(query), dtype=torch.long))
        prompts = torch.cat(mixed)
        columns = torch.arange(prompts.shape[1], device=prompts.device).repeat(count)
        embedded = self.packed_encoder.embed(prompts.flatten(0, 1).to(dtype), columns)
        of_rows = torch.cat(rows).to(prompts.device)[prepared.order]
        return Prefix(embedded.view(count, prompts.shape[1], -1), of_rows, self.template.prefix_strength)

    def prompt_alone(self) -> Prefix:
        """The single prompt of the template's pool as a prefix, for no text in particular."""
        pool = self.template.pool
        (prompt,) = pool(pool.keys.new_zeros(1, pool.key_dim))
        columns = torch.arange(len(prompt), device=prompt.device)
        embedded = self.packed_encoder.embed(prompt.to(self.plm.dtype), columns)
        return Prefix(embedded.unsqueeze(0), columns[:0], self.template.prefix_strength)

    def _queries(self, batch: Mapping[str, Any]) -> Tensor:
        """What the template asks its pool with, or the same by the packed encoder if there is an encoder to ask."""
        template = self.template
        if not template.asks_queries or "query" in batch or template.query_function.frozen_copy:
            given: Tensor = template.pool_queries(batch)
            return given
        asked = self.packed_encoder.query(self._without_pool(batch), template.query_function)
        return asked.to(template.pool.keys.dtype)

    def encode(
        self, prepared: PreparedBatches, pools: Sequence[PromptPool], verbalizers: Sequence[Any] | None = None
    ) -> list[EncoderOutput]:
        """What the language model says of each text of each batch, all of them together."""
        verbalizers = [self.verbalizer] * len(pools) if verbalizers is None else verbalizers
        hidden = prepared.embedded
        if hidden is None:
            hidden = self._embedded_words(prepared.token_ids, prepared.columns, prepared.token_types)
        queries: Sequence[Tensor] | None = prepared.queries
        if queries is None:
            queries = [self.template.pool_queries(batch) for batch in prepared.batches]
        if len(prepared.prompt_slots):
            prompts = self._embedded_prompts(prepared, pools, queries, hidden.dtype)
            hidden = hidden.index_copy(0, prepared.prompt_slots, prompts)
        prefix = self._prefix(prepared, pools, queries, hidden.dtype) if self._as_prefix else None
        wants_mask = self.features != "mean" or self._head is not None
        found = self.packed_encoder.read(
            hidden, prepared.groups, prepared.mask_slots, wants_mask, self.features != "mask", prefix
        )
        sizes = [len(batch["input_ids"]) for batch in prepared.batches]
        masks, means = ([None] * len(sizes) if part is None else part[prepared.place].split(sizes) for part in found)
        return [self._output(*parts) for parts in zip(masks, means, verbalizers, strict=True)]

    def _read(self, batch: Mapping[str, Any], verbalizer: Any) -> EncoderOutput:
        (reading,) = self.encode(self.prepare([batch]), [self.template.pool], [verbalizer])
        return reading
