"""The methods that there are: the keys of each, and what is true of it. Knows no torch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from annotated_types import Ge

from openprompt_meta.components import MethodDeclaration, MethodSection, TaskWork, meta_learners
from openprompt_meta.sections import (
    Count,
    LearningRate,
    NonNegative,
    Positive,
    Problem,
    Proportion,
    Steps,
    Text,
    Whole,
)


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
        support, query = _training_texts(meta)
        further = (
            getattr(config.section_of(declaration), declaration.further_steps) if declaration.further_steps else 0
        )
        learned = meta.inner_steps * support + support + query
        if further:  # on a copy: the last step is on the query set, after which that is read once more
            learned += (further - 1) * support + support + query
        read = support + query if further else 0.0
        return TaskWork(read, learned, meta.inner_steps + further + 1)


def _training_texts(meta: Any) -> tuple[float, float]:
    """How many texts a task of meta-training has in its support and query set, on average."""
    way, shot = (
        _middle(bounds, given) for bounds, given in ((meta.train_ways, meta.way), (meta.train_shots, meta.shot))
    )
    support, query = way * shot, way * meta.query
    if meta.train_ways or meta.train_shots:  # then texts are bounded
        fits = min(1.0, meta.train_texts / (support + query))
        support, query = fits * support, fits * query
    return support, query


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


class EpisodicSection(MethodSection):
    """Methods that take no steps inside a task: one network predicts a query set from its support set."""

    def problems(self, config: Any) -> Iterator[Problem]:
        """What needs an inner loop, or a task with examples."""
        if config.meta.learner != "maml":
            yield Problem(
                "meta.learner",
                f"got {config.meta.learner}, but method: {config.method} has no inner loop to learn through. Leave it "
                "out.",
            )


class WordSection(EpisodicSection):
    """Methods that look at word vectors, of ``dataset.max_seq_length`` words of a text at most."""

    word_vectors: Text | None = None
    """A text file of word vectors, GloVe's or a ``.vec`` of fastText, from the working directory. By default words are
    the language model's tokens, and their vectors its input embeddings."""
    vector_length: Positive | None = 5.0
    """What the mean length of the training texts' word vectors is brought to, by one factor; null leaves them as they
    are."""

    def evaluation_work(self, config: Any) -> TaskWork:
        """The language model reads none of it."""
        return TaskWork()

    def iteration_work(self, config: Any) -> TaskWork:
        """A step over what is small beside the language model."""
        return TaskWork(steps=1)


class DsSection(WordSection):
    """``ds``: distributional signatures (Bao et al., 2020)."""

    epsilon: Positive = 1e-5
    """ε of s(w) = ε / (ε + P(w)), which is near 1 for rare words."""
    hidden: Count = 25
    """States of the LSTM each way, which reads s(w) and t(w)."""
    dropout: Proportion = 0.1
    """Between its states and the attention."""

    @property
    def tunes(self) -> str:
        """Three small things."""
        return "an attention over words and a ridge regression's two scalars"


class MladaSection(WordSection):
    """``mlada``: meta-learning with an adversary on the domain (Han et al., 2021)."""

    hidden: Count = 128
    """States of the generator's LSTM each way."""
    dropout: Proportion = 0.2
    """Of the discriminator."""
    mask_padding: bool = True
    """Attention is over words alone. In the authors' code padding has its share, so that a text's features depend on
    the longest text beside it."""
    source: Literal["drawn", "first"] = "drawn"
    """Texts of the source domain: drawn anew for each task from the other training classes, or, as in the authors'
    code, the first of the training set whatever the task's classes."""

    @property
    def tunes(self) -> str:
        """Both sides."""
        return "an attention over words, its adversary and a ridge regression's two scalars"


class HattSection(WordSection):
    """``hatt``: prototypes with attention to examples and features (Gao et al., 2019)."""

    filters: Count = 230
    """Features of a text: filters of a convolution over its words."""
    dropout: Proportion = 0.5
    """Before the last convolution of the feature attention."""
    feature_scores: Literal["softplus", "relu"] = "softplus"
    """What makes the feature attention positive. With ``relu``, the authors' choice, all features of a class may come
    to count nothing, and no gradient brings them back."""
    train_way: Count = 20
    """Classes of a task of meta-training, or as many as there are."""

    @property
    def tunes(self) -> str:
        """All of it."""
        return "word vectors, a convolution over words and the attention to examples and features"

    @property
    def fixes_shots(self) -> bool:
        """Its convolutions are as high as there are examples."""
        return True

    def problems(self, config: Any) -> Iterator[Problem]:
        """Also tasks with other shots than those that the feature attention is made for."""
        yield from super().problems(config)
        for key in ("train_ways", "train_shots"):
            if getattr(config.meta, key):
                yield Problem(
                    f"meta.{key}",
                    "hatt looks at a fixed number of examples a class, and has hatt.train_way for the number of "
                    "classes. Leave it out.",
                )


class ContrastNetSection(EpisodicSection):
    """``contrastnet``: the encoder tuned by contrast between classes, texts and tasks (Chen et al., 2022)."""

    temperature: Positive = 5.0
    """τ, what inner products of a task's texts are divided by."""
    text_temperature: Positive = 7.0
    """The same between texts without labels."""
    task_temperature: Positive = 7.0
    """The same between tasks, each the mean of its texts."""
    share: Proportion = 0.95
    """α, the share of the contrast between classes at the start; the rest is between texts."""
    fading: Count = 10000
    """Iterations in which α falls to 0 in a straight line."""
    task_weight: NonNegative = 0.1
    """What the contrast between tasks counts besides."""
    texts: Annotated[Whole, Ge(2)] = 10
    """Texts without labels of a step, of the training classes."""
    tasks: Annotated[Whole, Ge(2)] = 2
    """Tasks without labels of a step, of the training classes."""
    augmentation: Literal["swap_delete", "synonyms", "file"] = "swap_delete"
    """How a text is said differently: words swapped and left out; words in place of which ``augmentation_file`` has
    others; or whole paraphrases of that file."""
    augmentation_file: Text | None = None
    """For ``synonyms`` lines of words that mean the same, with commas between; for ``file`` JSON lines with a ``text``
    and a list ``paraphrases``. A text for which it has nothing is swapped and shortened."""

    @property
    def tunes(self) -> str:
        """All of it, across tasks."""
        return "the language model"

    @property
    def tunes_model(self) -> bool:
        """Always."""
        return True

    def evaluation_work(self, config: Any) -> TaskWork:
        """Both sets, in every task anew."""
        return TaskWork(config.meta.way * (config.meta.shot + config.meta.query))

    def iteration_work(self, config: Any) -> TaskWork:
        """Both sets, and each text without a label in two forms."""
        meta = config.meta
        without_labels = self.texts + self.tasks * meta.way * meta.shot
        return TaskWork(learned=sum(_training_texts(meta)) + 2 * without_labels, steps=1)

    def problems(self, config: Any) -> Iterator[Problem]:
        """Also an augmentation without its file, or a file without its augmentation."""
        yield from super().problems(config)
        if (self.augmentation == "swap_delete") != (self.augmentation_file is None):
            yield Problem(
                "contrastnet.augmentation_file",
                f"is {'missing' if self.augmentation_file is None else 'given'} with contrastnet.augmentation: "
                f"{self.augmentation}; synonyms and file need one, swap_delete takes none.",
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
        name="ds",
        title="DS",
        implementation="openprompt_meta.methods.words:build_ds",
        config=DsSection,
        trains_across_tasks=True,
    ),
    MethodDeclaration(
        name="mlada",
        title="MLADA",
        implementation="openprompt_meta.methods.words:build_mlada",
        config=MladaSection,
        trains_across_tasks=True,
    ),
    MethodDeclaration(
        name="hatt",
        title="HATT",
        implementation="openprompt_meta.methods.words:build_hatt",
        config=HattSection,
        trains_across_tasks=True,
    ),
    MethodDeclaration(
        name="contrastnet",
        title="ContrastNet",
        implementation="openprompt_meta.methods.contrastnet:build_contrastnet",
        config=ContrastNetSection,
        trains_across_tasks=True,
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
