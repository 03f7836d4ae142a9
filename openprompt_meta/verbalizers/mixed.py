"""What soft verbalizers share: reading the [MASK], and P = (1 - λ) P̂ + λ P̃ with hand-crafted words."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import torch
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

__all__ = ["MixedVerbalizer", "check_mix_lambda", "mix_log_probabilities"]

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


# -- What soft verbalizers share: they read the [MASK]'s hidden state, and may be mixed with hand-crafted words -------


class MixedVerbalizer(EpisodicVerbalizer):
    """A soft verbalizer P̃, mixed with a hand-crafted one P̂ as (1 - λ) P̂ + λ P̃.

    With ``mix_lambda`` at 1 there is no hand-crafted part, and no vocabulary head is needed. Subclasses give
    :meth:`soft_log_probabilities`, :meth:`fit_support` and what :meth:`begin_task` has to reset.
    """

    def __init__(
        self,
        tokenizer: Any,
        model: nn.Module | None,
        classes: Sequence[str] | None,
        num_classes: int | None,
        label_words: LabelWords | None,
        mix_lambda: float,
        aggregation: str,
        /,  # so that others, for the next class in line, may have a model too
        **others: Any,
    ) -> None:
        super().__init__(
            tokenizer=tokenizer,
            classes=None if classes is None else list(classes),
            num_classes=num_classes,
            **others,
        )
        self.mix_lambda = check_mix_lambda(mix_lambda)
        self.hand_crafted: ManualVerbalizer | None = None
        if self.mix_lambda < 1.0:
            require_vocabulary_head(model, f"{type(self).__name__} with mix_lambda = {mix_lambda}")
            self.hand_crafted = ManualVerbalizer(tokenizer, classes, num_classes, label_words, aggregation=aggregation)

    @property
    def needs_vocabulary_head(self) -> bool:
        """Whether hand-crafted words contribute."""
        return self.hand_crafted is not None

    @property
    def wanted_words(self) -> Tensor | None:
        """Those of the hand-crafted part, if it contributes."""
        return None if self.hand_crafted is None else self.hand_crafted.wanted_words

    @abstractmethod
    def soft_log_probabilities(self, features: Tensor) -> Tensor:
        """P̃: log-probabilities ``[B, C]`` from the [MASK]'s hidden states ``[B, d_o]``."""

    def begin_task(self, classes: Sequence[str], label_words: LabelWords | None = None) -> None:
        """Take the classes of a task, and their label words if hand-crafted words contribute."""
        self._take_classes(classes)
        if self.hand_crafted is not None:
            self.hand_crafted.begin_task(classes, label_words)

    def gather_outputs(self, outputs: Any) -> Tensor | tuple[Tensor, Tensor]:
        """Hidden states, and vocabulary logits if they are needed."""
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
        return self.log_probabilities(features, logits)

    def log_probabilities(self, features: Tensor, logits: Tensor | None) -> Tensor:
        """The mixed prediction ``[B, C]`` for hidden states ``[B, d_o]`` and vocabulary logits ``[B, V]``."""
        if self.hand_crafted is None:
            return self.soft_log_probabilities(features)
        if logits is None:
            raise VerbalizerError(f"{type(self).__name__} with mix_lambda < 1 needs vocabulary logits.")
        hand_crafted: Tensor = self.hand_crafted.process_logits(logits)
        if self.mix_lambda == 0.0:
            return hand_crafted
        return mix_log_probabilities(hand_crafted, self.soft_log_probabilities(features), self.mix_lambda)
