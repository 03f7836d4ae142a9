"""Every key of a run's YAML, with its type, its default and what it means.

The sections follow OpenPrompt's style (``plm``, ``dataset``, ``template``, ``verbalizer`` and sections named after the
chosen classes) plus ``meta`` for meta-learning and ``run`` for the run itself. Defaults are the paper's values where
it has one. This module knows no torch, so that a YAML is checked before anything loads; a test holds the template's
and verbalizers' sections to the constructors they are for.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal

from openprompt_meta.config.ranges import (
    Count,
    LearningRate,
    NonNegative,
    Positive,
    Proportion,
    Range,
    Seed,
    Steps,
)

__all__ = [
    "METHOD_SECTIONS",
    "METHOD_SECTION_OF",
    "VERBALIZER_METHODS",
    "VERBALIZER_SECTIONS",
    "ContrastiveSection",
    "DartVerbalizerSection",
    "DatasetSection",
    "FineTuningSection",
    "LogisticRegressionSection",
    "ManualVerbalizerSection",
    "MetaPromptingSection",
    "MetaSection",
    "MethodName",
    "NearestNeighboursSection",
    "PlmSection",
    "PromptPoolTemplateSection",
    "ProtoVerbalizerSection",
    "RepVerbalizerSection",
    "RunConfig",
    "RunSection",
    "VerbalizerTuningSection",
    "WarpVerbalizerSection",
]

Aggregation = Literal["logits", "probabilities"]
MethodName = Literal[
    "metaprompter",
    "metaprompting",
    "verbalizer",
    "mask_prototypes",
    "mean_prototypes",
    "logistic_regression",
    "nearest_neighbours",
    "fine_tuning",
    "contrastive",
]


@dataclass(frozen=True, kw_only=True)
class PlmSection:
    """``plm``: the masked language model, frozen unless the method tunes it."""

    model_path: str = "minilm"
    """``minilm`` or ``minilm-mlm`` (packaged, no hub; the second predicts words), a folder, or a hub name such as
    ``bert-base-uncased``."""
    model_name: Literal["mlm"] = "mlm"
    """OpenPrompt's kind of model; ``mlm`` is any masked language model, through transformers' Auto classes."""
    attn_implementation: Literal["eager", "sdpa"] | None = None
    """transformers' attention; by default its own choice, but ``eager`` for second-order gradients, which need it, and
    for bfloat16 on a CPU, where it is faster."""
    precision: Literal["float32", "bfloat16", "float16", "auto"] = "float32"
    """What the frozen model computes in; the pool is in float32 either way. Half precision is faster where the
    hardware has instructions for it, and a little less exact; ``auto`` uses bfloat16 there and float32 elsewhere. A
    model that is tuned keeps its weights in float32 and only its matrix products are computed in bfloat16; float16 is
    refused there."""
    compile: bool = False
    """Let ``torch.compile`` fuse parts of a BERT-like model's layers: a minute at the start, a gain on some hardware,
    none on the processors tried so far."""
    dropout: bool = False
    """Leave the frozen model's dropout on while meta-training, as the authors' code does; it costs accuracy."""


@dataclass(frozen=True, kw_only=True)
class DatasetSection:
    """``dataset``: the texts, and how their classes are split for meta-learning."""

    name: str = "demo"
    """``demo`` (ships with the package), one of the six of the paper, or any name for your own data."""
    path: str | None = None
    """Folder or file of the data, from the working directory; not needed for ``demo``, a hub data set, or those of the
    six in ``data/``."""
    format: Literal["auto", "layout", "authors", "table", "huggingface", "processor"] = "auto"
    """How to read it; ``auto`` looks at what is there. ``layout`` is a folder of ``train.jsonl`` and so on, ``table``
    JSONL or CSV, ``authors`` the JSON lines of the paper's authors, ``processor`` OpenPrompt's of that ``name``."""
    text_column: str = "text"
    """Column of the text in JSONL, CSV and Hugging Face data."""
    label_column: str = "label"
    """Column of the label."""
    splits: str = "default"
    """Class split: ``default`` (as the files have it, else the authors'), ``authors``, ``distributional_signatures``,
    ``random``, or a JSON file."""
    split_seed: Seed = 0
    """Seed of ``splits: random``."""
    split_fold: Seed = 0
    """Which of the independent random splits of that seed, for averaging over several."""
    split_counts: list[Steps] | None = None
    """Classes for training, validation and test of ``splits: random``."""
    label_words: str | None = None
    """JSON or YAML file of label words by class; by default those that ship, or the data's own."""
    drop: list[Literal["empty", "conflicts", "duplicates"]] = field(default_factory=list)
    """Texts to leave out: empty ones, those that stand in two splits or carry two labels, repeated ones."""
    min_samples: Steps = 0
    """Leave out classes with fewer texts than this; by default a class too small for the tasks is an error."""
    hub_config: str | None = None
    """Configuration of a Hugging Face data set that has several."""
    max_seq_length: Annotated[int, Range(minimum=8)] = 220
    """Length budget in tokens, template and prompt included; longer texts are cut."""


@dataclass(frozen=True, kw_only=True)
class PromptPoolTemplateSection:
    """``prompt_pool_template``: see :class:`openprompt_meta.PromptPoolTemplate`."""

    text: str = '{"placeholder": "text_a"} {"pool"} Topic is {"mask"}.'
    """Template text; ``{"pool"}`` marks the prompt."""
    num_prompts: Count = 8
    """Prompts in the pool, K."""
    prompt_length: Count = 8
    """Positions of a prompt, L_p."""
    top_n: Count | None = None
    """Attend to the best N prompts only; to all of them by default, as in the paper."""
    init: Literal["label_words", "vocab", "random"] = "label_words"
    """Where prompts start: label words of the meta-training classes, the vocabulary, or at random."""
    random_range: NonNegative = 0.5
    """For ``init: random``, uniform in plus and minus this."""


@dataclass(frozen=True, kw_only=True)
class _SoftVerbalizerSection:
    mix_lambda: Proportion = 1.0
    """λ: 1 is the soft verbalizer alone, 0 the hand-crafted one; the paper's 0.5 needs a vocabulary head."""
    aggregation: Aggregation = "logits"
    """How the hand-crafted side joins the words of a class: mean of logits, or of probabilities."""


@dataclass(frozen=True, kw_only=True)
class RepVerbalizerSection(_SoftVerbalizerSection):
    """``rep_verbalizer``: see :class:`openprompt_meta.RepVerbalizer`."""

    similarity: Literal["cosine", "euclidean"] = "cosine"
    """How a feature is compared with a label embedding."""
    temperature: Positive = 10.0
    """ρ, on query examples and, unless ``inner_temperature`` is set, in the inner loop."""
    inner_temperature: Positive | None = None
    """ρ in the inner loop; the authors' code has 1."""
    centring: Literal["none", "support", "transductive"] = "none"
    """Subtract a mean from features first; ``transductive`` looks at the query set and is reported apart."""


@dataclass(frozen=True, kw_only=True)
class WarpVerbalizerSection(_SoftVerbalizerSection):
    """``warp_verbalizer``: see :class:`openprompt_meta.WarpVerbalizer`."""

    init_std: NonNegative = 0.02
    """Label embeddings start normal with this deviation."""
    fit_steps: Steps = 5
    """Gradient steps on the support set's features."""
    fit_lr: LearningRate = 1e-2
    """Their step size."""


@dataclass(frozen=True, kw_only=True)
class DartVerbalizerSection(WarpVerbalizerSection):
    """``dart_verbalizer``: see :class:`openprompt_meta.DartVerbalizer`."""


@dataclass(frozen=True, kw_only=True)
class ProtoVerbalizerSection(_SoftVerbalizerSection):
    """``proto_verbalizer``: see :class:`openprompt_meta.ProtoVerbalizer`."""

    lr: LearningRate = 1e-3
    """Step size for prototypes."""
    mid_dim: Count = 64
    """Size of a prototype."""
    epochs: Steps = 5
    """Steps on the prototypes."""
    multi_verb: Literal["multi", "proto"] = "proto"
    """``multi`` averages with hand-crafted words, as ProtoVerb's paper does; it needs a vocabulary head."""


@dataclass(frozen=True, kw_only=True)
class ManualVerbalizerSection:
    """``manual_verbalizer``: see :class:`openprompt_meta.ManualVerbalizer`."""

    aggregation: Aggregation = "logits"
    """How the words of a class are joined: mean of logits, or of probabilities."""
    multi_token_handler: Literal["first", "max", "mean"] = "first"  # noqa: S105
    """What a word of several tokens counts as."""


VERBALIZER_SECTIONS = {
    "rep_verbalizer": RepVerbalizerSection,
    "warp_verbalizer": WarpVerbalizerSection,
    "dart_verbalizer": DartVerbalizerSection,
    "proto_verbalizer": ProtoVerbalizerSection,
    "manual_verbalizer": ManualVerbalizerSection,
}


@dataclass(frozen=True, kw_only=True)
class MetaPromptingSection:
    """``metaprompting``: one soft prompt and the language model, both meta-learned."""

    tune_model: bool = True
    """Tune the language model too; without it the prompt alone is learned."""
    model_lr: LearningRate = 5e-5
    """Step size for the language model in the inner loop; the prompt's is ``meta.inner_lr``."""
    model_outer_lr: LearningRate = 1e-5
    """Step size for the language model in the outer loop; the prompt's is ``meta.outer_lr``."""
    model_optimizer: Literal["adam", "sgd"] = "adam"
    """What takes the language model's steps in the inner loop."""


@dataclass(frozen=True, kw_only=True)
class VerbalizerTuningSection:
    """``verbalizer_tuning``: for ``method: verbalizer``, how language model and verbalizer are tuned in each task."""

    steps: Steps = 5
    """Steps on the support set."""
    lr: LearningRate = 5e-5
    """Their size."""
    optimizer: Literal["adam", "sgd"] = "adam"
    """What takes them."""


@dataclass(frozen=True, kw_only=True)
class LogisticRegressionSection:
    """``logistic_regression``: scikit-learn's, on mean-pooled features of length one."""

    strength: Positive = 10.0
    """C: the larger, the weaker the penalty on the weights."""


@dataclass(frozen=True, kw_only=True)
class NearestNeighboursSection:
    """``nearest_neighbours``: scikit-learn's, on mean-pooled features by cosine distance."""

    neighbours: Count | None = None
    """How many have a say, the nearer the more; as many as there are examples a class by default."""


@dataclass(frozen=True, kw_only=True)
class FineTuningSection:
    """``fine_tuning``: the language model and a classification head on its mean-pooled features, in each task."""

    steps: Steps = 30
    """Steps on the support set."""
    lr: LearningRate = 5e-5
    """Their size for the language model."""
    head_lr: LearningRate = 1e-2
    """Their size for the head, which starts at random."""


@dataclass(frozen=True, kw_only=True)
class ContrastiveSection:
    """``contrastive``: the language model tuned on pairs of support texts, then a logistic regression (as SetFit)."""

    steps: Steps = 20
    """Steps, each on a batch of pairs, half of them of one class."""
    pairs: Annotated[int, Range(minimum=2)] = 16
    """Pairs of a step."""
    lr: LearningRate = 2e-5
    """Size of a step."""


METHOD_SECTIONS = {
    "metaprompting": MetaPromptingSection,
    "verbalizer_tuning": VerbalizerTuningSection,
    "logistic_regression": LogisticRegressionSection,
    "nearest_neighbours": NearestNeighboursSection,
    "fine_tuning": FineTuningSection,
    "contrastive": ContrastiveSection,
}
VERBALIZER_METHODS = ("metaprompter", "metaprompting", "verbalizer")
"""Methods that the chosen verbalizer is for."""
METHOD_SECTION_OF = {"verbalizer": "verbalizer_tuning"}
"""The section of a method that is not named after it: ``verbalizer`` is which verbalizer."""


@dataclass(frozen=True, kw_only=True)
class MetaSection:
    """``meta``: tasks, the inner and the outer loop."""

    way: Annotated[int, Range(minimum=2)] = 5
    """Classes of a task, N."""
    shot: Count = 5
    """Support examples a class, K."""
    query: Count = 15
    """Query examples a class."""
    inner_lr: LearningRate = 0.1
    """α, the step size of the inner loop."""
    inner_steps: Steps = 5
    """J in meta-training."""
    inner_steps_eval: Steps = 15
    """J in validation and test."""
    inner_parameters: Literal["all", "keys", "prompts"] = "all"
    """What the inner loop adapts of a pool: all of it, or as in ANIL its keys or its prompts alone; the outer loop
    learns both."""
    learner: Literal["maml", "reptile", "bmg"] = "maml"
    """How the outer loop learns: MAML, Reptile, or bootstrapped meta-gradients."""
    bmg_steps: Count = 5
    """L of ``bmg``: how many steps further than J its target is, the last of them on the query set."""
    loss: Literal["mean", "sum"] = "mean"
    """Loss over the examples of a set; the paper writes a sum, its α goes with a mean."""
    first_order: bool = True
    """Drop second derivatives from the meta-gradient, as the paper does."""
    label_embeddings: Literal["adapted", "last_inner_step"] = "adapted"
    """At the meta step: recomputed with the adapted pool, or kept from the last inner step (the paper's text)."""
    meta_batch: Count = 1
    """Tasks a meta-iteration."""
    outer_lr: LearningRate = 1e-3
    """η, the step size of the outer loop."""
    optimizer: Literal["adam", "adamw", "sgd"] = "adam"
    """Optimiser of the outer loop; ``sgd`` with ``learner: reptile`` is Reptile's own step, of size ``outer_lr``."""
    iterations: Count = 3000
    """T, meta-iterations at most; none for methods that learn nothing across tasks."""
    validate_every: Count = 50
    """Iterations between validations; the best checkpoint by validation accuracy is kept."""
    patience: Count | None = None
    """Stop after this many validations without gain; never by default."""
    min_gain: Proportion = 0.0
    """What counts as a gain in validation accuracy, for ``patience``."""
    valid_tasks: Count = 200
    """Tasks of a validation."""
    test_tasks: Count = 300
    """Tasks of the test."""
    test_classes: Literal["test", "valid"] = "test"
    """Classes of the test; ``valid`` while settings are being chosen, so that nobody sees how the others do."""


@dataclass(frozen=True, kw_only=True)
class RunSection:
    """``run``: seeds, where results go, what is shown."""

    seeds: list[Seed] = field(default_factory=lambda: [0])
    """One run for each."""
    folder: str | None = None
    """Run folder; by default ``runs/<data set>/<name of the YAML>``."""
    checkpoint_every: Count = 50
    """Iterations between checkpoints; an interrupted run resumes from the last one."""
    tensorboard: bool = False
    """Write TensorBoard events too."""
    device: str = "auto"
    """``auto`` (CUDA if there is one), ``cpu``, ``cuda``, ``cuda:1`` or ``mps``."""
    threads: Count | None = None
    """CPU threads; by default as many as the process may use."""
    engine: Literal["fast", "plain"] = "fast"
    """``fast`` does the same with less work; ``plain`` is OpenPrompt's own forward pass, one task at a time, padded to
    ``dataset.max_seq_length``: the reference that the other is tested against."""
    tokens_at_once: Steps = 2048
    """Tasks go through the model side by side up to this many tokens of support texts; 0 takes one task at a time."""
    cache: bool = True
    """Keep the texts' query vectors from run to run, in ``$OPENPROMPT_META_CACHE`` or the user's cache folder."""


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """A whole run."""

    method: MethodName = "metaprompter"
    """What is learned, and how; docs/methods.md describes each."""
    plm: PlmSection = field(default_factory=PlmSection)
    dataset: DatasetSection = field(default_factory=DatasetSection)
    template: Literal["prompt_pool_template"] = "prompt_pool_template"
    """Which template; its settings stand in the section of that name."""
    prompt_pool_template: PromptPoolTemplateSection = field(default_factory=PromptPoolTemplateSection)
    verbalizer: Literal[
        "rep_verbalizer", "warp_verbalizer", "dart_verbalizer", "proto_verbalizer", "manual_verbalizer"
    ] = "rep_verbalizer"
    """Which verbalizer; its settings stand in the section of that name."""
    rep_verbalizer: RepVerbalizerSection = field(default_factory=RepVerbalizerSection)
    warp_verbalizer: WarpVerbalizerSection = field(default_factory=WarpVerbalizerSection)
    dart_verbalizer: DartVerbalizerSection = field(default_factory=DartVerbalizerSection)
    proto_verbalizer: ProtoVerbalizerSection = field(default_factory=ProtoVerbalizerSection)
    manual_verbalizer: ManualVerbalizerSection = field(default_factory=ManualVerbalizerSection)
    metaprompting: MetaPromptingSection = field(default_factory=MetaPromptingSection)
    verbalizer_tuning: VerbalizerTuningSection = field(default_factory=VerbalizerTuningSection)
    logistic_regression: LogisticRegressionSection = field(default_factory=LogisticRegressionSection)
    nearest_neighbours: NearestNeighboursSection = field(default_factory=NearestNeighboursSection)
    fine_tuning: FineTuningSection = field(default_factory=FineTuningSection)
    contrastive: ContrastiveSection = field(default_factory=ContrastiveSection)
    meta: MetaSection = field(default_factory=MetaSection)
    run: RunSection = field(default_factory=RunSection)

    @property
    def tunes_the_model(self) -> bool:
        """Whether the method changes the language model's own weights."""
        if self.method == "metaprompting":
            return self.metaprompting.tune_model
        return self.method in ("verbalizer", "fine_tuning", "contrastive")
