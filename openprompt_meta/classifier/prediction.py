"""Predicting with an adapted pool and a fitted verbalizer, from any number of threads; explanations and scores."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.nn.functional as F
from pydantic_core import to_jsonable_python
from sklearn.metrics import confusion_matrix, f1_score
from torch import Tensor

from openprompt_meta.classifier.adaptation import ONE_AT_A_TIME, FittedTask, wrapped
from openprompt_meta.classifier.inputs import Label
from openprompt_meta.classifier.pretrained import BaseModel, template_with
from openprompt_meta.encoder.batching import groups_by_length
from openprompt_meta.encoder.classifier import MaskClassifier
from openprompt_meta.errors import ModelError, NotFiniteError, VerbalizerError
from openprompt_meta.methods.building import verbalizer_of
from openprompt_meta.methods.language_model import build_classifier
from openprompt_meta.verbalizers.adaptive import AdaptiveVerbalizer
from openprompt_meta.verbalizers.mixed import MixedVerbalizer
from openprompt_meta.verbalizers.names import NameVerbalizer

if TYPE_CHECKING:
    from openprompt_meta.classifier.classifier import MetaPromptClassifier


# -- Why a text was classified as it was, as plain values -------------------------------------------------------------


@dataclass(frozen=True)
class ClassProbability:
    """One class and what the classifier, and each of its verbalizers, gives it.

    Attributes:
        label: the class.
        probability: the prediction.
        soft: by label embeddings alone; ``None`` for a classifier that has only words.
        hand_crafted: by label words alone; ``None`` where they contribute nothing.
    """

    label: Label
    probability: float
    soft: float | None
    hand_crafted: float | None


@dataclass(frozen=True)
class NearestWord:
    """A token of the vocabulary and the cosine of its input embedding with a position of the prompt."""

    word: str
    cosine: float


@dataclass(frozen=True)
class NearestExample:
    """A support example and the cosine of its feature with the text's."""

    text: str
    label: Label
    cosine: float


@dataclass(frozen=True)
class Explanation:
    """What :meth:`~openprompt_meta.MetaPromptClassifier.explain` says about one text.

    Attributes:
        text: the text.
        label: the predicted class.
        classes: all classes, the most probable first.
        attention: how much each prompt of the pool contributes, adding up to one.
        prompt_words: for each position of the prompt made for this text, the nearest words, nearest first.
        nearest_examples: the most similar support examples, most similar first; none if the classifier was saved
            without them.
        truncated: whether the text was longer than the budget and cut.
        head: which head decides, and why that one; ``None`` for a verbalizer that has no choice.
    """

    text: str
    label: Label
    classes: tuple[ClassProbability, ...]
    attention: tuple[float, ...]
    prompt_words: tuple[tuple[NearestWord, ...], ...]
    nearest_examples: tuple[NearestExample, ...]
    truncated: bool
    head: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """The same for JSON."""
        content: dict[str, Any] = to_jsonable_python(self)
        return content


# -- Predicting with an adapted pool and a fitted verbalizer, from any number of threads ------------------------------


class Predictor:
    """Classifies texts as a fitted task says. Nothing that predicts changes once it is made.

    Args:
        base: the language model.
        task: template, adapted pool, the verbalizer's tensors, classes.

    Attributes:
        base: the language model.
        task: what it classifies by.
        classifier: the language model with template and verbalizer.
        has_warned: for the user of it to set, once a warning was given that need not be given again.

    Raises:
        ModelError: the verbalizer's tensors do not fit the configuration.
    """

    def __init__(self, base: BaseModel, task: FittedTask) -> None:
        self.has_warned = threading.Event()
        self.base = base
        self.task = task
        config = task.meta.config
        # A verbalizer may start at random, until the tensors given replace that.
        with ONE_AT_A_TIME, base.tokenizing, torch.random.fork_rng():
            self._template = template_with(base, config, task.adapted.pool)
            verbalizer = verbalizer_of(config, base.loaded, seed=0)
            self.classifier = build_classifier(config, base.loaded, self._template, verbalizer)
            verbalizer.begin_task(task.class_names, task.words)
        try:
            self._check_shapes(len(task.classes))
            verbalizer.load_state_dict(dict(task.adapted.verbalizer))
            verbalizer.to(base.loaded.model.device).eval().requires_grad_(False)
            self._try_out(len(task.classes))
            self.head  # noqa: B018 - numbers of a choice from a file may be of any kind
        except (RuntimeError, VerbalizerError, ValueError, KeyError, TypeError) as error:
            raise ModelError(f"The verbalizer's tensors do not fit {config.verbalizer}: {error}") from None
        # OpenPrompt's own path asks the model for all hidden states, which not every model gives to two at a time.
        self._reading = threading.Lock() if type(self.classifier) is MaskClassifier else contextlib.nullcontext()

    def _check_shapes(self, classes: int) -> None:
        """Refuse averages of another shape than the classes': torch would stretch them until they fit."""
        by_class, size = (classes,), self._template.feature_size
        expected = {
            "feature_sum": (classes, size),
            "name_features": (classes, size),
            "feature_count": by_class,
            "seen_this_round": by_class,
        }
        for name, value in self.task.adapted.verbalizer.items():
            if tuple(value.shape) != expected.get(name, tuple(value.shape)):
                raise VerbalizerError(f"{name} has shape {tuple(value.shape)}, expected {expected[name]}.")
        found = self.task.adapted.features.shape[1]
        if found != size:  # of a pool that is asked with something else the file's own keys do not tell
            raise VerbalizerError(f"the examples' features have {found} numbers each, expected {size}.")

    @torch.no_grad()
    def _try_out(self, classes: int) -> None:
        """Evaluate a made-up feature: tensors from a file may be of any size."""
        model = self.base.loaded.model
        features = torch.ones(1, self._template.feature_size, device=model.device)
        logits = torch.zeros(1, model.config.vocab_size, device=model.device)
        found = self.classifier.verbalizer.log_probabilities(features, logits)
        if found.shape != (1, classes) or not bool(found.exp().isfinite().all()):
            raise VerbalizerError(f"they give {tuple(found.shape)} finite numbers or others for {classes} classes.")

    @torch.no_grad()
    def probabilities(self, texts: Sequence[str], batch_tokens: int) -> tuple[Tensor, int]:
        """Probabilities ``[n, C]`` of the classes, on the CPU, and how many of the texts had to be cut.

        Texts go through the model shortest first, in batches of at most ``batch_tokens`` tokens, padding included.

        Raises:
            NotFiniteError: naming the first text that has none.
        """
        rows = wrapped(self.base, self.task.meta.config, self._template, texts)
        probabilities = torch.empty(0)
        for indices in groups_by_length(rows.lengths.tolist(), batch_tokens):
            features, logits = self._read(self._on_device(rows.batch(indices)))
            found = self.classifier.verbalizer.log_probabilities(features, logits).exp().cpu()
            _require_finite([texts[i] for i in indices], features, found)
            if not len(probabilities):
                probabilities = found.new_empty(len(texts), found.shape[1])
            probabilities[indices] = found
        return probabilities, rows.cut

    @torch.no_grad()
    def explain(self, text: str, words: int, examples: int) -> Explanation:
        """Why a text is classified as it is; see :meth:`~openprompt_meta.MetaPromptClassifier.explain`."""
        rows = wrapped(self.base, self.task.meta.config, self._template, [text])
        batch = self._on_device(rows.batch([0]))
        batch["query"] = self._template.queries(batch)
        features, logits = self._read(batch)
        attention = self._template.attention_weights(batch)
        _require_finite([text], features, attention)
        classes = self._class_probabilities(text, features, logits)
        return Explanation(
            text=text,
            label=classes[0].label,
            classes=classes,
            attention=tuple(attention[0].tolist()),
            prompt_words=self._nearest_words(self._template.pool(batch["query"])[0], words),
            nearest_examples=self._nearest_examples(features.cpu(), examples),
            truncated=rows.cut > 0,
            head=self.head,
        )

    @property
    def head(self) -> str | None:
        """Which head the verbalizer has chosen, in a sentence; ``None`` for one that has no choice."""
        verbalizer = self.classifier.verbalizer
        return verbalizer.describe() if isinstance(verbalizer, AdaptiveVerbalizer) else None

    def _class_probabilities(self, text: str, features: Tensor, logits: Tensor | None) -> tuple[ClassProbability, ...]:
        """The classes, the most probable first, with what each of two mixed verbalizers gives them."""
        verbalizer = self.classifier.verbalizer
        soft = hand_crafted = None
        if isinstance(verbalizer, MixedVerbalizer):
            soft = verbalizer.soft_log_probabilities(features).exp()[0].tolist()
            if verbalizer.hand_crafted is not None:
                hand_crafted = verbalizer.hand_crafted.log_probabilities(features, logits).exp()[0].tolist()
        elif isinstance(verbalizer, NameVerbalizer):
            hand_crafted = verbalizer.log_probabilities(features, logits).exp()[0].tolist()
        probabilities = verbalizer.log_probabilities(features, logits).exp()[0].cpu()
        _require_finite([text], features, probabilities[None])
        return tuple(
            ClassProbability(
                label=self.task.classes[i],
                probability=float(probabilities[i]),
                soft=None if soft is None else soft[i],
                hand_crafted=None if hand_crafted is None else hand_crafted[i],
            )
            for i in probabilities.argsort(descending=True, stable=True).tolist()
        )

    def _nearest_words(self, prompt: Tensor, count: int) -> tuple[tuple[NearestWord, ...], ...]:
        """For each position of a prompt ``[L_p, d_i]``, the words whose input embeddings have the largest cosine."""
        embedding = self._template.raw_embedding.weight
        similarity = F.normalize(prompt.to(embedding), dim=-1) @ F.normalize(embedding, dim=-1).T  # [L_p, V]
        hidden = [i for i in self.base.wordless_ids if i < similarity.shape[1]]
        similarity[:, hidden] = -torch.inf
        best = similarity.float().topk(min(count, similarity.shape[1] - len(hidden)), dim=-1)
        with self.base.tokenizing:
            words = [self.base.loaded.tokenizer.convert_ids_to_tokens(ids) for ids in best.indices.tolist()]
        pairs = zip(words, best.values.tolist(), strict=True)
        return tuple(tuple(map(NearestWord, own, values)) for own, values in pairs)

    def _nearest_examples(self, feature: Tensor, count: int) -> tuple[NearestExample, ...]:
        """The support examples whose features have the largest cosine with ``feature [1, d_o]``."""
        task = self.task
        if task.texts is None:
            return ()
        # Each scaled by itself first: the inner product of large vectors is infinite.
        similarity = F.normalize(task.adapted.features, dim=-1) @ F.normalize(feature, dim=-1)[0]
        best = similarity.topk(min(count, len(similarity)))
        return tuple(
            NearestExample(task.texts[i], task.classes[task.labels[i]], cosine)
            for i, cosine in zip(best.indices.tolist(), best.values.tolist(), strict=True)
        )

    def _on_device(self, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {key: value.to(self.base.loaded.model.device) for key, value in batch.items()}

    def _read(self, batch: Mapping[str, Tensor]) -> tuple[Tensor, Tensor | None]:
        with self._reading:
            return self.classifier.read(batch)


def _require_finite(texts: Sequence[str], features: Tensor, found: Tensor) -> None:
    """Refuse rows of ``found`` that are no numbers: finite weights may be so large that what they give is not."""
    rows = (~found.isfinite().all(dim=-1)).nonzero()[:, 0].tolist()
    if rows:
        cause = "the verbalizer" if bool(features[rows[0]].isfinite().all()) else "the prompts"
        raise NotFiniteError(
            f"The text {texts[rows[0]]!r:.60} gets no probabilities: what comes of {cause} of this classifier is "
            "infinite or not a number. Its tensors are too large to compute with: fit it again, or with a smaller "
            "inner_lr."
        )


# -- How well a classifier does on labelled texts ---------------------------------------------------------------------


@dataclass(frozen=True)
class Scores:
    """Scores over a set of labelled texts.

    Attributes:
        texts: how many there are.
        accuracy: the part that is classified as labelled.
        macro_f1: mean over classes of the harmonic mean of precision and recall; over those that occur, as a label or
            as a prediction.
        classes: the classifier's.
        confusion: ``confusion[i][j]`` texts labelled ``classes[i]`` were classified as ``classes[j]``.
    """

    texts: int
    accuracy: float
    macro_f1: float
    classes: tuple[Label, ...]
    confusion: tuple[tuple[int, ...], ...]

    def as_dict(self) -> dict[str, Any]:
        """The same for JSON."""
        content: dict[str, Any] = to_jsonable_python(self)
        content["confusion_matrix"] = content.pop("confusion")
        return content


def score_on(classifier: MetaPromptClassifier, texts: Sequence[str], labels: Sequence[Label]) -> Scores:
    """Predict ``texts`` and compare with ``labels``, which are classes of the classifier."""
    classes = classifier.task_.classes
    expected = np.array(list(labels))
    predicted = classifier.predict(texts)
    matrix = confusion_matrix(expected, predicted, labels=list(classes))
    return Scores(
        texts=len(expected),
        accuracy=float((expected == predicted).mean()),
        macro_f1=float(f1_score(expected, predicted, average="macro", zero_division=0)),
        classes=classes,
        confusion=tuple(tuple(int(count) for count in row) for row in matrix),
    )
