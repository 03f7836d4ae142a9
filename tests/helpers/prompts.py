"""What the tests of prompts share: examples, batches, and sums in plain Python loops."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from openprompt import PromptDataLoader, PromptForClassification
from openprompt.data_utils import InputExample, InputFeatures
from torch import Tensor

from openprompt_meta.encoder.loading import LoadedMLM
from openprompt_meta.prompts.pool_template import PromptPoolTemplate

torch.set_num_threads(1)  # tiny tensors: more threads only wait for each other

PAPER_LAYOUT = '{"placeholder": "text_a"} {"pool"} topic is {"mask"}.'
CLASSES = ["weather", "sport", "food"]
WORDS = {"weather": ["rain", "storm"], "sport": ["game", "player", "goal"], "food": ["soup"]}
TEXTS = [
    "the rain and the wind on my trip",
    "a player like that",
    "we want soup",
    "storm at night in the city",
    "what was the score of the game",
    "cook me a great dish with a good price",
]
LABELS = [0, 1, 2, 0, 1, 2]


def examples(texts: Sequence[str] = TEXTS, labels: Sequence[int] = LABELS) -> list[InputExample]:
    """Labelled examples with both texts and an entry of meta."""
    return [
        InputExample(guid=str(i), text_a=text, text_b=f"day {i}", label=label, meta={"place": "sky"})
        for i, (text, label) in enumerate(zip(texts, labels, strict=True))
    ]


def batch_of(
    mlm: LoadedMLM, template: Any, data: Sequence[InputExample] | None = None, max_seq_length: int = 48, **options: Any
) -> InputFeatures:
    """All examples as one batch, by OpenPrompt's own data loader."""
    data = examples() if data is None else list(data)
    (batch,) = PromptDataLoader(
        data,
        template,
        tokenizer=mlm.tokenizer,
        tokenizer_wrapper_class=mlm.wrapper,
        max_seq_length=max_seq_length,
        batch_size=len(data),
        **options,
    )
    return batch


def pool_template(mlm: LoadedMLM, text: str = PAPER_LAYOUT, **options: Any) -> PromptPoolTemplate:
    """A small pool: four prompts of three positions."""
    return PromptPoolTemplate(
        mlm.model, mlm.tokenizer, text, **{"num_prompts": 4, "prompt_length": 3, "seed": 7, **options}
    )


def classifier(mlm: LoadedMLM, template: Any, verbalizer: Any, **options: Any) -> PromptForClassification:
    """OpenPrompt's own model."""
    return PromptForClassification(mlm.model, template, verbalizer, **options)


def hidden_at_mask(mlm: LoadedMLM, template: Any, batch: Any) -> Tensor:
    """What a verbalizer that reads hidden states is given, ``[B, d_o]``."""
    model = classifier(mlm, template, torch.nn.Identity()).eval()
    outputs = model.prompt_model(batch)
    return model.extract_at_mask(outputs.hidden_states[-1], batch)


def snapshot(batch: Any) -> dict[str, Any]:
    """A deep copy of a batch's content, to compare with later."""
    return {key: batch[key].clone() if isinstance(batch[key], Tensor) else batch[key] for key in batch}


def same_content(batch: Any, before: dict[str, Any]) -> bool:
    """Whether a batch holds exactly what it held."""
    if sorted(batch) != sorted(before):
        return False
    return all(
        torch.equal(batch[key], value) if isinstance(value, Tensor) else batch[key] == value
        for key, value in before.items()
    )


# -- sums written out, in Python's own float64 ------------------------------------------------------------------------


def dot(x: Sequence[float], y: Sequence[float]) -> float:
    """Σ x_i y_i."""
    return math.fsum(a * b for a, b in zip(x, y, strict=True))


def softmax(scores: Sequence[float]) -> list[float]:
    """exp(s_i) / Σ exp(s_j)."""
    top = max(scores)
    powers = [math.exp(s - top) for s in scores]
    return [p / math.fsum(powers) for p in powers]


def cosine(x: Sequence[float], y: Sequence[float]) -> float:
    """x · y / (|x| |y|)."""
    return dot(x, y) / math.sqrt(dot(x, x) * dot(y, y))


def mean_of(vectors: Sequence[Sequence[float]]) -> list[float]:
    """The mean vector."""
    return [math.fsum(column) / len(vectors) for column in zip(*vectors, strict=True)]


def minus(x: Sequence[float], y: Sequence[float]) -> list[float]:
    """x - y."""
    return [a - b for a, b in zip(x, y, strict=True)]


def close(tensor: Tensor, expected: Any, tolerance: float = 1e-12) -> None:
    """Assert equality with nested lists up to ``tolerance``, absolute and relative."""
    expected = torch.as_tensor(expected, dtype=torch.float64)
    torch.testing.assert_close(tensor.detach().double(), expected, rtol=tolerance, atol=tolerance)
