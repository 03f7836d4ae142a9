"""What the learned prompts are near to: classes (a heat map) and words (a table), both the paper's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from openprompt_meta.errors import RunError
from openprompt_meta.prompts.label_words import token_ids_of_words
from openprompt_meta.report.figure import FigureKind, canvas, heat_map
from openprompt_meta.report.finished_run import FinishedRun, pool_of
from openprompt_meta.report.workbench import Workbench

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["COSINE", "NEAREST", "ClassSimilarities", "NearestTokens"]


@dataclass(frozen=True)
class ClassSimilarities:
    """``cosines[y][i][j]`` of prompt token θ_i^(j) with class y's embedding, the mean of its label words' tokens."""

    seed: int
    classes: list[str]
    cosines: list[list[list[float]]]


@dataclass(frozen=True)
class NearestTokens:
    """``tokens[i][j]`` is the vocabulary's nearest to θ_i^(j) by cosine, ``cosines[i][j]`` how near."""

    seed: int
    tokens: list[list[str]]
    cosines: list[list[float]]


def measure_similarities(runs: Sequence[FinishedRun], bench: Workbench) -> ClassSimilarities:
    """Compare the pool's prompts with the meta-training classes."""
    (run,) = runs
    prompts, embedding = _prompts(run), _embedding(run)
    classes, means = [], []
    for name in run.dataset.train.classes:
        ids = token_ids_of_words(run.loaded.tokenizer, run.dataset.label_words.get(name, ()))
        if ids:
            classes.append(name)
            means.append(embedding[ids].mean(dim=0))
    if not classes:
        raise RunError(f"{run.label}: no meta-training class has label words. Give dataset.label_words.")
    cosines = torch.einsum("yd,ijd->yij", F.normalize(torch.stack(means), dim=-1), F.normalize(prompts, dim=-1))
    return ClassSimilarities(run.seeds[0], classes, cosines.tolist())


def measure_nearest(runs: Sequence[FinishedRun], bench: Workbench) -> NearestTokens:
    """Search the vocabulary; special tokens and those that stand for nothing are left out."""
    (run,) = runs
    prompts, embedding, tokenizer = _prompts(run), _embedding(run), run.loaded.tokenizer
    names = tokenizer.convert_ids_to_tokens(list(range(len(embedding))))
    special = set(tokenizer.all_special_ids)
    words = [
        number
        for number, name in enumerate(names)
        if name is not None and number not in special and not name.startswith("[unused")
    ]
    cosines = F.normalize(prompts, dim=-1) @ F.normalize(embedding[words], dim=-1).T  # [K, L_p, W]
    best = cosines.max(dim=-1)
    tokens = [[names[words[index]] for index in row] for row in best.indices.tolist()]
    return NearestTokens(run.seeds[0], tokens, best.values.tolist())


def _prompts(run: FinishedRun) -> Tensor:
    return pool_of(run.method(run.seeds[0])).prompts.detach().double().cpu()  # [K, L_p, d_i]


def _embedding(run: FinishedRun) -> Tensor:
    embedding: Tensor = run.loaded.model.get_input_embeddings().weight
    return embedding.detach().double().cpu()  # [V, d_i]


def draw_similarities(numbers: ClassSimilarities) -> Figure:
    """Classes down, prompt tokens (i, j) across."""
    prompts, length = len(numbers.cosines[0]), len(numbers.cosines[0][0])
    rows = [[value for prompt in of_class for value in prompt] for of_class in numbers.cosines]
    figure, panel = canvas(max(5.0, 2.6 + 0.135 * prompts * length), max(2.8, 1.4 + 0.24 * len(numbers.classes)))
    names = [f"({i + 1},{j + 1})" for i in range(prompts) for j in range(length)]
    heat_map(panel, rows, numbers.classes, names, "cosine similarity", digits=None)
    panel.tick_params(axis="x", rotation=90, labelsize=6)
    for prompt in range(1, prompts):
        panel.axvline(prompt * length - 0.5, color="white", lw=1.2)
    panel.set(xlabel="prompt token (i, j): row j of prompt i", ylabel="meta-training class")
    return figure


def draw_nearest(numbers: NearestTokens) -> Figure:
    """The table as a picture: prompts down, positions across, nearer tokens darker."""
    prompts, length = len(numbers.tokens), len(numbers.tokens[0])
    figure, panel = canvas(1.6 + 1.0 * length, 1.0 + 0.32 * prompts)
    rows, columns = [str(i + 1) for i in range(prompts)], [str(j + 1) for j in range(length)]
    image = panel.imshow(numbers.cosines, cmap="Greys", vmin=0, vmax=2.5, aspect="auto")
    panel.grid(False)
    panel.spines[:].set_visible(False)
    panel.set_xticks(range(length), columns)
    panel.set_yticks(range(prompts), rows)
    for i, words in enumerate(numbers.tokens):
        for j, word in enumerate(words):
            shown = word if len(word) <= 14 else f"{word[:13]}…"
            panel.text(j, i, shown.replace("$", r"\$"), ha="center", va="center", size=7.5, color="black")
    colours = figure.colorbar(image, ax=panel, label="cosine", pad=0.01)
    colours.ax.set_ylim(0, 1)
    panel.set(xlabel="position in the prompt", ylabel="prompt")
    return figure


def caption_similarities(numbers: ClassSimilarities) -> str:
    """The nearest pairs."""
    pairs = sorted(
        (
            (value, name, i + 1, j + 1)
            for name, of_class in zip(numbers.classes, numbers.cosines, strict=True)
            for i, prompt in enumerate(of_class)
            for j, value in enumerate(prompt)
        ),
        reverse=True,
    )[:3]
    nearest = "; ".join(f"{name} and ({i}, {j}), {value:.2f}" for value, name, i, j in pairs)
    return (
        "A class's embedding is the mean input embedding of its label words' tokens; prompts are those of the tested "
        f"checkpoint (seed {numbers.seed}). Nearest: {nearest}."
    )


def caption_nearest(numbers: NearestTokens) -> str:
    """How far prompts have moved from words."""
    values = [value for row in numbers.cosines for value in row]
    return (
        "The token of the vocabulary that is nearest to each position of each prompt by cosine of input embeddings "
        f"(seed {numbers.seed}), special tokens left out. A prompt that starts from label words and stays near them "
        f"has a cosine of 1; here they are {min(values):.2f} to {max(values):.2f}."
    )


def table_nearest(numbers: NearestTokens) -> list[list[str]]:
    """The paper's table: a prompt a row."""
    return [["prompt", "nearest tokens"], *([str(i + 1), ", ".join(row)] for i, row in enumerate(numbers.tokens))]


COSINE = FigureKind(
    "cosine",
    "Prompt tokens and classes",
    "Are prompts near to the classes that use them?",
    ClassSimilarities,
    measure_similarities,
    draw_similarities,
    caption_similarities,
)
NEAREST = FigureKind(
    "nearest-tokens",
    "Nearest words",
    "Which words are the prompts near to?",
    NearestTokens,
    measure_nearest,
    draw_nearest,
    caption_nearest,
    table=table_nearest,
)
