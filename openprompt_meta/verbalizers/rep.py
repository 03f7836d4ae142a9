"""`RepVerbalizer`, the paper's representative verbalizer: a class is the mean of its examples' features."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from openprompt_meta.errors import VerbalizerError
from openprompt_meta.prompts.label_words import LabelWords
from openprompt_meta.verbalizers.base import checked_labels
from openprompt_meta.verbalizers.mixed import MixedVerbalizer

__all__ = ["RepVerbalizer"]

SIMILARITIES = ("cosine", "euclidean")
CENTRINGS = ("none", "support", "transductive")


class RepVerbalizer(MixedVerbalizer):
    """Label embeddings averaged from [MASK] features, compared by similarity; no parameters.

    Equations (paper, "Representative Verbalizer")::

        v_y = mean of h over the support texts of class y
        P̃(y | x) = softmax_y(ρ · cos(v_y, h(x)))

    In an ordinary OpenPrompt loop there is no support set to hand over: in training mode the verbalizer averages
    the labelled batches that pass through it, and keeps the averages for evaluation. A class not seen yet has
    probability zero in training and is an error in evaluation. Training again after an evaluation starts new
    averages, class by class as they come by, since features change while a prompt is being learned.

    Args:
        tokenizer: the language model's tokenizer.
        model: the language model, if known, for early checks.
        classes: the classes of the task.
        num_classes: their number, if they have no names.
        similarity: ``cosine``, or ``euclidean`` (minus the distance), as the paper's footnote allows.
        temperature: ρ; large makes predictions one-hot, small makes them uniform.
        inner_temperature: ρ for the support set itself in an inner loop; ``temperature`` if ``None``.
        centring: subtract a mean from all features first: ``none`` (the paper), that of the ``support`` set, or
            that of support and the batch under prediction together (``transductive``: predictions then depend on
            the other texts of the batch, so report them apart).
        decay: in an ordinary loop, how much of a class's sum survives each batch that has it; 1 is the plain mean.
        mix_lambda: λ; below 1 hand-crafted label words contribute.
        label_words: those words, if ``mix_lambda`` is below 1.
        aggregation: see :class:`~openprompt_meta.prompts.ManualVerbalizer`.
    """

    feature_sum: Tensor | None  # [C, d_o]
    feature_count: Tensor | None  # [C]
    seen_this_round: Tensor | None  # [C]

    def __init__(
        self,
        tokenizer: Any = None,
        model: nn.Module | None = None,
        classes: Sequence[str] | None = None,
        num_classes: int | None = None,
        similarity: str = "cosine",
        temperature: float = 10.0,
        inner_temperature: float | None = None,
        centring: str = "none",
        decay: float = 1.0,
        mix_lambda: float = 1.0,
        label_words: LabelWords | None = None,
        aggregation: str = "logits",
    ) -> None:
        super().__init__(tokenizer, model, classes, num_classes, label_words, mix_lambda, aggregation)
        if similarity not in SIMILARITIES:
            raise VerbalizerError(f"similarity must be one of {', '.join(SIMILARITIES)}; got {similarity!r}.")
        if centring not in CENTRINGS:
            raise VerbalizerError(f"centring must be one of {', '.join(CENTRINGS)}; got {centring!r}.")
        if not temperature > 0 or (inner_temperature is not None and not inner_temperature > 0):
            raise VerbalizerError(
                f"temperature and inner_temperature (ρ) must be above 0, got {temperature!r}, {inner_temperature!r}."
            )
        if not 0 < decay <= 1:
            raise VerbalizerError(f"decay must lie above 0 and not above 1, got {decay!r}.")
        self.similarity = similarity
        self.temperature = float(temperature)
        self.inner_temperature = None if inner_temperature is None else float(inner_temperature)
        self.centring = centring
        self.decay = float(decay)
        self._support: tuple[Tensor, Tensor] | None = None
        for name in ("feature_sum", "feature_count", "seen_this_round"):
            self.register_buffer(name, None)

    # -- learning ---------------------------------------------------------------------------------------------

    def begin_task(self, classes: Sequence[str], label_words: LabelWords | None = None) -> None:
        """Forget all label embeddings and take these classes."""
        super().begin_task(classes, label_words)
        self._support = self.feature_sum = self.feature_count = self.seen_this_round = None

    def clone(self) -> RepVerbalizer:
        """A verbalizer like this one for another task; the averages at hand, which carry gradients, stay behind."""
        own, self._support = self._support, None
        try:
            copied: RepVerbalizer = copy.deepcopy(self, {id(self.tokenizer): self.tokenizer})
        finally:
            self._support = own
        return copied

    def fit_support(self, features: Tensor, logits: Tensor | None, labels: Tensor) -> None:
        """Average the support set's features by class; gradients flow through the averages."""
        sums, counts = self._support = self._class_sums(features, self._checked_support(features, labels))
        # What state_dict saves; the averages above carry gradients.
        self.feature_sum, self.feature_count = sums.detach(), counts.detach()
        self.seen_this_round = torch.ones_like(counts, dtype=torch.bool)

    def detach_fit(self) -> None:
        """Keep the averages, but let no gradient flow through them from here on."""
        if self._support is not None:
            sums, counts = self._support
            self._support = sums.detach(), counts.detach()

    def _class_sums(self, features: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        members = F.one_hot(labels, self.num_classes).to(features.dtype)  # [n, C]
        return members.T @ features, members.sum(dim=0)

    def _observe(self, features: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Add a labelled training batch to the averages; the batch's own share carries gradients."""
        if self.num_classes is None:
            raise VerbalizerError("RepVerbalizer does not know its classes: give classes, or call begin_task.")
        sums, counts = self._class_sums(features, checked_labels(features, labels, self.num_classes))
        if self.feature_sum is None or self.feature_count is None or self.seen_this_round is None:
            self.feature_sum, self.feature_count = torch.zeros_like(sums), torch.zeros_like(counts)
            self.seen_this_round = torch.zeros_like(counts, dtype=torch.bool)
        here = counts > 0
        kept = torch.ones_like(counts).masked_fill(here, self.decay)
        kept = kept.masked_fill(here & ~self.seen_this_round, 0.0)  # the first of a round replaces the last round
        sums = kept.unsqueeze(-1) * self.feature_sum + sums
        counts = kept * self.feature_count + counts
        self.feature_sum, self.feature_count = sums.detach(), counts.detach()
        self.seen_this_round = self.seen_this_round | here
        return sums, counts

    def train(self, mode: bool = True) -> RepVerbalizer:
        """Going from evaluation to training starts a new round of averages."""
        if mode and not self.training and self.seen_this_round is not None:
            self.seen_this_round = torch.zeros_like(self.seen_this_round)
        super().train(mode)
        return self

    # -- prediction -------------------------------------------------------------------------------------------

    def process_outputs(
        self, outputs: Tensor | Sequence[Tensor], batch: Mapping[str, Any] | None = None, **kwargs: Any
    ) -> Tensor:
        """Log-probabilities ``[B, C]``; a labelled batch in training mode is learned from on the way."""
        features = outputs if isinstance(outputs, Tensor) else outputs[0]
        learns = self.training and self._support is None and batch is not None and "label" in batch
        if not learns or features.dim() != 2:
            return super().process_outputs(outputs, batch, **kwargs)
        assert batch is not None  # noqa: S101 - for the type checker
        self._support = self._observe(features, batch["label"])
        try:
            return super().process_outputs(outputs, batch, **kwargs)
        finally:
            self._support = None

    def soft_log_probabilities(self, features: Tensor) -> Tensor:
        """``softmax(ρ · similarity)`` in log space, ``[B, C]``."""
        sums, counts = self._statistics()
        label_embeddings = sums / counts.clamp_min(1e-12).unsqueeze(-1)
        centre = self._centre(features, sums, counts)
        label_embeddings, features = label_embeddings - centre, features - centre
        if self.similarity == "cosine":
            similarity = F.normalize(features, dim=-1) @ F.normalize(label_embeddings, dim=-1).T
        else:
            squared = (features.unsqueeze(1) - label_embeddings.unsqueeze(0)).square().sum(dim=-1)
            # A lone support text is its own label embedding: the root's slope at 0 must not become NaN.
            similarity = -squared.clamp_min(torch.finfo(squared.dtype).tiny).sqrt()
        scores = (self.temperature * similarity).masked_fill(counts == 0, -torch.inf)
        return scores.log_softmax(dim=-1)

    def support_log_probabilities(self, features: Tensor, logits: Tensor | None) -> Tensor:
        """With :attr:`inner_temperature`, if there is one."""
        if self.inner_temperature is None:
            return super().support_log_probabilities(features, logits)
        outer, self.temperature = self.temperature, self.inner_temperature
        try:
            return super().support_log_probabilities(features, logits)
        finally:
            self.temperature = outer

    @property
    def label_embeddings(self) -> Tensor:
        """v_y for each class, ``[C, d_o]``, before any centring."""
        sums, counts = self._statistics()
        return sums / counts.clamp_min(1e-12).unsqueeze(-1)

    def _statistics(self) -> tuple[Tensor, Tensor]:
        if self._support is not None:
            return self._support
        if self.feature_sum is None or self.feature_count is None:
            raise VerbalizerError(
                "RepVerbalizer has seen no labelled example yet. Call fit_support, or run labelled batches "
                "through the model in training mode before evaluating."
            )
        missing = (self.feature_count == 0).nonzero().flatten().tolist()
        if missing:
            raise VerbalizerError(
                f"No training example of class {self._class_names(missing)} has come by. Each class needs at "
                "least one before evaluation."
            )
        return self.feature_sum, self.feature_count

    def _centre(self, features: Tensor, sums: Tensor, counts: Tensor) -> Tensor:
        if self.centring == "none":
            return features.new_zeros(())
        if self.centring == "support":
            return sums.sum(dim=0) / counts.sum()
        return (sums.sum(dim=0) + features.sum(dim=0)) / (counts.sum() + len(features))

    def _load_from_state_dict(self, state_dict: Mapping[str, Any], prefix: str, *args: Any) -> None:
        # Buffers without a size yet take that of the saved ones; those not saved were empty.
        for name in ("feature_sum", "feature_count", "seen_this_round"):
            saved = state_dict.get(prefix + name)
            setattr(self, name, None if saved is None else torch.empty_like(saved))
        super()._load_from_state_dict(state_dict, prefix, *args)
