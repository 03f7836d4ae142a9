"""What is in the pool: which classes use which prompts, and which classes and words the prompts are near to."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from openprompt_meta.errors import RunError
from openprompt_meta.prompts.label_words import token_ids_of_words
from openprompt_meta.report.figure import FigureKind, FigureNumbers
from openprompt_meta.report.finished_run import FinishedRun, learner_of, pool_of
from openprompt_meta.report.numbers_cache import NumbersCache
from openprompt_meta.report.plotting import canvas, heat_map

if TYPE_CHECKING:
    from matplotlib.figure import Figure


# -- attention by class: the paper's heat map -------------------------------------------------------------------------


@dataclass(frozen=True)
class AttentionWeights(FigureNumbers):
    """``weights[y][i]``: how much support texts of meta-training class y attend to prompt i, rows summing to one.

    The mean over tasks τ with class y of the mean over y's support texts of softmax(K q / √d_o), K being the keys as
    adapted to τ by J steps.
    """

    seed: int
    tasks: int
    classes: list[str]
    weights: list[list[float]]

    def draw(self) -> Figure:
        """Classes down, prompts across."""
        prompts = len(self.weights[0])
        figure, panel = canvas(3.4 + 0.42 * prompts, _height(self.classes))
        digits = 2 if prompts <= 16 else None
        heat_map(panel, self.weights, self.classes, _numbered(prompts), "average attention weight", digits, vmin=0)
        panel.set(xlabel="prompt", ylabel="meta-training class")
        return figure

    def caption(self) -> str:
        entropies = [-math.fsum(w * math.log(w) for w in row if w > 0) for row in self.weights]
        used = math.exp(math.fsum(entropies) / len(entropies))
        favourites = len({row.index(max(row)) for row in self.weights})
        return (
            f"Mean over {self.tasks} meta-training tasks (seed {self.seed}) of the attention of a class's support "
            f"texts, with keys adapted to the task. Evenly spread it would be {1 / len(self.weights[0]):.3f} "
            f"everywhere; a class uses {used:.1f} of {len(self.weights[0])} prompts (exponential of the entropy), and "
            f"{favourites} of them are the favourite of some class."
        )


def _measure_attention(runs: Sequence[FinishedRun], cache: NumbersCache) -> AttentionWeights:
    """Adapt the pool to meta-training tasks and average its attention by class."""
    (run,) = runs
    seed, tasks = run.seeds[0], cache.options.tasks
    method = run.method(seed)
    learner, source = learner_of(method), method.sources["train"]
    pool_of(method)
    by_class: dict[str, list[list[float]]] = {}
    with cache.progress_bar(tasks, "attention in training tasks") as bar:
        for group in learner.inner_loop.in_groups(source[index] for index in range(tasks)):
            with learner.adapting(group) as adaptation:
                for _ in range(run.config.meta.inner_steps):
                    adaptation.step()
                pools = adaptation.pools
            for task, pool in zip(group, pools, strict=True):
                episode = source.episodes[task.index]
                with torch.no_grad():
                    attention = pool.attention(method.template.queries(task.support).to(pool.keys.dtype)).double()
                labels = torch.tensor(episode.support_labels, device=attention.device)
                for number, name in enumerate(episode.classes):
                    by_class.setdefault(name, []).append(attention[labels == number].mean(dim=0).tolist())
            bar.update(len(group))
    classes = [name for name in run.dataset.train.classes if name in by_class]
    return AttentionWeights(seed, tasks, classes, [_mean(by_class[name]) for name in classes])


def _mean(rows: Sequence[Sequence[float]]) -> list[float]:
    return [math.fsum(column) / len(rows) for column in zip(*rows, strict=True)]


ATTENTION = FigureKind(
    "attention",
    "Attention by class",
    "Which classes use which prompts?",
    AttentionWeights,
    _measure_attention,
    fits=lambda runs: any(run.config.prompt_pool_template.num_prompts > 1 for run in runs),
)


def _height(classes: Sequence[str]) -> float:
    return max(2.8, 1.4 + 0.24 * len(classes))


def _numbered(count: int) -> list[str]:
    return [str(number + 1) for number in range(count)]


# -- prompt tokens and classes: the paper's other heat map ------------------------------------------------------------


@dataclass(frozen=True)
class ClassSimilarities(FigureNumbers):
    """``cosines[y][i][j]`` of prompt token θ_i^(j) with class y's embedding, the mean of its label words' tokens."""

    seed: int
    classes: list[str]
    cosines: list[list[list[float]]]

    def draw(self) -> Figure:
        """Classes down, prompt tokens (i, j) across."""
        prompts, length = len(self.cosines[0]), len(self.cosines[0][0])
        rows = [[value for prompt in of_class for value in prompt] for of_class in self.cosines]
        figure, panel = canvas(max(5.0, 2.6 + 0.135 * prompts * length), _height(self.classes))
        names = [f"({i},{j})" for i in _numbered(prompts) for j in _numbered(length)]
        heat_map(panel, rows, self.classes, names, "cosine similarity", digits=None)
        panel.tick_params(axis="x", rotation=90, labelsize=6)
        for prompt in range(1, prompts):
            panel.axvline(prompt * length - 0.5, color="white", lw=1.2)
        panel.set(xlabel="prompt token (i, j): row j of prompt i", ylabel="meta-training class")
        return figure

    def caption(self) -> str:
        pairs = sorted(
            (
                (value, name, i + 1, j + 1)
                for name, of_class in zip(self.classes, self.cosines, strict=True)
                for i, prompt in enumerate(of_class)
                for j, value in enumerate(prompt)
            ),
            reverse=True,
        )[:3]
        nearest = "; ".join(f"{name} and ({i}, {j}), {value:.2f}" for value, name, i, j in pairs)
        return (
            "A class's embedding is the mean input embedding of its label words' tokens; prompts are those of the "
            f"tested checkpoint (seed {self.seed}). Nearest: {nearest}."
        )


def _measure_cosines(runs: Sequence[FinishedRun], cache: NumbersCache) -> ClassSimilarities:
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


def _prompts(run: FinishedRun) -> Tensor:
    return pool_of(run.method(run.seeds[0])).prompts.detach().double().cpu()  # [K, L_p, d_i]


def _embedding(run: FinishedRun) -> Tensor:
    embedding: Tensor = run.loaded.model.get_input_embeddings().weight
    return embedding.detach().double().cpu()  # [V, d_i]


COSINE = FigureKind(
    "cosine",
    "Prompt tokens and classes",
    "Are prompts near to the classes that use them?",
    ClassSimilarities,
    _measure_cosines,
)

# -- prompt tokens and words: the paper's table -----------------------------------------------------------------------


@dataclass(frozen=True)
class NearestTokens(FigureNumbers):
    """``tokens[i][j]`` is the vocabulary's nearest to θ_i^(j) by cosine, ``cosines[i][j]`` how near."""

    seed: int
    tokens: list[list[str]]
    cosines: list[list[float]]

    def draw(self) -> Figure:
        """The table as a picture: prompts down, positions across, nearer tokens darker."""
        prompts, length = len(self.tokens), len(self.tokens[0])
        figure, panel = canvas(1.6 + 1.0 * length, 1.0 + 0.32 * prompts)
        image = panel.imshow(self.cosines, cmap="Greys", vmin=0, vmax=2.5, aspect="auto")
        panel.grid(False)
        panel.spines[:].set_visible(False)
        panel.set_xticks(range(length), _numbered(length))
        panel.set_yticks(range(prompts), _numbered(prompts))
        for i, words in enumerate(self.tokens):
            for j, word in enumerate(words):
                shown = word if len(word) <= 14 else f"{word[:13]}…"
                panel.text(j, i, shown.replace("$", r"\$"), ha="center", va="center", size=7.5, color="black")
        colours = figure.colorbar(image, ax=panel, label="cosine", pad=0.01)
        colours.ax.set_ylim(0, 1)
        panel.set(xlabel="position in the prompt", ylabel="prompt")
        return figure

    def caption(self) -> str:
        values = [value for row in self.cosines for value in row]
        return (
            "The token of the vocabulary that is nearest to each position of each prompt by cosine of input "
            f"embeddings (seed {self.seed}), special tokens left out. A prompt that starts from label words and stays "
            f"near them has a cosine of 1; here they are {min(values):.2f} to {max(values):.2f}."
        )

    def table(self) -> list[list[str]]:
        return [["prompt", "nearest tokens"], *([str(i + 1), ", ".join(row)] for i, row in enumerate(self.tokens))]


def _measure_nearest(runs: Sequence[FinishedRun], cache: NumbersCache) -> NearestTokens:
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


NEAREST = FigureKind(
    "nearest-tokens", "Nearest words", "Which words are the prompts near to?", NearestTokens, _measure_nearest
)
