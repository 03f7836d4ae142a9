"""A prompt as a prefix: it attends to itself alone, and texts attend to it, through a language model's own code.

Two things of a batch say so: how strongly which position attends to which, and positions counted apart for prompt
and text. What a text is read as then does not depend on where the prompt stands among its tokens, and nothing of the
prompt depends on the text.
"""

from __future__ import annotations

import math
from typing import Any
from weakref import WeakSet

import torch
from torch import Tensor, nn

from openprompt_meta.compat.attention import additive_attention_mask
from openprompt_meta.errors import TemplateError
from openprompt_meta.prompts.query import evaluation_mode


def prefix_inputs(model: Any, is_pool: Tensor, is_read: Tensor, strength: float = 1.0) -> dict[str, Tensor]:
    """What the language model is to be given besides the embeddings.

    Args:
        model: the language model.
        is_pool: ``[B, L]``, true at the prompt's positions.
        is_read: ``[B, L]``, true at the text's tokens that are read.
        strength: s, what a position of the prompt counts for beside one of the text, when a text attends to both.
    """
    text = is_read.long().cumsum(dim=1) - 1
    prompt = is_pool.long().cumsum(dim=1) - 1
    # What is neither (padding, a [MASK] that nobody reads) is attended to by nobody: its place is of no account.
    positions = first_position(model) + torch.where(is_pool, prompt, text).clamp(min=0)
    allowed = torch.where(is_pool.unsqueeze(2), is_pool.unsqueeze(1), (is_pool | is_read).unsqueeze(1))  # [B, L, L]
    dtype: torch.dtype = model.dtype
    scores = torch.zeros(allowed.shape, dtype=dtype, device=allowed.device)
    scores = scores.masked_fill(~is_pool.unsqueeze(2) & is_pool.unsqueeze(1), math.log(strength))
    scores = scores.masked_fill(~allowed, torch.finfo(dtype).min)
    return {"position_ids": positions, "attention_mask": additive_attention_mask(scores)}


def first_position(model: Any) -> int:
    """The place of a text's first token: RoBERTa and MPNet count from behind the padding's id."""
    table = position_table(model)
    return 0 if table is None or table.padding_idx is None else table.padding_idx + 1


def position_table(model: Any) -> nn.Embedding | None:
    """The embeddings of absolute positions, or ``None`` if the model counts distances instead (DeBERTa-v2)."""
    for name, part in model.named_modules():
        if name.endswith("position_embeddings") and isinstance(part, nn.Embedding):
            return part
    return None


_take_prefixes: WeakSet[nn.Module] = WeakSet()
"""The models that were tried and do: a template is made often, and a model tried once."""


def check_takes_prefix(model: Any) -> None:
    """Try it: neither what stands around a prompt changes its hidden states, nor where it stands those of a text.

    Raises:
        TemplateError: not by this model.
    """
    if model in _take_prefixes:
        return
    refusal = TemplateError(
        f"{type(model).__name__} cannot read a prompt as a prefix: it needs absolute positions and a mask that "
        "says which position attends to which, as BERT, RoBERTa and ELECTRA have. Set as_prefix: false."
    )
    if getattr(model.config, "position_embedding_type", "absolute") != "absolute":
        raise refusal
    try:
        takes = _takes_prefix(model)
    except torch.cuda.OutOfMemoryError:  # which is not the model's fault
        raise
    except (TypeError, RuntimeError, ValueError, IndexError) as error:
        raise refusal from error
    if not takes:
        raise refusal
    _take_prefixes.add(model)


@torch.no_grad()
def _takes_prefix(model: Any) -> bool:
    embedding: nn.Embedding = model.get_input_embeddings()
    # Of the whole vocabulary: words that stand beside each other in it may be places kept free, all much alike.
    places = torch.arange(1, 9, device=embedding.weight.device) * (len(embedding.weight) // 9)
    prompt, text, other = embedding.weight[places].split([2, 3, 3])
    encoder = getattr(model, "base_model", model)
    prompts, texts = [], []
    with evaluation_mode(encoder):
        for pool, read, embeds in (
            ([0, 1], [2, 3, 4], torch.cat([prompt, text])),
            ([3, 4], [0, 1, 2], torch.cat([text, prompt, prompt])),  # the last two are padding
            ([0, 1], [2, 3, 4], torch.cat([prompt, other])),
        ):
            is_pool, is_read = torch.zeros(2, 1, len(embeds), dtype=torch.bool, device=embeds.device)
            is_pool[0, pool], is_read[0, read] = True, True
            inputs = prefix_inputs(model, is_pool, is_read)
            hidden = encoder(inputs_embeds=embeds.unsqueeze(0), **inputs).last_hidden_state
            prompts.append(hidden[is_pool])
            texts.append(hidden[is_read])
    same = (texts[0], texts[1]), (prompts[0], prompts[1]), (prompts[0], prompts[2])
    return all(_agree(one, two) for one, two in same)


def _agree(one: Tensor, two: Tensor) -> bool:
    tolerance = 5e-2 if one.dtype in (torch.bfloat16, torch.float16) else 1e-4
    return float((one - two).norm()) <= tolerance * float(one.norm())
