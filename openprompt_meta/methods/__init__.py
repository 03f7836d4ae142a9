"""The methods that there are: the keys of each, and what is true of it. Knows no torch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from annotated_types import Ge

from openprompt_meta.components import MethodDeclaration, MethodSection, TaskWork, meta_learners
from openprompt_meta.sections import Count, LearningRate, NonNegative, Positive, Problem, Steps, Whole


class _LearnedAcrossTasks(MethodSection):
    """An inner loop of gradient steps on the support set, and an outer one on the query set."""

    def evaluation_work(self, config: Any) -> TaskWork:
        """The inner steps, then both sets; without a step, texts look alike in every task."""
        meta, steps = config.meta, config.meta.inner_steps_eval
        keeps = steps == 0 and config.run.engine == "fast"
        return TaskWork(meta.way * (meta.shot + meta.query), steps * meta.way * meta.shot, steps, once=keeps)

    def iteration_work(self, config: Any) -> TaskWork:
        """The inner steps, a pass over both sets, and what the meta-learner does further."""
        meta = config.meta
        declaration = meta_learners()[meta.learner]
        way, shot = (
            _middle(bounds, given) for bounds, given in ((meta.train_ways, meta.way), (meta.train_shots, meta.shot))
        )
        support, query = way * shot, way * meta.query
        if meta.train_ways or meta.train_shots:  # then texts are bounded
            fits = min(1.0, meta.train_texts / (support + query))
            support, query = fits * support, fits * query
        further = (
            getattr(config.section_of(declaration), declaration.further_steps) if declaration.further_steps else 0
        )
        learned = meta.inner_steps * support + support + query
        if further:  # on a copy: the last step is on the query set, after which that is read once more
            learned += (further - 1) * support + support + query
        read = support + query if further else 0.0
        return TaskWork(read, learned, meta.inner_steps + further + 1)


def _middle(bounds: list[int], otherwise: int) -> float:
    return sum(bounds) / len(bounds) if bounds else float(otherwise)


class MetaPrompterSection(_LearnedAcrossTasks):
    """``metaprompter`` has no keys of its own: the pool's stand in ``prompt_pool_template``."""

    @property
    def tunes(self) -> str:
        """The paper's Figure 1."""
        return "the pool of prompts"


class MetaPromptingSection(_LearnedAcrossTasks):
    """``metaprompting``: one soft prompt and the language model, both meta-learned."""

    tune_model: bool = True
    """Tune the language model too; without it the prompt alone is learned."""
    model_lr: LearningRate = 5e-5
    """Step size for the language model in the inner loop; the prompt's is ``meta.inner_lr``."""
    model_outer_lr: LearningRate = 1e-5
    """Step size for the language model in the outer loop; the prompt's is ``meta.outer_lr``."""
    model_optimizer: Literal["adam", "sgd"] = "adam"
    """What takes the language model's steps in the inner loop."""

    @property
    def tunes(self) -> str:
        """With or without the language model."""
        return "one prompt and the language model" if self.tune_model else "one prompt"

    @property
    def tunes_model(self) -> bool:
        """If asked for."""
        return self.tune_model

    def problems(self, config: Any) -> Iterator[Problem]:
        """What cannot be done to a whole language model, or with a single prompt."""
        if self.tune_model and not config.meta.first_order:
            yield Problem(
                "meta.first_order",
                "second derivatives through the whole language model would need a copy of it for every inner step. "
                "Leave it true, or set metaprompting.tune_model: false.",
            )
        if config.meta.inner_parameters != "all":
            yield Problem(
                "meta.inner_parameters",
                f"got {config.meta.inner_parameters}, which is for the pool of method: metaprompter; a single prompt "
                "has no keys to choose by. Leave it out.",
            )


class _TunedInEachTask(MethodSection):
    steps: Steps

    @property
    def tunes(self) -> str:
        """All weights, anew in each task."""
        return "the language model, in each task"

    @property
    def tunes_model(self) -> bool:
        """Always."""
        return True

    def evaluation_work(self, config: Any) -> TaskWork:
        """Its steps on the support set, then both sets."""
        meta = config.meta
        return TaskWork(meta.way * (meta.shot + meta.query), self.steps * self.texts_a_step(config), self.steps)

    def texts_a_step(self, config: Any) -> int:
        """How many texts a step is taken on."""
        return int(config.meta.way * config.meta.shot)


class VerbalizerTuningSection(_TunedInEachTask):
    """``verbalizer_tuning``: for ``method: verbalizer``, how language model and verbalizer are tuned in each task."""

    steps: Steps = 5
    """Steps on the support set."""
    lr: LearningRate = 5e-5
    """Their size."""
    optimizer: Literal["adam", "sgd"] = "adam"
    """What takes them."""


class MeanPrototypesSection(MethodSection):
    """``mean_prototypes``: class means of mean-pooled features, compared by cosine."""

    name_weight: NonNegative = 0.0
    """How many examples the words of a class, read as a text, count as."""
    assignment_rounds: Steps = 0
    """Transductive: rounds in which the query texts join the class means, each by its probabilities."""

    @property
    def transductive(self) -> bool:
        """If the query texts join."""
        return self.assignment_rounds > 0


class LogisticRegressionSection(MethodSection):
    """``logistic_regression``: scikit-learn's, on mean-pooled features of length one."""

    strength: Positive = 10.0
    """C: the larger, the weaker the penalty on the weights."""

    @property
    def tunes(self) -> str:
        """One layer."""
        return "a logistic regression, in each task"


class NearestNeighboursSection(MethodSection):
    """``nearest_neighbours``: scikit-learn's, on mean-pooled features by cosine distance."""

    neighbours: Count | None = None
    """How many contribute, the nearer the more; as many as there are examples a class by default."""


class FineTuningSection(_TunedInEachTask):
    """``fine_tuning``: the language model and a classification head on its mean-pooled features, in each task."""

    steps: Steps = 30
    """Steps on the support set."""
    lr: LearningRate = 5e-5
    """Their size for the language model."""
    head_lr: LearningRate = 1e-2
    """Their size for the head, which starts at random."""


class ContrastiveSection(_TunedInEachTask):
    """``contrastive``: the language model tuned on pairs of support texts, then a logistic regression (as SetFit)."""

    steps: Steps = 20
    """Steps, each on a batch of pairs, half of them of one class."""
    pairs: Annotated[Whole, Ge(2)] = 16
    """Pairs of a step."""
    lr: LearningRate = 2e-5
    """Size of a step."""

    def texts_a_step(self, config: Any) -> int:
        """Two of a pair."""
        return 2 * self.pairs


METHODS = (
    MethodDeclaration(
        name="metaprompter",
        title="MetaPrompter",
        implementation="openprompt_meta.methods.metaprompter:build_metaprompter",
        config=MetaPrompterSection,
        trains_across_tasks=True,
        uses_verbalizer=True,
    ),
    MethodDeclaration(
        name="metaprompting",
        title="MetaPrompting",
        implementation="openprompt_meta.methods.metaprompting:build_metaprompting",
        config=MetaPromptingSection,
        trains_across_tasks=True,
        uses_verbalizer=True,
    ),
    MethodDeclaration(
        name="verbalizer",
        title="verbalizer alone",
        implementation="openprompt_meta.methods.verbalizer_tuning:build_verbalizer_tuning",
        config=VerbalizerTuningSection,
        section="verbalizer_tuning",  # "verbalizer" is which verbalizer
        uses_verbalizer=True,
    ),
    MethodDeclaration(
        name="mask_prototypes",
        title="class means of the [MASK]",
        implementation="openprompt_meta.methods.baselines:build_mask_prototypes",
    ),
    MethodDeclaration(
        name="mean_prototypes",
        title="class means of mean-pooled features",
        implementation="openprompt_meta.methods.baselines:build_mean_prototypes",
        config=MeanPrototypesSection,
    ),
    MethodDeclaration(
        name="logistic_regression",
        title="logistic regression",
        implementation="openprompt_meta.methods.baselines:build_logistic_regression",
        config=LogisticRegressionSection,
    ),
    MethodDeclaration(
        name="nearest_neighbours",
        title="nearest neighbours",
        implementation="openprompt_meta.methods.baselines:build_nearest_neighbours",
        config=NearestNeighboursSection,
    ),
    MethodDeclaration(
        name="fine_tuning",
        title="fine-tuning with a head",
        implementation="openprompt_meta.methods.baselines:build_fine_tuning",
        config=FineTuningSection,
    ),
    MethodDeclaration(
        name="contrastive",
        title="contrastive fine-tuning, as SetFit",
        implementation="openprompt_meta.methods.baselines:build_contrastive",
        config=ContrastiveSection,
        also_uses=("logistic_regression",),
    ),
)
