"""The verbalizers that there are: the keys of each, and what is true of it. Knows no torch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from pydantic import Field

from openprompt_meta.components import VerbalizerDeclaration, VerbalizerSection
from openprompt_meta.sections import Count, LearningRate, NonNegative, Positive, Problem, Proportion, Steps

__all__ = ["VERBALIZERS", "SoftVerbalizerSection"]

Aggregation = Literal["logits", "probabilities"]


class SoftVerbalizerSection(VerbalizerSection):
    """What verbalizers that learn from examples have in common."""

    mix_lambda: Proportion = 1.0
    """λ: 1 is the soft verbalizer alone, 0 the hand-crafted one; the paper has 0.5."""
    words_read_by: Literal["head", "encoder"] = "head"
    """For λ below 1, how label words contribute: predicted at the [MASK] by the vocabulary ``head`` (the paper), or
    read as texts by the ``encoder`` and compared by cosine, which works for any model."""
    aggregation: Aggregation = "logits"
    """How the hand-crafted side joins the words of a class: mean of logits, or of probabilities."""

    learn: list[Literal["mix_lambda", "temperature", "name_weight"]] = Field(default_factory=list)
    """Which of these are learned across tasks, by steps of size ``meta.scalar_lr``, from the values given here."""

    @property
    def reads_names(self) -> bool:
        """Whether the words of a class are read as a text."""
        return self.mix_lambda < 1 and self.words_read_by == "encoder"

    @property
    def uses_words(self) -> bool:
        """Either way."""
        return self.needs_vocabulary_head or self.reads_names

    @property
    def learned(self) -> tuple[str, ...]:
        """The scalars that are learned."""
        return tuple(self.learn)

    def head_needed_by(self) -> Iterator[tuple[str, str, str]]:
        """λ below 1 brings in hand-crafted words, which the head predicts."""
        if self.mix_lambda < 1 and self.words_read_by == "head":
            yield "mix_lambda", f"{self.mix_lambda:g}", "words_read_by: encoder"

    def problems(self, name: str) -> Iterator[Problem]:
        """Scalars that this verbalizer has not, or that cannot be learned from where they start."""
        if len(set(self.learn)) < len(self.learn):
            yield Problem(f"{name}.learn", f"got {self.learn}, expected none of them twice.")
        for scalar in self.learn:
            value = getattr(self, scalar, None)
            if value is None:
                yield Problem(f"{name}.learn", f"{scalar} is not a key of {name}.")
            elif value <= 0 or (scalar == "mix_lambda" and value >= 1):
                limits = "strictly between 0 and 1" if scalar == "mix_lambda" else "above 0"
                yield Problem(f"{name}.{scalar}", f"got {value:g}; to be learned it must start {limits}.")


class RepVerbalizerSection(SoftVerbalizerSection):
    """``rep_verbalizer``: see :class:`openprompt_meta.RepVerbalizer`."""

    similarity: Literal["cosine", "euclidean"] = "cosine"
    """How a feature is compared with a label embedding."""
    temperature: Positive = 10.0
    """ρ, on query examples and, unless ``inner_temperature`` is set, in the inner loop."""
    inner_temperature: Positive | None = None
    """ρ in the inner loop; the authors' code has 1."""
    centring: Literal["none", "support", "transductive"] = "none"
    """Subtract a mean from features first; ``transductive`` looks at the query set and is reported apart."""
    name_weight: NonNegative = 0.0
    """w: how many examples the words of a class, read as a text, count as; 0 leaves them out, as the paper does."""
    leave_one_out: bool = False
    """In the inner loop, compare a support text with what the others make of its class; the paper has it in."""
    assignment_rounds: Steps = 0
    """Transductive: rounds in which the query texts join the label embeddings, each by its probabilities."""
    assignment_temperature: Positive = 20.0
    """ρ of those probabilities."""

    @property
    def reads_names(self) -> bool:
        """As examples, or by themselves."""
        return self.name_weight > 0 or super().reads_names

    @property
    def knows_classes_by_words(self) -> bool:
        """If words count as examples."""
        return self.name_weight > 0

    @property
    def does_without_names(self) -> bool:
        """If they only join the examples."""
        return self.name_weight > 0 and not super().reads_names

    @property
    def transductive(self) -> bool:
        """Whether the query set as a whole is looked at."""
        return self.centring == "transductive" or self.assignment_rounds > 0


class AdaptiveVerbalizerSection(RepVerbalizerSection):
    """``adaptive_verbalizer``: see :class:`openprompt_meta.AdaptiveVerbalizer`."""

    anchor: Proportion = 0.3
    """β, what of the class means a logistic regression is drawn towards: 1, all; 0, an ordinary regression."""
    strengths: list[Positive] = Field(default_factory=lambda: [10.0])
    """Each C of such a regression. The smallest is taken, unless class means alone or a larger one are clearly better
    on held-out examples. None of them: class means alone."""
    default_strength: Positive | None = 10.0
    """C where no example can be held out: with one example of each class, if words count as examples. null: class
    means alone there."""

    def problems(self, name: str) -> Iterator[Problem]:
        """What does not go together with a correction."""
        yield from super().problems(name)
        for key, only in (("similarity", "cosine"), ("centring", "none"), ("assignment_rounds", 0)):
            value = getattr(self, key)
            if value != only:
                text = f"got {value}; cosines with class means of the support set are what is corrected: {only}."
                yield Problem(f"{name}.{key}", text)
        if len(set(self.strengths)) < len(self.strengths):
            yield Problem(f"{name}.strengths", f"got {self.strengths}, expected none of them twice.")


class WarpVerbalizerSection(SoftVerbalizerSection):
    """``warp_verbalizer``: see :class:`openprompt_meta.WarpVerbalizer`."""

    init_std: NonNegative = 0.02
    """Label embeddings start normal with this deviation."""
    fit_steps: Steps = 5
    """Gradient steps on the support set's features."""
    fit_lr: LearningRate = 1e-2
    """Their step size."""


class DartVerbalizerSection(WarpVerbalizerSection):
    """``dart_verbalizer``: see :class:`openprompt_meta.DartVerbalizer`."""

    @property
    def uses_words(self) -> bool:
        """Label embeddings start from words, whatever λ is."""
        return True


class ProtoVerbalizerSection(SoftVerbalizerSection):
    """``proto_verbalizer``: see :class:`openprompt_meta.ProtoVerbalizer`."""

    lr: LearningRate = 1e-3
    """Step size for prototypes."""
    mid_dim: Count = 64
    """Size of a prototype."""
    epochs: Steps = 5
    """Steps on the prototypes."""
    multi_verb: Literal["multi", "proto"] = "proto"
    """``multi`` averages with hand-crafted words, as ProtoVerb's paper does; it needs a vocabulary head."""

    def head_needed_by(self) -> Iterator[tuple[str, str, str]]:
        """Either way of bringing in hand-crafted words."""
        yield from super().head_needed_by()
        if self.multi_verb == "multi":
            yield "multi_verb", "multi", "multi_verb: proto"

    def problems(self, name: str) -> Iterator[Problem]:
        """Both ways at once."""
        yield from super().problems(name)
        if self.multi_verb == "multi" and self.mix_lambda < 1:
            text = "multi and a mix_lambda below 1 are two ways to bring in hand-crafted words; choose one."
            yield Problem(f"{name}.multi_verb", text)


class ManualVerbalizerSection(VerbalizerSection):
    """``manual_verbalizer``: see :class:`openprompt_meta.ManualVerbalizer`."""

    aggregation: Aggregation = "logits"
    """How the words of a class are joined: mean of logits, or of probabilities."""
    multi_token_handler: Literal["first", "max", "mean"] = "first"  # noqa: S105
    """What a word of several tokens counts as."""

    def head_needed_by(self) -> Iterator[tuple[str, str, str]]:
        """It is made of words."""
        yield "", "manual_verbalizer", "rep_verbalizer"


class NameVerbalizerSection(VerbalizerSection):
    """``name_verbalizer``: see :class:`openprompt_meta.NameVerbalizer`."""

    temperature: Positive = 10.0
    """ρ, what the cosine of a text with a name is multiplied by."""

    @property
    def reads_names(self) -> bool:
        """They are all it has."""
        return True

    @property
    def uses_words(self) -> bool:
        """As texts."""
        return True

    @property
    def knows_classes_by_words(self) -> bool:
        """By nothing else."""
        return True


VERBALIZERS = (
    VerbalizerDeclaration(
        name="rep_verbalizer",
        title="RepVerb",
        implementation="openprompt_meta.verbalizers.rep:RepVerbalizer",
        config=RepVerbalizerSection,
    ),
    VerbalizerDeclaration(
        name="adaptive_verbalizer",
        title="adaptive",
        implementation="openprompt_meta.verbalizers.adaptive:AdaptiveVerbalizer",
        config=AdaptiveVerbalizerSection,
    ),
    VerbalizerDeclaration(
        name="warp_verbalizer",
        title="WARP",
        implementation="openprompt_meta.verbalizers.warp:WarpVerbalizer",
        config=WarpVerbalizerSection,
        openprompt_lr=0.01,
    ),
    VerbalizerDeclaration(
        name="dart_verbalizer",
        title="DART",
        implementation="openprompt_meta.verbalizers.warp:DartVerbalizer",
        config=DartVerbalizerSection,
        openprompt_lr=0.01,
    ),
    VerbalizerDeclaration(
        name="proto_verbalizer",
        title="ProtoVerb",
        implementation="openprompt_meta.verbalizers.proto:ProtoVerbalizer",
        config=ProtoVerbalizerSection,
    ),
    VerbalizerDeclaration(
        name="name_verbalizer",
        title="names",
        implementation="openprompt_meta.verbalizers.names:NameVerbalizer",
        config=NameVerbalizerSection,
    ),
    VerbalizerDeclaration(
        name="manual_verbalizer",
        title="hand-crafted",
        implementation="openprompt_meta.verbalizers.manual:ManualVerbalizer",
        config=ManualVerbalizerSection,
    ),
)
