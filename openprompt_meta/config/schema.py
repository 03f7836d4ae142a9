"""Every key of a run's YAML, with its type, its default and what it means.

The sections follow OpenPrompt's style (``plm``, ``dataset`` and sections named after the chosen classes) plus ``meta``
for meta-learning and ``run`` for the run itself. Defaults are the paper's values where it has one. Those of methods,
verbalizers and meta-learners are not here: each declares its own (:mod:`openprompt_meta.components`), and
:class:`RunConfig` has a section for every one that is declared. Knows no torch, so that a YAML is checked before
anything loads.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

from annotated_types import Ge, Le
from pydantic import Field, create_model

from openprompt_meta.components import (
    Declaration,
    MethodDeclaration,
    MethodSection,
    VerbalizerSection,
    meta_learners,
    methods,
    readers,
    verbalizers,
)
from openprompt_meta.sections import (
    Choice,
    Count,
    LearningRate,
    NonNegative,
    Positive,
    Proportion,
    Section,
    Seed,
    Steps,
    Text,
    Whole,
    expectation,
    type_of,
)

KNOWN_DATASETS = ("20news", "amazon", "huffpost", "reuters", "hwu64", "liu54")
"""The six of the paper, which are looked for in ``data/`` by themselves."""

S = TypeVar("S", bound=Section)
C = TypeVar("C", bound="_Core")


def lacks_vocabulary_head(model_path: str) -> bool:
    """Whether a language model is known by its name to predict no words."""
    return model_path == "minilm"


def _formats() -> tuple[str, ...]:
    return ("auto", *readers())


class PlmSection(Section):
    """``plm``: the masked language model, frozen unless the method tunes it."""

    model_path: Text = "minilm"
    """``minilm`` or ``minilm-mlm`` (packaged, no hub; the second predicts words), a folder, or a hub name such as
    ``bert-base-uncased``, which is fetched unless it is in the local cache."""
    allow_pickle: bool = False
    """Take weights that there are no safetensors of: a pickle, by PyTorch's restricted loader."""
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


class DatasetSection(Section):
    """``dataset``: the texts, and how their classes are split for meta-learning."""

    name: Text = "demo"
    """``demo`` (ships with the package), one of the six of the paper, or any name for your own data."""
    path: Text | None = None
    """Folder or file of the data, from the working directory; not needed for ``demo``, a hub data set, or those of the
    six in ``data/``."""
    mixture: list[Text] = Field(default_factory=list)
    """Names or paths of several data sets, to learn from all of them: each keeps its own splits, and a task has the
    classes of one. A list in place of the whole section says the same."""
    apart_from: list[Text] = Field(default_factory=list)
    """For a mixture, more data sets whose validation and test classes and texts are left out of the training, as those
    of the mixture's own are: data sets overlap."""
    draw: Literal["evenly", "proportional"] = "evenly"
    """How often a task is of which data set of the mixture: each as often, or by its number of texts."""
    format: Annotated[str, Choice(_formats)] = "auto"
    """How to read it; ``auto`` looks at what is there. ``layout`` is a folder of ``train.jsonl`` and so on, ``table``
    JSONL or CSV, ``authors`` the JSON lines of the paper's authors, ``processor`` OpenPrompt's of that ``name``."""
    text_column: Text = "text"
    """Column of the text in JSONL, CSV and Hugging Face data."""
    label_column: Text = "label"
    """Column of the label."""
    splits: Text = "default"
    """Class split: ``default`` (as the files have it, else the authors'), ``authors``, ``distributional_signatures``,
    ``random``, or a JSON file."""
    split_seed: Seed = 0
    """Seed of ``splits: random``."""
    split_fold: Seed = 0
    """Which of the independent random splits of that seed, for averaging over several."""
    split_counts: list[Steps] | None = None
    """Classes for training, validation and test of ``splits: random``."""
    label_words: Text | None = None
    """JSON or YAML file of label words by class; by default those that ship, or the data's own."""
    drop: list[Literal["empty", "conflicts", "duplicates"]] = Field(default_factory=list)
    """Texts to leave out: empty ones, those that stand in two splits or carry two labels, repeated ones."""
    min_samples: Steps = 0
    """Leave out classes with fewer texts than this; by default a class too small for the tasks is an error."""
    max_samples: Count | None = None
    """Keep this many texts of a class at most, drawn by ``split_seed``: where tasks need no more, less is read."""
    hub_config: Text | None = None
    """Configuration of a Hugging Face data set that has several."""
    max_seq_length: Annotated[Whole, Ge(8)] = 220
    """Length budget in tokens, template and prompt included; longer texts are cut."""


class PromptPoolTemplateSection(Section):
    """``prompt_pool_template``: see :class:`openprompt_meta.PromptPoolTemplate`."""

    text: Text = '{"placeholder": "text_a"} {"pool"} Topic is {"mask"}.'
    """Template text; ``{"pool"}`` marks the prompt."""
    num_prompts: Count = 8
    """Prompts in the pool, K."""
    prompt_length: Count = 8
    """Positions of a prompt, L_p."""
    top_n: Count | None = None
    """Attend to the best N prompts only; to all of them by default, as in the paper."""
    init: Literal["label_words", "vocab", "random", "general"] = "label_words"
    """Where prompts start: label words of the meta-training classes, the vocabulary, at random, or ``general``: the
    pool that ships, which has one prompt of 8 positions for ``minilm`` with ``features: mean`` (which ``auto`` is
    there) and ``as_prefix: true``."""
    random_range: NonNegative = 0.5
    """For ``init: random``, uniform in plus and minus this."""
    attention: Literal["dot", "cosine"] = "dot"
    """How the pool is asked: by the inner product with the query (the paper), or by the cosine with the query less the
    mean query of the meta-training texts, in which texts differ more."""
    attention_temperature: Positive | None = None
    """What the attention's scores are multiplied by; 1 / sqrt(d_o) for ``dot`` and 10 for ``cosine`` by default."""
    keys: Literal["normal", "kmeans"] = "normal"
    """Where the pool's keys start: drawn from a normal distribution (the paper), or at the centres of k-means of the
    meta-training texts' queries."""
    features: Literal["mask", "mean", "both", "auto"] = "mask"
    """What is read of a text, to be classified and to ask the pool: the [MASK]'s hidden state (the paper), the mean
    over all tokens, or both; ``auto`` takes the mean of a sentence encoder, which has no trained [MASK]."""
    query: Literal["features", "embeddings", "first_layer"] = "features"
    """What a text asks the pool with: its features without a prompt, for which it is read once more (the paper), or
    what takes less: the mean over its tokens' input embeddings, or over the first layer's output, of which the fast
    engine computes no more than that layer, for models of BERT's kind."""
    as_prefix: bool = False
    """The prompt attends to itself alone, and the text, read as if there were no prompt in it, to itself and the
    prompt: with one prompt that is computed once for all texts, which then take hardly longer than without it. Long
    texts are still cut as if it stood in them: ``dataset.max_seq_length`` counts its positions."""
    prefix_strength: Annotated[Positive, Le(1)] = 1.0
    """What a position of such a prompt counts for beside a token, when a text attends to both: below 1 a prompt steers
    without drowning what the model knows by itself, most of all in short texts."""


class MetaSection(Section):
    """``meta``: tasks, the inner and the outer loop."""

    way: Annotated[Whole, Ge(2)] = 5
    """Classes of a task, N."""
    shot: Count = 5
    """Support examples a class, K."""
    query: Count = 15
    """Query examples a class."""
    train_ways: list[Steps] = Field(default_factory=list)
    """Two numbers, for meta-training on tasks of many sizes: the fewest and the most classes. By default ``way``."""
    train_shots: list[Steps] = Field(default_factory=list)
    """The same for support examples a class; 0 is zero-shot. By default ``shot``."""
    train_texts: Count = 64
    """Texts of such a task at most, support and query together."""
    train_names: Proportion = 1.0
    """In meta-training, the part of the tasks that bring the words of their classes, for verbalizers that read them:
    below 1, prompts are also learned for classes whose names say nothing."""
    inner_lr: LearningRate = 0.1
    """α, the step size of the inner loop."""
    inner_steps: Steps = 5
    """J in meta-training."""
    inner_steps_eval: Steps = 15
    """J in validation and test."""
    inner_parameters: Literal["all", "keys", "prompts"] = "all"
    """What the inner loop adapts of a pool: all of it, or as in ANIL its keys or its prompts alone; the outer loop
    learns both."""
    learner: Annotated[str, Choice(meta_learners)] = "maml"
    """How the outer loop learns: MAML, Reptile, or bootstrapped meta-gradients."""
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
    outer_decay: Literal["none", "linear", "tenths"] = "none"
    """Whether η stays as it is, falls to 0 in a straight line over ``iterations``, or to a tenth after each third of
    them."""
    outer_warmup: Proportion = 0.0
    """The part of ``iterations`` in which η rises from 0 in a straight line, before it stays or falls."""
    outer_clip: Positive | None = None
    """A longer meta-gradient is shortened to this; never by default."""
    weight_decay: NonNegative | None = None
    """The outer optimiser's; its own by default, which is 0.01 for ``adamw`` and none for the others."""
    scalar_lr: LearningRate = 1e-2
    """The same for the scalars that a verbalizer's ``learn`` names: of their logarithms, and of λ's logit."""
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


class RunSection(Section):
    """``run``: seeds, where results go, what is shown."""

    seeds: list[Seed] = Field(default_factory=lambda: [0])
    """One run for each."""
    folder: Text | None = None
    """Run folder; by default ``runs/<data set>/<name of the YAML>``, and behind it the overrides of the command line;
    if another configuration has been run there, also the keys in which this one differs."""
    checkpoint_every: Count = 50
    """Iterations between checkpoints; an interrupted run resumes from the last one."""
    loggers: list[Literal["tensorboard", "mlflow", "wandb", "trackio"]] = Field(default_factory=list)
    """Where numbers go besides the run folder, each by its own library; docs/how-to/loggers.md."""
    tensorboard: bool = False
    """Older spelling of ``loggers: [tensorboard]``."""
    device: Text = "auto"
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

    @property
    def all_loggers(self) -> list[str]:
        """Those that were asked for, however it is spelt."""
        return [*self.loggers, *(["tensorboard"] if self.tensorboard else [])]


class _Core(Section):
    """What every run has; :data:`RunConfig` adds a section for each component that is declared."""

    method: Annotated[str, Choice(methods)] = "metaprompter"
    """What is learned, and how; docs/methods.md describes each."""
    plm: PlmSection = PlmSection()
    dataset: DatasetSection = DatasetSection()
    prompt_pool_template: PromptPoolTemplateSection = PromptPoolTemplateSection()
    verbalizer: Annotated[str, Choice(verbalizers)] = "rep_verbalizer"
    """Which verbalizer; its settings stand in the section of that name."""
    meta: MetaSection = MetaSection()
    run: RunSection = RunSection()

    def section_of(self, declaration: Declaration) -> Section:
        """A component's settings."""
        found: Section = getattr(self, declaration.section, None) or declaration.config()
        return found

    def settings(self, kind: type[S]) -> S:
        """The section of that class, for the component that it belongs to."""
        (found,) = (self.section_of(one) for one in _components() if one.config is kind)
        assert isinstance(found, kind)  # noqa: S101 - for the type checker
        return found

    def value_at(self, path: str) -> Any:
        """The value of the key with that dotted path."""
        section, _, key = path.rpartition(".")
        return getattr(getattr(self, section) if section else self, key)

    def with_values(self: C, values: Mapping[str, Any]) -> C:
        """The same but for some keys by their dotted paths. As little is checked as by pydantic's ``model_copy``."""
        sections: dict[str, dict[str, Any]] = {}
        top: dict[str, Any] = {}
        for path, value in values.items():
            section, _, key = path.rpartition(".")
            (sections.setdefault(section, {}) if section else top)[key] = value
        changed = {name: getattr(self, name).model_copy(update=keys) for name, keys in sections.items()}
        return self.model_copy(update={**top, **changed})

    @property
    def method_declaration(self) -> MethodDeclaration:
        """What is true of the chosen method."""
        return methods()[self.method]

    @property
    def method_section(self) -> MethodSection:
        """Settings of the chosen method."""
        section = self.section_of(self.method_declaration)
        assert isinstance(section, MethodSection)  # noqa: S101 - for the type checker
        return section

    @property
    def verbalizer_section(self) -> VerbalizerSection:
        """Settings of the chosen verbalizer."""
        section = self.section_of(verbalizers()[self.verbalizer])
        assert isinstance(section, VerbalizerSection)  # noqa: S101 - for the type checker
        return section

    @property
    def tunes_model(self) -> bool:
        """Whether the method changes the language model's own weights."""
        return self.method_section.tunes_model

    @property
    def uses_words(self) -> bool:
        """Whether label words make a difference to predictions."""
        return self.method_declaration.uses_verbalizer and self.verbalizer_section.uses_words

    @property
    def reads_names(self) -> bool:
        """Whether tasks bring the words of their classes as texts."""
        return self.method_declaration.uses_verbalizer and self.verbalizer_section.reads_names

    @property
    def knows_classes_by_words(self) -> bool:
        """Whether a class needs no example, its words being read."""
        return self.method_declaration.uses_verbalizer and self.verbalizer_section.knows_classes_by_words

    @property
    def transductive(self) -> bool:
        """Whether a prediction depends on the texts that are predicted along with it."""
        by_verbalizer = self.method_declaration.uses_verbalizer and self.verbalizer_section.transductive
        return by_verbalizer or self.method_section.transductive

    @property
    def sections_in_use(self) -> frozenset[str]:
        """The components' sections that make a difference to this run."""
        method = self.method_declaration
        names = {method.section, *method.also_uses}
        if method.uses_verbalizer:
            names.add(self.verbalizer)
        if method.trains_across_tasks:
            names.add(meta_learners()[self.meta.learner].section)
        return frozenset(names & component_sections().keys())


def _components() -> list[Declaration]:
    return [*verbalizers().values(), *methods().values(), *meta_learners().values()]


def component_sections() -> Mapping[str, type[Section]]:
    """The sections that components declare, by name; those without keys have none."""
    return {one.section: one.config for one in _components() if one.config.model_fields}


if TYPE_CHECKING:
    RunConfig = _Core
else:
    _SECTIONS: dict[str, Any] = {name: (kind, kind()) for name, kind in component_sections().items()}
    RunConfig = create_model("RunConfig", __base__=_Core, __module__=__name__, __doc__="A whole run.", **_SECTIONS)


# -- the same as data: where each key stands, its type, its default and what it means ---------------------------------


@dataclass(frozen=True)
class Key:
    """One key. ``path`` is dotted (``meta.inner_lr``); ``type`` is in words (``a number above 0``)."""

    path: str
    type: str
    default: object
    doc: str
    hint: Any = field(repr=False, compare=False)

    @property
    def section(self) -> str:
        """The section it stands in; empty at the top level."""
        return self.path.rpartition(".")[0]

    @property
    def name(self) -> str:
        """Its name within the section."""
        return self.path.rpartition(".")[2]


@cache
def describe() -> tuple[Key, ...]:
    """Every key: those of the top level, then section by section in the order of the schema."""
    sections = section_types()
    top = [key for key in _keys_of(RunConfig, "") if key.name not in sections]
    return (*top, *(key for name, owner in sections.items() for key in _keys_of(owner, f"{name}.")))


@cache
def section_types() -> dict[str, type[Section]]:
    """The class of each section by its name."""
    hints = {name: info.annotation for name, info in RunConfig.model_fields.items()}
    return {name: hint for name, hint in hints.items() if isinstance(hint, type) and issubclass(hint, Section)}


@cache
def section_keys(section: str) -> dict[str, Key]:
    """The keys of a section by name; those of the top level for the empty string."""
    return {key.name: key for key in describe() if key.section == section}


def key_at(path: str) -> Key | None:
    """The key with that dotted path."""
    section, _, name = path.rpartition(".")
    return section_keys(section).get(name)


def _keys_of(owner: type[Section], prefix: str) -> Iterator[Key]:
    for name, info in owner.model_fields.items():
        hint = type_of(owner, name)
        doc = " ".join((info.description or "").split())
        if isinstance(hint, type) and issubclass(hint, Section):
            continue
        yield Key(f"{prefix}{name}", expectation(hint), info.get_default(call_default_factory=True), doc, hint)
