"""The one place where a classifier meets template, learner and language model: load, adapt, read.

Everything here works on values: a pool and a fitted verbalizer go in and out as tensors by name. What predicts is made
from them once and never changed, so that any number of threads may read with it.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from openprompt_meta.compat.maml import load_maml
from openprompt_meta.config import RunConfig
from openprompt_meta.errors import ModelError, VerbalizerError
from openprompt_meta.learners import BaseLearner, Task
from openprompt_meta.learners.base_learner import pool_in_place, task_randomness
from openprompt_meta.methods import load_language_model
from openprompt_meta.model import EncodedTexts, LoadedMLM, MaskClassifier, MaskOnlyClassifier
from openprompt_meta.model.vocabulary_head import vocabulary_head
from openprompt_meta.prompts import EpisodicVerbalizer, PromptPoolTemplate
from openprompt_meta.prompts.mixed_verbalizer import MixedVerbalizer
from openprompt_meta.prompts.registry import VERBALIZERS
from openprompt_meta.runs.checkpoint import Progress, load_pool

__all__ = [
    "Adapted",
    "BaseModel",
    "Predictor",
    "Read",
    "Support",
    "adapt",
    "fresh_pool",
    "load_base_model",
    "run_pool",
]

# Tokens that go through the model at a time where nobody says how many.
_TOKENS = 2048

# Learning draws from torch's one generator, so two adaptations at a time would share it. Taken before a model's
# ``tokenizing``, never after it.
_ONE_AT_A_TIME = threading.Lock()


# -- the language model -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class BaseModel:
    """A frozen language model and what identifies it.

    Attributes:
        loaded: model, tokenizer and OpenPrompt's wrapper; shared by every classifier on it, changed by none.
        fingerprint: sha256 over the model's tensors, whatever they are called.
        tokenizer_fingerprint: sha256 over the vocabulary.
        wordless_ids: tokens that tell a reader nothing: special ones, and places that a vocabulary keeps free.
        tokenizing: held while the tokenizer is used: a fast tokenizer may not be entered twice.
    """

    loaded: LoadedMLM
    fingerprint: str
    tokenizer_fingerprint: str
    wordless_ids: Sequence[int]
    tokenizing: threading.Lock = field(default_factory=threading.Lock)


_KEPT = 2
_loaded: dict[tuple[object, ...], BaseModel] = {}
_loading = threading.Lock()


def load_base_model(config: RunConfig) -> BaseModel:
    """The language model that a configuration asks for, frozen; the last few are kept and shared.

    Raises:
        ModelError: it cannot be loaded.
    """
    path = config.plm.model_path
    key = (path, config.plm.attn_implementation, config.plm.precision, config.run.device, _state_of(Path(path)))
    with _loading:
        if key not in _loaded:
            loaded = load_language_model(config)
            loaded.model.eval()
            _allow_long_texts(loaded.tokenizer)
            vocabulary: dict[str, int] = loaded.tokenizer.get_vocab()
            found = BaseModel(
                loaded,
                _fingerprint(loaded.model),
                _vocabulary_fingerprint(vocabulary),
                [*loaded.tokenizer.all_special_ids, *_unused(vocabulary)],
            )
            while len(_loaded) >= _KEPT:
                del _loaded[next(iter(_loaded))]
            _loaded[key] = found
        return _loaded[key]


def _allow_long_texts(tokenizer: Any) -> None:
    """Keep transformers from warning of texts that are longer than the model takes: they are cut here."""
    warned = getattr(tokenizer, "deprecation_warnings", None)
    if isinstance(warned, dict):
        warned["sequence-length-is-longer-than-the-specified-maximum"] = True


def _state_of(folder: Path) -> tuple[tuple[str, int, int], ...]:
    """Names, sizes and times of a folder's files, so that a model which changes on disk is read anew."""
    if not folder.is_dir():
        return ()
    files = sorted(file for file in folder.iterdir() if file.is_file())
    return tuple((file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in files)


def _fingerprint(model: torch.nn.Module) -> str:
    # Sorted by content: names of tensors differ between versions of transformers, their values do not.
    digests = sorted(_digest(value) for value in model.parameters())
    return hashlib.sha256("\n".join(digests).encode()).hexdigest()


def _digest(value: Tensor) -> str:
    plain = value.detach().cpu().contiguous()
    content = plain.view(torch.uint8) if plain.dim() else plain.reshape(1).view(torch.uint8)
    return f"{tuple(plain.shape)} {plain.dtype} {hashlib.sha256(content.numpy().data).hexdigest()}"


def _vocabulary_fingerprint(vocabulary: Mapping[str, int]) -> str:
    return hashlib.sha256(json.dumps(sorted(vocabulary.items())).encode()).hexdigest()


def _unused(vocabulary: Mapping[str, int]) -> Iterator[int]:
    return (number for token, number in vocabulary.items() if re.fullmatch(r"[\[<]unused\d+[\]>]", token))


# -- pools ------------------------------------------------------------------------------------------------------------

Tensors = Mapping[str, Tensor]


def fresh_pool(base: BaseModel, config: RunConfig, seed: int) -> dict[str, Tensor]:
    """A pool that has learned nothing yet, started from the vocabulary."""
    with base.tokenizing:
        return _tensors(_new_template(base, config, init="vocab", seed=seed).pool)


def run_pool(base: BaseModel, config: RunConfig, checkpoint: Path) -> tuple[dict[str, Tensor], Progress]:
    """The pool of a run's checkpoint, and how far the run had come.

    Raises:
        CheckpointError: the file is missing, damaged, or of another pool.
    """
    with base.tokenizing:
        template = _new_template(base, config)
    progress = load_pool(checkpoint, template.pool)
    return _tensors(template.pool), progress


def _template(base: BaseModel, config: RunConfig, pool: Tensors) -> PromptPoolTemplate:
    template = _new_template(base, config)
    try:
        template.pool.load_state_dict(dict(pool))  # copies: the tensors given stay as they are
    except RuntimeError as error:
        raise ModelError(f"The pool does not fit the language model {config.plm.model_path}: {error}") from None
    return template


def _new_template(base: BaseModel, config: RunConfig, init: str = "random", seed: int = 0) -> PromptPoolTemplate:
    settings = {**asdict(config.prompt_pool_template), "init": init}
    template = PromptPoolTemplate(
        base.loaded.model, base.loaded.tokenizer, **settings, seed=seed, max_seq_length=config.dataset.max_seq_length
    )
    template.to(base.loaded.model.device)
    return template


def _tensors(module: torch.nn.Module) -> dict[str, Tensor]:
    return {name: value.detach().cpu().clone() for name, value in module.state_dict().items()}


# -- adapting ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Support:
    """Labelled texts to adapt to; ``labels[i]`` is a position in ``classes``."""

    texts: Sequence[str]
    labels: Sequence[int]
    classes: Sequence[str]
    label_words: Mapping[str, Sequence[str]]


@dataclass(frozen=True)
class Adapted:
    """What adaptation gives, as tensors on the CPU.

    Attributes:
        pool: the adapted pool.
        verbalizer: the verbalizer fitted to the support set as that pool shows it.
        features: the support set's features under that pool, ``[n, d_o]``.
        inner_losses: the support loss before each inner step.
    """

    pool: Tensors
    verbalizer: Tensors
    features: Tensor
    inner_losses: Sequence[float]


def adapt(base: BaseModel, config: RunConfig, pool: Tensors, support: Support, seed: int, most: int) -> Adapted:
    """Adapt a copy of a pool to a support set as meta-testing does, and fit the verbalizer.

    Args:
        base: the language model.
        config: inner loop, template and verbalizer.
        pool: where to start; it is not changed.
        support: the task.
        seed: of whatever is random on the way.
        most: texts that take part in the gradient steps at most (each class at least once); the verbalizer is fitted
            to all of them either way.

    Raises:
        NotFiniteError: the loss ran away.
        VerbalizerError: label words are missing or of no use to the tokenizer.
    """
    with _ONE_AT_A_TIME:
        with base.tokenizing:
            template = _template(base, config, pool)
            classifier = _classifier(base, config, template, seed)
        task = _task(base, config, template, support)
        part = _part(task, most, seed)
        learner = BaseLearner(classifier, config.meta.loss, config.meta.label_embeddings, seed=seed)
        clone = load_maml()(template.pool, lr=config.meta.inner_lr, first_order=True).clone()
        steps = config.meta.inner_steps_eval
        with task_randomness(seed, task):
            losses = learner.adapt(clone, part, steps)
            refit = config.meta.label_embeddings == "adapted" or steps == 0 or part is not task
            features = _fit(classifier, clone.module, task, refit)
        return Adapted(_tensors(clone.module), _tensors(classifier.verbalizer), features.cpu(), losses)


def _task(base: BaseModel, config: RunConfig, template: PromptPoolTemplate, support: Support) -> Task:
    texts, _ = _encoded(base, config, template, support.texts)
    batch = texts.batch(range(len(support.texts)), support.labels)
    batch["query"] = texts.by_length(_TOKENS, template.queries)  # once for all steps: they never change
    return Task(index=0, classes=support.classes, label_words=support.label_words, support=batch, query=batch)


def _part(task: Task, most: int, seed: int) -> Task:
    """The task with at most ``most`` support texts, drawn by the seed, of each class in turn."""
    labels = task.support["label"]
    most = max(most, len(task.classes))
    if len(labels) <= most:
        return task
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(labels), generator=generator).tolist()
    turns: dict[int, int] = {}
    ranked = []
    for row in order:
        label = int(labels[row])
        ranked.append((turns.setdefault(label, 0), row))
        turns[label] += 1
    rows = torch.tensor(sorted(row for _, row in sorted(ranked)[:most]), device=labels.device)
    batch = {key: value[rows] for key, value in task.support.items()}
    return replace(task, support=batch, query=batch)


@torch.no_grad()
def _fit(classifier: MaskClassifier, pool: Any, task: Task, refit: bool) -> Tensor:
    """Features of the support set under ``pool``; the verbalizer is fitted to them if asked for."""
    with pool_in_place(classifier.template, pool):
        readings = [classifier.read_mask(part) for part in _parts(task.support)]
    features = torch.cat([reading.features for reading in readings])
    if refit:
        logits = [reading.logits for reading in readings if reading.logits is not None]
        classifier.verbalizer.fit_support(features, torch.cat(logits) if logits else None, task.support["label"])
    return features


def _parts(batch: Mapping[str, Tensor]) -> Iterator[dict[str, Tensor]]:
    rows = max(1, 4 * _TOKENS // batch["input_ids"].shape[1])
    for start in range(0, len(batch["input_ids"]), rows):
        yield {key: value[start : start + rows] for key, value in batch.items()}


def _verbalizer(base: BaseModel, config: RunConfig, seed: int) -> EpisodicVerbalizer:
    settings: dict[str, Any] = asdict(getattr(config, config.verbalizer))
    with torch.random.fork_rng():
        torch.manual_seed(seed)  # as the run did, for a verbalizer that starts at random
        made: EpisodicVerbalizer = VERBALIZERS[config.verbalizer](
            tokenizer=base.loaded.tokenizer, model=base.loaded.model, **settings
        )
    return made


def _classifier(base: BaseModel, config: RunConfig, template: PromptPoolTemplate, seed: int = 0) -> MaskClassifier:
    model = base.loaded.model
    verbalizer = _verbalizer(base, config, seed)
    known = not verbalizer.needs_vocabulary_head or vocabulary_head(model) is not None
    kind = MaskOnlyClassifier if known else MaskClassifier
    classifier = kind(model, template, verbalizer, freeze_plm=True, plm_eval_mode=True)
    classifier.to(model.device).eval()
    return classifier


# -- reading ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Read:
    """What was read of one text.

    Attributes:
        probabilities: of the classes, ``[C]``.
        soft: those of the soft verbalizer alone, if it is one.
        hand_crafted: those of the label words alone, if they have a say.
        attention: weights of the prompts, ``[K]``.
        prompt: the prompt made for the text, ``[L_p, d_i]``.
        features: the [MASK]'s hidden state, ``[d_o]``.
        truncated: whether the text was cut.
    """

    probabilities: Tensor
    soft: Tensor | None
    hand_crafted: Tensor | None
    attention: Tensor
    prompt: Tensor
    features: Tensor
    truncated: bool


class Predictor:
    """Classifies texts with one adapted pool and one fitted verbalizer. Nothing that predicts changes once it is made.

    Args:
        base: the language model.
        config: template and verbalizer.
        adapted: the pool and the verbalizer's tensors.
        classes: names of the classes, in the order of the verbalizer's.
        label_words: their words, for a verbalizer that uses them.

    Attributes:
        has_warned: for the user of it to set, once a warning was given that need not be given again.

    Raises:
        ModelError: the verbalizer's tensors do not fit the configuration.
    """

    def __init__(
        self,
        base: BaseModel,
        config: RunConfig,
        adapted: Adapted,
        classes: Sequence[str],
        label_words: Mapping[str, Sequence[str]],
    ) -> None:
        self.has_warned = threading.Event()
        self._base = base
        self._config = config
        # A verbalizer may start at random, until the tensors given replace that.
        with _ONE_AT_A_TIME, base.tokenizing, torch.random.fork_rng():
            self._template = _template(base, config, adapted.pool)
            self._classifier = _classifier(base, config, self._template)
            verbalizer = self._classifier.verbalizer
            verbalizer.begin_task(classes, label_words)
        try:
            verbalizer.load_state_dict(dict(adapted.verbalizer))
            verbalizer.to(base.loaded.model.device).eval().requires_grad_(False)
            self._try_out(len(classes))
        except (RuntimeError, VerbalizerError) as error:
            raise ModelError(f"The verbalizer's tensors do not fit {config.verbalizer}: {error}") from None
        # OpenPrompt's own path asks the model for all hidden states, which not every model gives to two at a time.
        self._reading = threading.Lock() if type(self._classifier) is MaskClassifier else None

    @torch.no_grad()
    def _try_out(self, classes: int) -> None:
        """Judge a made-up feature: tensors from a file may be of any size."""
        model = self._base.loaded.model
        features = torch.ones(1, model.config.hidden_size, device=model.device)
        logits = torch.zeros(1, model.config.vocab_size, device=model.device)
        found = self._classifier.verbalizer.log_probabilities(features, logits)
        if found.shape != (1, classes) or not bool(found.exp().isfinite().all()):
            raise VerbalizerError(f"they give {tuple(found.shape)} finite numbers or others for {classes} classes.")

    @torch.no_grad()
    def probabilities(self, texts: Sequence[str], batch_tokens: int) -> tuple[Tensor, int]:
        """Probabilities ``[n, C]`` of the classes, on the CPU, and how many of the texts had to be cut.

        Texts go through the model shortest first, in batches of at most ``batch_tokens`` tokens, padding included.
        """
        encoded, truncated = _encoded(self._base, self._config, self._template, texts)
        return encoded.by_length(batch_tokens, self._judge).cpu(), truncated

    def _judge(self, batch: Mapping[str, Tensor]) -> Tensor:
        features, logits = self._read_mask(batch)
        found: Tensor = self._classifier.verbalizer.log_probabilities(features, logits).exp()
        return found

    @torch.no_grad()
    def read(self, text: str) -> Read:
        """Everything there is to say about one text."""
        encoded, truncated = _encoded(self._base, self._config, self._template, [text])
        batch = encoded.batch([0])
        batch["query"] = self._template.queries(batch)
        features, logits = self._read_mask(batch)
        verbalizer = self._classifier.verbalizer
        soft = hand_crafted = None
        if isinstance(verbalizer, MixedVerbalizer):
            soft = verbalizer.soft_log_probabilities(features).exp()[0].cpu()
            if verbalizer.hand_crafted is not None and logits is not None:
                hand_crafted = verbalizer.hand_crafted.process_logits(logits).exp()[0].cpu()
        return Read(
            probabilities=verbalizer.log_probabilities(features, logits).exp()[0].cpu(),
            soft=soft,
            hand_crafted=hand_crafted,
            attention=self._template.attention_weights(batch)[0].cpu(),
            prompt=self._template.pool(batch["query"])[0].cpu(),
            features=features[0].cpu(),
            truncated=truncated > 0,
        )

    @torch.no_grad()
    def nearest_words(self, prompt: Tensor, count: int) -> list[list[tuple[str, float]]]:
        """For each position of a prompt ``[L_p, d_i]``, the words whose input embeddings have the largest cosine."""
        embedding = self._template.raw_embedding.weight
        similarity = F.normalize(prompt.to(embedding), dim=-1) @ F.normalize(embedding, dim=-1).T  # [L_p, V]
        hidden = [i for i in self._base.wordless_ids if i < similarity.shape[1]]
        similarity[:, hidden] = -torch.inf
        best = similarity.float().topk(min(count, similarity.shape[1] - len(hidden)), dim=-1)
        with self._base.tokenizing:
            words = [self._base.loaded.tokenizer.convert_ids_to_tokens(ids) for ids in best.indices.tolist()]
        return [list(zip(own, values, strict=True)) for own, values in zip(words, best.values.tolist(), strict=True)]

    def _read_mask(self, batch: Mapping[str, Tensor]) -> tuple[Tensor, Tensor | None]:
        if self._reading is None:
            return self._classifier.read_mask(batch)
        with self._reading:
            return self._classifier.read_mask(batch)


def _encoded(
    base: BaseModel, config: RunConfig, template: PromptPoolTemplate, texts: Sequence[str]
) -> tuple[_Texts, int]:
    """The texts wrapped and tokenised, without their queries, and how many of them had to be cut."""
    wrapper = base.loaded.wrapper(tokenizer=base.loaded.tokenizer, max_seq_length=config.dataset.max_seq_length)
    encoded = _Texts(texts, template, wrapper, keep_queries=False, device=base.loaded.model.device)
    with base.tokenizing:
        for i in range(len(texts)):
            encoded.length(i)
    return encoded, wrapper.num_truncated_sentences


class _Texts(EncodedTexts):
    """Texts of any length: of a very long one, no more is tokenised than fits."""

    def length(self, index: int) -> int:
        """Tokens of a text, template and prompt included."""
        return len(self._row(index)["input_ids"])

    def by_length(self, batch_tokens: int, read: Callable[[dict[str, Tensor]], Tensor]) -> Tensor:
        """What ``read`` makes of each text, ``[n, …]``, read in batches of texts of about the same length."""
        order: list[int] = []
        rows: list[Tensor] = []
        for group in _groups([self.length(i) for i in range(len(self))], batch_tokens):
            rows.append(read(self.batch(group)))
            order += group
        found = torch.cat(rows)
        sorted_back = torch.empty_like(found)
        sorted_back[torch.tensor(order, device=found.device)] = found
        return sorted_back

    def _encode(self, text: str, index: int) -> dict[str, Tensor]:
        head = _first_words(text, self.max_seq_length)
        cut_before = self._wrapper.num_truncated_sentences
        row = super()._encode(head, index)
        if len(head) < len(text) and self._wrapper.num_truncated_sentences == cut_before:
            return super()._encode(text, index)  # words that no token is made of
        return row


def _first_words(text: str, count: int) -> str:
    """The text, up to the white space after its first ``count`` words."""
    if len(text) <= 32 * count:
        return text
    ends = (match.end() for match in re.finditer(r"[^ \t\r\n][ \t\r\n]+", text))
    end = next(islice(ends, count - 1, None), len(text))
    return text[:end]


def _groups(lengths: Sequence[int], batch_tokens: int) -> Iterator[list[int]]:
    """Positions in batches, shortest first, of at most ``batch_tokens`` padded tokens or one text."""
    group: list[int] = []
    for position in sorted(range(len(lengths)), key=lambda i: lengths[i]):
        if group and (len(group) + 1) * lengths[position] > batch_tokens:
            yield group
            group = []
        group.append(position)
    if group:
        yield group
