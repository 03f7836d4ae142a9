"""How well a masked language model predicts: hidden words of held-out text, and what it says of a few sentences."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from tools.minilm_mlm.masking import Masking, Puzzle

JUDGED_RATE = 0.15
JUDGED_LENGTH = 128
_ROWS = 16
_SEED = 20_000

SENTENCES = (
    # Facts.
    "The capital of France is [MASK].",
    "The capital of Germany is [MASK].",
    "Water freezes at zero [MASK] Celsius.",
    "The sun rises in the [MASK].",
    "Shakespeare wrote many famous [MASK].",
    "A triangle has three [MASK].",
    "The opposite of hot is [MASK].",
    "Bees make [MASK].",
    # Topics.
    "The striker scored twice and the team won the cup. This is about [MASK].",
    "Shares fell as investors feared higher interest rates. Topic is [MASK].",
    "The senate passed the bill after a long debate. Topic is [MASK].",
    "The new telescope found a planet around a distant star. Topic is [MASK].",
    "The band played songs from its latest album. Topic is [MASK].",
    "Doctors warn that the flu is spreading early this year. Topic is [MASK].",
    "Simmer the onions in butter and add the garlic. Topic is [MASK].",
    "The church was built by monks in the twelfth century. Topic is [MASK].",
    # Intents.
    "Wake me up at seven tomorrow. Topic is about [MASK].",
    "Will it rain in Boston this weekend? Topic is about [MASK].",
    "Play something by the Beatles. Topic is about [MASK].",
    "Turn off the lights in the kitchen. Topic is about [MASK].",
    "Send a message to my sister. Topic is about [MASK].",
    "How do I get to the airport by train? Topic is about [MASK].",
    "Book a table for two at eight. Topic is about [MASK].",
    "What is twelve times nine? Topic is about [MASK].",
)


@dataclass(frozen=True)
class Judgement:
    """Over hidden words of held-out text."""

    accuracy: float
    """Share of hidden words that are the model's first guess."""
    loss: float
    """Mean negative log-probability, in nats."""
    words: int
    """How many were asked for."""


def scores(model: Any, puzzle: Puzzle) -> Tensor:
    """Logits ``[B, M, V]`` at the places that are asked for, and nowhere else."""
    hidden = model.bert(input_ids=puzzle.input_ids).last_hidden_state
    wanted = puzzle.positions.unsqueeze(-1).expand(-1, -1, hidden.shape[-1])
    logits: Tensor = model.cls(hidden.gather(1, wanted))
    return logits


@torch.no_grad()
def judge(model: Any, held_out: Tensor, tokenizer: Any, tokens: int | None = None) -> Judgement:
    """Judge on about ``tokens`` of held-out text, or all of it; the same words are hidden every time."""
    masking = Masking.of(held_out, JUDGED_RATE, tokenizer)
    per_batch = _ROWS * JUDGED_LENGTH
    batches = max(1, (len(held_out) if tokens is None else tokens) // per_batch)
    right = words = 0
    loss = 0.0
    for number in range(batches):
        puzzle = masking.draw(_SEED, number, _ROWS, JUDGED_LENGTH)
        logits = scores(model, puzzle).float().flatten(0, 1)
        answers = puzzle.answers.flatten()
        loss += F.cross_entropy(logits, answers, reduction="sum").item()
        right += int((logits.argmax(dim=1) == answers).sum())
        words += len(answers)
    return Judgement(right / words, loss / words, words)


@torch.no_grad()
def predictions(
    model: Any, tokenizer: Any, sentences: tuple[str, ...] = SENTENCES, top: int = 5
) -> dict[str, list[str]]:
    """The words that the model would put at the [MASK] of each sentence, likeliest first."""
    found = {}
    for sentence in sentences:
        ids = tokenizer(sentence, return_tensors="pt")["input_ids"]
        place = (ids == tokenizer.mask_token_id).nonzero()[:, 1:]
        logits = scores(model, Puzzle(ids, place, place))[0, 0]
        found[sentence] = tokenizer.convert_ids_to_tokens(logits.topk(top).indices.tolist())
    return found
