"""`RepVerbalizer`, the paper's representative verbalizer: a class is the mean of its examples' features."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from openprompt_meta.errors import VerbalizerError
from openprompt_meta.prompts.label_words import LabelWords
from openprompt_meta.verbalizers.base import Uncopied, labels_that_fit
from openprompt_meta.verbalizers.mixed import MixedVerbalizer

SIMILARITIES = ("cosine", "euclidean")
CENTRINGS = ("none", "support", "transductive")
_BUFFERS = ("feature_sum", "feature_count", "seen_this_round", "name_features")


class RepVerbalizer(MixedVerbalizer):
    """Label embeddings averaged from features, compared by similarity; no parameters of its own.

    Equations (paper, "Representative Verbalizer")::

        v_y = mean of h over the support texts of class y
        P̃(y | x) = softmax_y(ρ · cos(v_y, h(x)))

    With ``name_weight`` w the words of the class, read as a text, count as w more of its examples, so that a class may
    have few or none. Not every class need have words that say something: one without is known by its examples alone
    (:meth:`fit_names`), and so are all classes of a task that brings no words (:meth:`leave_out_names`). With
    ``leave_one_out`` a support text is compared, in an inner loop, with what the others make of its class: the paper
    has it be part of its own label embedding, which leaves that loss little to say.

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
        centring: subtract a mean from all features first: ``none`` (the paper), that of the ``support`` set (names
            included, if they count), or that of support and the batch under prediction together (``transductive``:
            predictions then depend on the other texts of the batch, so report them apart).
        name_weight: w, how many examples the words of a class count as; 0 leaves them out, as the paper does.
        leave_one_out: in an inner loop, leave each support text out of the label embedding it is compared with; not
            possible for the only example of a class without a name, which stays in.
        assignment_rounds: transductive: so many times, add the texts of the batch under prediction to the label
            embeddings, each by its probabilities; report these results apart too.
        assignment_temperature: ρ of those probabilities.
        decay: in an ordinary loop, how much of a class's sum survives each batch that has it; 1 is the plain mean.
        mix_lambda: λ; below 1 hand-crafted label words contribute.
        label_words: those words, if ``mix_lambda`` is below 1.
        aggregation: see :class:`~openprompt_meta.prompts.ManualVerbalizer`.
        words_read_by: if ``mix_lambda`` is below 1, whether the ``head`` predicts the label words at the [MASK] (the
            paper) or the ``encoder`` reads them as texts, which any model can.
        learn: which of ``mix_lambda``, ``temperature`` and ``name_weight`` are learned across tasks.
    """

    feature_sum: Tensor | None  # [C, d_o]
    feature_count: Tensor | None  # [C]
    seen_this_round: Tensor | None  # [C]
    name_features: Tensor | None  # [C, d_o]; a row of zeros for a class without a name

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
        name_weight: float = 0.0,
        leave_one_out: bool = False,
        assignment_rounds: int = 0,
        assignment_temperature: float = 20.0,
        decay: float = 1.0,
        mix_lambda: float = 1.0,
        label_words: LabelWords | None = None,
        aggregation: str = "logits",
        words_read_by: str = "head",
        learn: Sequence[str] = (),
    ) -> None:
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
        if not name_weight >= 0 or assignment_rounds < 0 or not assignment_temperature > 0:
            raise VerbalizerError(
                "name_weight (w) and assignment_rounds must be at least 0 and assignment_temperature above 0, got "
                f"{name_weight!r}, {assignment_rounds!r}, {assignment_temperature!r}."
            )
        super().__init__(
            tokenizer,
            model,
            classes,
            num_classes,
            label_words,
            mix_lambda,
            aggregation,
            words_read_by,
            learn,
            {"temperature": temperature, "name_weight": name_weight},
        )
        self.similarity = similarity
        self.inner_temperature = None if inner_temperature is None else float(inner_temperature)
        self.centring = centring
        self.decay = float(decay)
        self.leave_one_out = leave_one_out
        self.assignment_rounds = assignment_rounds
        self.assignment_temperature = float(assignment_temperature)
        self._support: Uncopied[tuple[Tensor, Tensor]] = Uncopied()  # sums and numbers, with gradient
        self._names: Uncopied[Tensor] = Uncopied()
        self._support_labels: Tensor | None = None
        self._names_left_out = False
        for name in _BUFFERS:
            self.register_buffer(name, None)

    @property
    def temperature(self) -> float | Tensor:
        """ρ, with gradient if it is learned."""
        return self.scalars["temperature"]

    @property
    def name_weight(self) -> float | Tensor:
        """w, with gradient if it is learned."""
        return self.scalars["name_weight"]

    @property
    def uses_names(self) -> bool:
        """Whether the words of a class count as examples of it."""
        weight = self.name_weight
        return isinstance(weight, Tensor) or weight > 0

    @property
    def reads_names(self) -> bool:
        """Whether they do, or contribute by themselves."""
        return self.uses_names or super().reads_names

    # -- learning ---------------------------------------------------------------------------------------------

    def begin_task(self, classes: Sequence[str], label_words: LabelWords | None = None) -> None:
        """Forget all label embeddings and take these classes."""
        super().begin_task(classes, label_words)
        self._support.value = self._names.value = self._support_labels = None
        self._names_left_out = False
        for name in _BUFFERS:
            setattr(self, name, None)

    def fit_names(self, features: Tensor, labels: Tensor) -> None:
        """Take the features of the classes' words; gradients flow through them.

        Where words count as examples, a class may have none: it is then known by its examples alone.
        """
        super().fit_names(features, labels)
        if self.uses_names:
            labels = labels_that_fit(features, labels, self._number_of_classes())
            self._names.value = _means(*self._class_sums(features, labels))
            self.name_features = self._names.value.detach()
            self._names_left_out = False

    def leave_out_names(self) -> None:
        """For a task that brings no words: label embeddings are means of examples alone, whatever ``name_weight`` is.

        Called after :meth:`begin_task`, which takes it back, and before :meth:`fit_support`, in place of
        :meth:`fit_names`.

        Raises:
            VerbalizerError: words contribute by themselves too (``words_read_by: encoder`` with λ below 1), and
                cannot be left out.
        """
        if super().reads_names:
            raise VerbalizerError(
                f"The words of the classes are half of what {type(self).__name__} predicts by (mix_lambda below 1, "
                "words_read_by: encoder) and cannot be left out. Give words for each class, or take mix_lambda: 1."
            )
        self._names.value = self.name_features = None
        self._names_left_out = self.uses_names

    def fit_support(self, features: Tensor, logits: Tensor | None, labels: Tensor) -> None:
        """Average the support set's features by class; gradients flow through the averages.

        With names there may be classes without an example, or no example at all: ``[0, d_o]``.

        Raises:
            VerbalizerError: a class has neither an example nor a name.
        """
        number = self._number_of_classes()
        takes_names = self.uses_names and not self._names_left_out
        if takes_names and len(labels) == 0:
            self._support_labels = labels.to(features.device).long()
        elif takes_names:
            self._support_labels = labels_that_fit(features, labels, number)
        else:
            self._support_labels = self._checked_support(features, labels)
        sums, counts = self._support.value = self._class_sums(features, self._support_labels)
        if self._names_left_out:  # said by zeros, so that what is saved says it too
            self.name_features = torch.zeros_like(sums).detach()
        if takes_names and self.name_features is not None:
            missing = ((counts == 0) & ~_has_name(self.name_features)).nonzero().flatten().tolist()
            if missing:
                raise VerbalizerError(
                    f"Class {self._class_names(missing)} has neither an example nor a name that was read. Each class "
                    "needs one or the other."
                )
        # What state_dict saves; the averages above carry gradients.
        self.feature_sum, self.feature_count = sums.detach(), counts.detach()
        self.seen_this_round = torch.ones_like(counts, dtype=torch.bool)

    def detach_fit(self) -> None:
        """Keep the averages, but let no gradient flow through them from here on."""
        super().detach_fit()
        if self._support.value is not None:
            sums, counts = self._support.value
            self._support.value = sums.detach(), counts.detach()
        if self._names.value is not None:
            self._names.value = self._names.value.detach()

    def _number_of_classes(self) -> int:
        if self.num_classes is None:
            raise VerbalizerError("RepVerbalizer does not know its classes: give classes, or call begin_task.")
        return int(self.num_classes)

    def _class_sums(self, features: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        # Added up one by one: a matrix of memberships would grow with texts times classes.
        number = self._number_of_classes()
        sums = features.new_zeros(number, features.shape[1]).index_add(0, labels, features)
        return sums, features.new_zeros(number).index_add(0, labels, features.new_ones(len(labels)))

    def _observe(self, features: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Add a labelled training batch to the averages; the batch's own share carries gradients."""
        sums, counts = self._class_sums(features, labels_that_fit(features, labels, self._number_of_classes()))
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
        learns = self.training and self._support.value is None and batch is not None and "label" in batch
        if not learns or features.dim() != 2:
            return super().process_outputs(outputs, batch, **kwargs)
        assert batch is not None  # noqa: S101 - for the type checker
        self._support.value = self._observe(features, batch["label"])
        try:
            return super().process_outputs(outputs, batch, **kwargs)
        finally:
            self._support.value = None

    def soft_log_probabilities(self, features: Tensor) -> Tensor:
        """``softmax(ρ · similarity)`` in log space, ``[B, C]``."""
        own, number = sums, counts = self._statistics()
        centre = self._centre(features, sums, counts)
        for _ in range(self.assignment_rounds):
            shares = self._scores(features, sums, counts, centre, self.assignment_temperature).softmax(
                dim=-1
            )  # [B, C]
            sums, counts = own + shares.T @ features, number + shares.sum(dim=0)
        return self._scores(features, sums, counts, centre, self.temperature).log_softmax(dim=-1)

    def _scores(
        self, features: Tensor, sums: Tensor, counts: Tensor, centre: Tensor, temperature: float | Tensor
    ) -> Tensor:
        """``ρ · similarity`` with label embeddings, ``[B, C]``; minus infinity for a class that has none."""
        label_embeddings = _means(sums, counts) - centre
        scores = temperature * self._similarity(features - centre, label_embeddings)
        return scores.masked_fill(counts == 0, -torch.inf)

    def _similarity(self, features: Tensor, label_embeddings: Tensor) -> Tensor:
        """Of features ``[B, d_o]`` with label embeddings: ``[C, d_o]`` for all, or ``[B, 1, d_o]``, one for each."""
        if self.similarity == "cosine":
            directions = F.normalize(label_embeddings, dim=-1)
            if directions.dim() == 2:
                return F.normalize(features, dim=-1) @ directions.T
            return (F.normalize(features, dim=-1).unsqueeze(1) * directions).sum(dim=-1)
        all_of_them = label_embeddings.unsqueeze(0) if label_embeddings.dim() == 2 else label_embeddings
        squared = (features.unsqueeze(1) - all_of_them).square().sum(dim=-1)
        # A lone support text is its own label embedding: the root's slope at 0 must not become NaN.
        return -squared.clamp_min(torch.finfo(squared.dtype).tiny).sqrt()

    def support_log_probabilities(self, features: Tensor, logits: Tensor | None) -> Tensor:
        """With :attr:`inner_temperature` and :attr:`leave_one_out`, if there are."""
        return self._mixed(lambda: self._soft_support_log_probabilities(features), features, logits)

    def _soft_support_log_probabilities(self, features: Tensor) -> Tensor:
        temperature = self.temperature if self.inner_temperature is None else self.inner_temperature
        sums, counts = self._statistics()
        centre = self._centre(features, sums, counts)
        scores = self._scores(features, sums, counts, centre, temperature)
        if self.leave_one_out and self._support_labels is not None:
            scores = self._without_itself(scores, features, sums, counts, centre, temperature)
        return scores.log_softmax(dim=-1)

    def _without_itself(
        self,
        scores: Tensor,
        features: Tensor,
        sums: Tensor,
        counts: Tensor,
        centre: Tensor,
        temperature: float | Tensor,
    ) -> Tensor:
        """The scores with each support text compared with its own class as the others have it."""
        labels = self._support_labels
        assert labels is not None  # noqa: S101 - for the type checker
        others = counts[labels] - 1  # [n]; names may leave a part of an example
        alone = others <= 1e-6
        kept = torch.where(alone.unsqueeze(-1), sums[labels], sums[labels] - features)
        number = torch.where(alone, counts[labels], others)
        own = _means(kept, number) - centre  # [n, d_o]
        compared = temperature * self._similarity(features - centre, own.unsqueeze(1))  # [n, 1]
        return scores.scatter(1, labels.unsqueeze(1), compared)

    @property
    def label_embeddings(self) -> Tensor:
        """v_y for each class, ``[C, d_o]``, before any centring."""
        return _means(*self._statistics())

    def _statistics(self) -> tuple[Tensor, Tensor]:
        """What label embeddings are means of, names included: sums ``[C, d_o]`` and numbers ``[C]``."""
        if not self.uses_names:
            return self._examples()
        names = self.name_features if self._names.value is None else self._names.value
        if names is None and self._names_left_out:
            return self._examples()
        if names is None:
            raise VerbalizerError(
                "name_weight is above 0, but the names of the classes have not been read: call fit_names with their "
                "features, or read_names_with(model, label_words) once in an OpenPrompt script."
            )
        if self._support.value is None and self.feature_sum is None:  # no example of any class
            sums, counts = torch.zeros_like(names), names.new_zeros(len(names))
        else:
            sums, counts = self._examples()
        return sums + self.name_weight * names, counts + self.name_weight * _has_name(names).to(counts.dtype)

    def _examples(self) -> tuple[Tensor, Tensor]:
        if self._support.value is not None:
            return self._support.value
        if self.feature_sum is None or self.feature_count is None:
            raise VerbalizerError(
                "RepVerbalizer has seen no labelled example yet. Call fit_support, or run labelled batches "
                "through the model in training mode before evaluating."
            )
        unknown = self.feature_count == 0
        if self.uses_names and self.name_features is not None:
            unknown = unknown & ~_has_name(self.name_features)
        missing = unknown.nonzero().flatten().tolist()
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
        self._support.value = self._names.value = self._support_labels = None  # of a task that this replaces
        # Buffers without a size yet take that of the saved ones; those not saved were empty.
        for name in _BUFFERS:
            saved = state_dict.get(prefix + name)
            setattr(self, name, None if saved is None else torch.empty_like(saved))
        super()._load_from_state_dict(state_dict, prefix, *args)


def _means(sums: Tensor, counts: Tensor) -> Tensor:
    return sums / counts.clamp_min(1e-12).unsqueeze(-1)


def _has_name(names: Tensor) -> Tensor:
    """Which rows of names ``[C, d_o]`` there are, ``[C]``: a row of zeros stands for a class without one."""
    return (names.detach() != 0).any(dim=-1)
