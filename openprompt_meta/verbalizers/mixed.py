"""What soft verbalizers share: reading features, and P = (1 - λ) P̂ + λ P̃ with hand-crafted words."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from openprompt_meta.errors import VerbalizerError
from openprompt_meta.prompts.label_words import LabelWords
from openprompt_meta.verbalizers.base import (
    EpisodicVerbalizer,
    last_hidden_states,
    require_vocabulary_head,
    vocabulary_logits,
)
from openprompt_meta.verbalizers.manual import ManualVerbalizer
from openprompt_meta.verbalizers.names import NameVerbalizer

WORDS_READ_BY = ("head", "encoder")

# -- Mixing two predictions: P = (1 - λ) P̂ + λ P̃, computed in log space ---------------------------------------------


def check_mix_lambda(mix_lambda: float) -> float:
    """λ as a float, or a VerbalizerError if it is not between 0 and 1."""
    if isinstance(mix_lambda, bool) or not isinstance(mix_lambda, (int, float)) or not 0.0 <= mix_lambda <= 1.0:
        raise VerbalizerError(
            f"mix_lambda must lie between 0 (hand-crafted only) and 1 (soft only), got {mix_lambda!r}."
        )
    return float(mix_lambda)


def mix_log_probabilities(hand_crafted: Tensor, soft: Tensor, mix_lambda: float) -> Tensor:
    """log((1 - λ) exp(hand_crafted) + λ exp(soft)), without ever leaving log space.

    Args:
        hand_crafted: log-probabilities ``[B, C]``.
        soft: log-probabilities ``[B, C]``.
        mix_lambda: λ; at 0 and 1 the one side is returned as it is.
    """
    if mix_lambda == 0.0:
        return hand_crafted
    if mix_lambda == 1.0:
        return soft
    return torch.logaddexp(hand_crafted + math.log1p(-mix_lambda), soft + math.log(mix_lambda))


# -- Scalars that may be learned across tasks: λ, ρ and w -------------------------------------------------------------

_PROPORTIONS = ("mix_lambda",)


def _bounded(name: str, free: Tensor) -> Tensor:
    return free.sigmoid() if name in _PROPORTIONS else free.exp()


def scalar_value(name: str, parameter: Tensor) -> float:
    """The scalar that a parameter of :class:`LearnedScalars` stands for, from a checkpoint."""
    return float(_bounded(name, parameter.detach()))


class LearnedScalars(nn.Module):
    """Positive numbers and proportions as parameters without bounds: logarithms, and logits of proportions.

    All verbalizers of a kind that serve tasks side by side share one of these, which is no task's own.

    Args:
        start: what each scalar starts from, by name.
        learn: names of those that are learned; the others stay what they are.

    Raises:
        VerbalizerError: there is no such scalar, or it cannot be learned from where it starts.
    """

    def __init__(self, start: Mapping[str, float], learn: Sequence[str] = ()) -> None:
        super().__init__()
        self._fixed = {name: float(value) for name, value in start.items()}
        if len(set(learn)) < len(learn):
            raise VerbalizerError(f"learn: {list(learn)} names a scalar twice.")
        for name in learn:
            if name not in start:
                raise VerbalizerError(f"learn: {name!r} cannot be learned here; {', '.join(start)} can.")
            value = self._fixed.pop(name, 0.0)
            top = 1.0 if name in _PROPORTIONS else math.inf
            if not 0.0 < value < top:
                limits = "strictly between 0 and 1" if name in _PROPORTIONS else "above 0"
                raise VerbalizerError(f"learn: {name} starts from {value:g}; to be learned it must lie {limits}.")
            free = math.log(value / (1 - value)) if name in _PROPORTIONS else math.log(value)
            self.register_parameter(name, nn.Parameter(torch.tensor(free, dtype=torch.float32)))

    def __getitem__(self, name: str) -> float | Tensor:
        """The scalar's value as it is now; a tensor with gradient if it is learned."""
        if name in self._fixed:
            return self._fixed[name]
        free: Tensor = self._parameters[name]  # type: ignore[assignment]
        return _bounded(name, free)

    def values(self) -> dict[str, float]:
        """All scalars as plain numbers."""
        with torch.no_grad():
            return {name: float(self[name]) for name in (*self._fixed, *self._parameters)}


# -- What soft verbalizers share: they compare features, and may be mixed with hand-crafted words ---------------------


class MixedVerbalizer(EpisodicVerbalizer):
    """A soft verbalizer P̃, mixed with a hand-crafted one P̂ as (1 - λ) P̂ + λ P̃.

    With ``mix_lambda`` at 1 there is no hand-crafted part, and no vocabulary head is needed. Below, its words are
    predicted by the language model's ``head`` (the paper), or read as texts by the ``encoder``, which any model can.
    Subclasses give :meth:`soft_log_probabilities`, :meth:`fit_support` and what :meth:`begin_task` has to reset.
    """

    hand_crafted: ManualVerbalizer | NameVerbalizer | None
    _words: ManualVerbalizer | None = None  # what label words say of logits where they do not contribute

    def __init__(
        self,
        tokenizer: Any,
        model: nn.Module | None,
        classes: Sequence[str] | None,
        num_classes: int | None,
        label_words: LabelWords | None,
        mix_lambda: float,
        aggregation: str,
        words_read_by: str = "head",
        learn: Sequence[str] = (),
        scalars: Mapping[str, float] | None = None,
        /,  # so that others, for the next class in line, may have a model too
        **others: Any,
    ) -> None:
        super().__init__(
            tokenizer=tokenizer,
            classes=None if classes is None else list(classes),
            num_classes=num_classes,
            **others,
        )
        if words_read_by not in WORDS_READ_BY:
            raise VerbalizerError(f"words_read_by must be one of {', '.join(WORDS_READ_BY)}; got {words_read_by!r}.")
        start = {"mix_lambda": check_mix_lambda(mix_lambda), **(scalars or {})}
        self.learned_scalars = LearnedScalars(start, learn)
        self.hand_crafted = None
        if mix_lambda < 1.0 and words_read_by == "encoder":
            self.hand_crafted = NameVerbalizer(tokenizer, classes, num_classes)
        elif mix_lambda < 1.0:
            require_vocabulary_head(model, f"{type(self).__name__} with mix_lambda = {mix_lambda}")
            self.hand_crafted = ManualVerbalizer(tokenizer, classes, num_classes, label_words, aggregation=aggregation)
        self._given_words = label_words

    @property
    def scalars(self) -> LearnedScalars:
        """λ, and what else a subclass lets be learned."""
        return self.learned_scalars

    @property
    def mix_lambda(self) -> float | Tensor:
        """λ, with gradient if it is learned."""
        return self.learned_scalars["mix_lambda"]

    @property
    def needs_vocabulary_head(self) -> bool:
        """Whether hand-crafted words contribute that the head predicts."""
        return self.hand_crafted is not None and self.hand_crafted.needs_vocabulary_head

    @property
    def wanted_words(self) -> Tensor | None:
        """Those of the hand-crafted part, if it contributes."""
        return None if self.hand_crafted is None else self.hand_crafted.wanted_words

    @property
    def reads_names(self) -> bool:
        """Whether hand-crafted words contribute that are read as texts."""
        return self.hand_crafted is not None and self.hand_crafted.reads_names

    @abstractmethod
    def soft_log_probabilities(self, features: Tensor) -> Tensor:
        """P̃: log-probabilities ``[B, C]`` from features ``[B, d_o]``."""

    def fit_names(self, features: Tensor, labels: Tensor) -> None:
        """Hand them to the hand-crafted part, if that reads them."""
        if self.hand_crafted is not None:
            self.hand_crafted.fit_names(features, labels)

    def begin_task(self, classes: Sequence[str], label_words: LabelWords | None = None) -> None:
        """Take the classes of a task, and their label words if hand-crafted words contribute."""
        self._take_classes(classes)
        self._given_words, self._words = label_words, None
        if self.hand_crafted is not None:
            self.hand_crafted.begin_task(classes, label_words)

    # -- what OpenPrompt's scripts ask a verbalizer for ---------------------------------------------------------------

    @property
    def label_words(self) -> list[list[str]]:
        """The label words, with the space before them, as OpenPrompt's ``ManualVerbalizer`` keeps them."""
        words: list[list[str]] = self._reading_words().label_words
        return words

    @label_words.setter
    def label_words(self, label_words: LabelWords | None) -> None:
        self._given_words, self._words = label_words, None
        if isinstance(self.hand_crafted, ManualVerbalizer):
            self.hand_crafted.label_words = label_words  # type: ignore[assignment] # a setter takes more than it gives

    @property
    def label_words_ids(self) -> Tensor:
        """Token ids of the label words, ``[C, W, T]``, as of OpenPrompt's ``ManualVerbalizer``."""
        ids: Tensor = self._reading_words().label_words_ids
        return ids

    def process_logits(self, logits: Tensor, **kwargs: Any) -> Tensor:
        """What the label words alone say of vocabulary logits ``[B, V]``: log-probabilities ``[B, C]``.

        A text is classified by :meth:`process_outputs`, which reads features; words contribute to that below λ = 1.
        """
        return self._reading_words().process_logits(logits)

    def _reading_words(self) -> ManualVerbalizer:
        if isinstance(self.hand_crafted, ManualVerbalizer):
            return self.hand_crafted
        if self._given_words is None or self.num_classes is None:
            raise VerbalizerError(
                f"{type(self).__name__} was given no label words, so it has no label_words_ids and makes nothing of "
                "vocabulary logits. Give label_words if your script asks for them; to classify, it reads features."
            )
        if self._words is None:
            words = ManualVerbalizer(self.tokenizer, self.classes, self.num_classes, self._given_words)
            object.__setattr__(self, "_words", words)  # unregistered: nothing of it is saved or moved
        assert self._words is not None  # noqa: S101 - for the type checker
        return self._words

    def register_calibrate_logits(self, logits: Tensor) -> None:
        """OpenPrompt's: divide predictions by that for ``logits``, what :meth:`gather_outputs` gave without content.

        For a verbalizer that reads features it is a mean of features ``[d_o]``.

        Raises:
            VerbalizerError: hand-crafted words contribute that the head predicts, and two things would be calibrated.
        """
        if self.needs_vocabulary_head:
            raise VerbalizerError(
                f"{type(self).__name__} with mix_lambda below 1 reads features and words; only one of the two can be "
                "calibrated. Take manual_verbalizer, or mix_lambda: 1."
            )
        super().register_calibrate_logits(logits)

    # -- prediction ---------------------------------------------------------------------------------------------------

    def detach_fit(self) -> None:
        """Let no gradient flow through the hand-crafted part's names either."""
        if self.hand_crafted is not None:
            self.hand_crafted.detach_fit()

    def gather_outputs(self, outputs: Any) -> Tensor | tuple[Tensor, Tensor]:
        """Hidden states, and vocabulary logits if they are needed."""
        self.read_names_again()
        hidden = last_hidden_states(outputs)
        if not self.needs_vocabulary_head:
            return hidden
        return hidden, vocabulary_logits(outputs, f"{type(self).__name__} with mix_lambda = {self.mix_lambda}")

    def process_outputs(
        self, outputs: Tensor | Sequence[Tensor], batch: Mapping[str, Any] | None = None, **kwargs: Any
    ) -> Tensor:
        """Log-probabilities ``[B, C]`` from what :meth:`gather_outputs` gave, taken at the [MASK]."""
        if isinstance(outputs, Tensor):
            features, logits = outputs, None
        else:
            features, logits = outputs
        if features.dim() != 2:
            raise VerbalizerError(
                f"{type(self).__name__} reads one [MASK] a text; got hidden states of shape "
                f"{list(features.shape)}. Use a template with exactly one mask."
            )
        predicted = self.log_probabilities(features, logits)
        without_content: Tensor | None = getattr(self, "_calibrate_logits", None)
        if without_content is None:
            return predicted
        expected = self.log_probabilities(without_content.unsqueeze(0).to(features), None)  # [1, C]
        return (predicted - expected).log_softmax(dim=-1)

    def log_probabilities(self, features: Tensor, logits: Tensor | None) -> Tensor:
        """The mixed prediction ``[B, C]`` for features ``[B, d_o]`` and vocabulary logits ``[B, V]``."""
        return self._mixed(lambda: self.soft_log_probabilities(features), features, logits)

    def _mixed(self, soft: Callable[[], Tensor], features: Tensor, logits: Tensor | None) -> Tensor:
        """A soft prediction ``[B, C]`` with the hand-crafted side's mixed in, if there is one."""
        if self.hand_crafted is None:
            return soft()
        if logits is None and self.needs_vocabulary_head:
            raise VerbalizerError(f"{type(self).__name__} with mix_lambda < 1 needs vocabulary logits.")
        words = self.hand_crafted.log_probabilities(features, logits)
        mix_lambda = self.mix_lambda
        if isinstance(mix_lambda, Tensor):  # from its logit, which has a gradient however near to 1 it comes
            logit = self.learned_scalars.get_parameter("mix_lambda")
            return torch.logaddexp(words + F.logsigmoid(-logit), soft() + F.logsigmoid(logit))
        return words if mix_lambda == 0.0 else mix_log_probabilities(words, soft(), mix_lambda)
