"""The verbalizers that there are: the keys of each, and what is true of it. Knows no torch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from openprompt_meta.components import VerbalizerDeclaration, VerbalizerSection
from openprompt_meta.sections import Count, LearningRate, NonNegative, Positive, Problem, Proportion, Steps

__all__ = ["VERBALIZERS", "SoftVerbalizerSection"]

Aggregation = Literal["logits", "probabilities"]


class SoftVerbalizerSection(VerbalizerSection):
    """What verbalizers that learn from examples have in common."""

    mix_lambda: Proportion = 1.0
    """λ: 1 is the soft verbalizer alone, 0 the hand-crafted one; the paper's 0.5 needs a vocabulary head."""
    aggregation: Aggregation = "logits"
    """How the hand-crafted side joins the words of a class: mean of logits, or of probabilities."""

    def head_needed_by(self) -> Iterator[tuple[str, str, str]]:
        """λ below 1 brings in hand-crafted words."""
        if self.mix_lambda < 1:
            yield "mix_lambda", f"{self.mix_lambda:g}", "mix_lambda: 1"


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

    @property
    def transductive(self) -> bool:
        """Whether features are centred by the mean over support and query."""
        return self.centring == "transductive"


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


VERBALIZERS = (
    VerbalizerDeclaration(
        name="rep_verbalizer",
        title="RepVerb",
        implementation="openprompt_meta.verbalizers.rep:RepVerbalizer",
        config=RepVerbalizerSection,
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
        name="manual_verbalizer",
        title="hand-crafted",
        implementation="openprompt_meta.verbalizers.manual:ManualVerbalizer",
        config=ManualVerbalizerSection,
    ),
)
