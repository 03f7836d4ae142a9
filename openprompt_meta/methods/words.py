"""DS, MLADA and HATT: what is learned across tasks is how to look at a text's words."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from openprompt_meta.config.schema import RunConfig
from openprompt_meta.data.dataset import Split, TextDataset
from openprompt_meta.data.episodes import seeded_sample
from openprompt_meta.encoder.loading import LoadedMLM
from openprompt_meta.encoder.words import Vocabulary, WordTexts, tokens_of_model, words_of_file
from openprompt_meta.errors import ConfigError
from openprompt_meta.files import default_cache_folder
from openprompt_meta.learners.episodic import EpisodicLearner
from openprompt_meta.learners.hatt import Hatt
from openprompt_meta.learners.task import Task
from openprompt_meta.learners.word_attention import DistributionalSignatures, Mlada, MladaLearner, WordFrequencies
from openprompt_meta.methods import DsSection, HattSection, MladaSection, WordSection
from openprompt_meta.methods.building import episodic_options, started_at_random, task_sources
from openprompt_meta.methods.method import Method

# -- What they have in common: words of all splits by number, and tasks of them ---------------------------------------


def vocabulary_of(config: RunConfig, loaded: LoadedMLM, dataset: TextDataset, show_progress: bool) -> Vocabulary:
    """The words of a data set, on the language model's device, as the method's section asks for them."""
    section = config.method_section
    assert isinstance(section, WordSection)  # noqa: S101 - for the type checker
    texts = [split.texts for split in dataset]
    longest = config.dataset.max_seq_length
    if section.word_vectors is None:
        vocabulary = tokens_of_model(texts, loaded, longest, show_progress)
    else:
        cache = default_cache_folder() if config.run.cache else None
        vocabulary = words_of_file(texts, section.word_vectors, longest, cache, show_progress)
    if section.vector_length is not None:
        vocabulary = vocabulary.of_mean_length(section.vector_length, among=dataset.train.texts)
    return Vocabulary(vocabulary.vectors.to(loaded.model.device), vocabulary.rows)


def _method(
    config: RunConfig, dataset: TextDataset, seed: int, vocabulary: Vocabulary, learner: EpisodicLearner
) -> Method:
    def encode(texts: Sequence[str]) -> WordTexts:
        return WordTexts(vocabulary.rows[tuple(texts)], vocabulary.vectors.device)

    sources = task_sources(config, dataset, seed, encode, reads_names=False)
    tuned = sum(parameter.numel() for parameter in learner.meta_parameters.parameters())
    return Method(learner, sources, tuned, eval_steps=0)


# -- DS ---------------------------------------------------------------------------------------------------------------


def build_ds(
    config: RunConfig, loaded: LoadedMLM, dataset: TextDataset, seed: int, show_progress: bool = False
) -> Method:
    """Attention by distributional signatures; arguments as for ``build_method``."""
    section = config.settings(DsSection)
    vocabulary = vocabulary_of(config, loaded, dataset, show_progress)
    vectors, train = vocabulary.vectors, dataset.train
    frequencies = WordFrequencies(vocabulary.rows[train.texts], train.labels, len(vectors))
    network = started_at_random(
        seed,
        lambda: DistributionalSignatures(vectors, frequencies, section.epsilon, section.hidden, section.dropout),
        loaded.model.device,
    )
    learner = EpisodicLearner(network, *episodic_options(config, network, seed))
    return _method(config, dataset, seed, vocabulary, learner)


# -- MLADA ------------------------------------------------------------------------------------------------------------


def build_mlada(
    config: RunConfig, loaded: LoadedMLM, dataset: TextDataset, seed: int, show_progress: bool = False
) -> Method:
    """Attention against an adversary; arguments as for ``build_method``."""
    section = config.settings(MladaSection)
    vocabulary = vocabulary_of(config, loaded, dataset, show_progress)
    network = started_at_random(
        seed,
        lambda: Mlada(
            vocabulary.vectors,
            config.dataset.max_seq_length,
            section.mask_padding,
            section.hidden,
            section.dropout,
        ),
        loaded.model.device,
    )
    train = dataset.train
    texts = WordTexts(vocabulary.rows[train.texts], vocabulary.vectors.device)
    chosen = _first_texts if section.source == "first" else _texts_of_other_classes(train, seed)
    learner = MladaLearner(
        network,
        *episodic_options(config, network, seed),
        sources=lambda task: texts.batch(chosen(task, len(task.query["label"]))),
    )
    return _method(config, dataset, seed, vocabulary, learner)


def _texts_of_other_classes(train: Split, seed: int) -> Callable[[Task, int], Sequence[int]]:
    """Which training texts stand for the source domain of a task: some of the classes that are not in it."""

    def drawn(task: Task, count: int) -> list[int]:
        own = set(task.classes)
        others = [index for name in train.classes if name not in own for index in train.indices[name]]
        if not others:
            raise ConfigError(
                f"MLADA tells a task's texts from those of other training classes, and the {len(own)} of a task are "
                "all that there are. Lower meta.way, or use mlada.source: first."
            )
        return seeded_sample(others, min(count, len(others)), "source", seed, task.index)

    return drawn


def _first_texts(task: Task, count: int) -> range:
    """The first of the training set, as in the authors' code."""
    return range(count)


# -- HATT -------------------------------------------------------------------------------------------------------------


def build_hatt(
    config: RunConfig, loaded: LoadedMLM, dataset: TextDataset, seed: int, show_progress: bool = False
) -> Method:
    """Attention to examples and features; arguments as for ``build_method``."""
    section, meta = config.settings(HattSection), config.meta
    vocabulary = vocabulary_of(config, loaded, dataset, show_progress)
    network = started_at_random(
        seed,
        lambda: Hatt(vocabulary.vectors, meta.shot, section.filters, section.dropout, section.feature_scores),
        loaded.model.device,
    )
    learner = EpisodicLearner(network, *episodic_options(config, network, seed))
    way = min([section.train_way, *map(len, dataset.train.domains or (dataset.train.classes,))])
    if way != meta.way:
        sizes = {
            "train_ways": [way, way],
            "train_shots": [meta.shot] * 2,
            "train_texts": way * (meta.shot + meta.query),
        }
        config = config.with_values({f"meta.{name}": value for name, value in sizes.items()})
    return _method(config, dataset, seed, vocabulary, learner)
