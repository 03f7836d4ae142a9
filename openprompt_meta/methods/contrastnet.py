"""ContrastNet: the encoder is tuned across tasks, and a task is predicted by its class means."""

from __future__ import annotations

from collections.abc import Sequence

from openprompt_meta.config.schema import RunConfig
from openprompt_meta.data.augmentation import (
    Augmentation,
    by_paraphrases,
    by_synonyms,
    read_paraphrases,
    read_synonyms,
    swapped_and_shortened,
)
from openprompt_meta.data.dataset import TextDataset
from openprompt_meta.data.episodes import domain_of, seeded_sample
from openprompt_meta.encoder.loading import LoadedMLM
from openprompt_meta.learners.contrastnet import ContrastNet, ContrastNetLearner, Views
from openprompt_meta.learners.task import Batch, Task
from openprompt_meta.methods import ContrastNetSection
from openprompt_meta.methods.baselines import BareTexts
from openprompt_meta.methods.building import episodic_options, task_sources
from openprompt_meta.methods.language_model import own_copy, product_precision
from openprompt_meta.methods.method import Method


def build_contrastnet(
    config: RunConfig, loaded: LoadedMLM, dataset: TextDataset, seed: int, show_progress: bool = False
) -> Method:
    """The encoder, by contrast; arguments as for ``build_method``."""
    section, meta = config.settings(ContrastNetSection), config.meta
    augmented = _augmentation(section)
    loaded = own_copy(loaded)
    encoder = loaded.model.base_model
    network = ContrastNet(encoder, section.temperature, config.plm.dropout, product_precision(config))
    learner = ContrastNetLearner(
        network,
        *episodic_options(config, network, seed),
        views=lambda task: _views(config, loaded, dataset, seed, augmented, task),
        temperatures=(section.text_temperature, section.task_temperature),
        start=section.share,
        fading=section.fading * meta.meta_batch,
        task_weight=section.task_weight,
    )
    sources = task_sources(
        config,
        dataset,
        seed,
        lambda texts: BareTexts(texts, loaded, config.dataset.max_seq_length),
        reads_names=False,
    )
    return Method(learner, sources, sum(parameter.numel() for parameter in encoder.parameters()), eval_steps=0)


def _augmentation(section: ContrastNetSection) -> Augmentation:
    file = section.augmentation_file
    if section.augmentation == "swap_delete" or file is None:
        return swapped_and_shortened
    if section.augmentation == "synonyms":
        return by_synonyms(read_synonyms(file))
    return by_paraphrases(read_paraphrases(file))


def _views(
    config: RunConfig, loaded: LoadedMLM, dataset: TextDataset, seed: int, augmented: Augmentation, task: Task
) -> Views:
    """Texts and tasks of the training classes for a step, drawn by its number alone, and augmented."""
    section, meta, train = config.settings(ContrastNetSection), config.meta, dataset.train
    key = (seed, task.index)

    def pair(indices: Sequence[int], *own: str | int) -> tuple[Batch, Batch]:
        texts = [train.texts[i] for i in indices]
        forms = (texts, [augmented(text, *own, *key, i) for i, text in enumerate(texts)])
        rows = range(len(texts))
        first, second = (BareTexts(form, loaded, config.dataset.max_seq_length).batch(rows) for form in forms)
        return first, second

    texts = seeded_sample(range(len(train)), min(section.texts, len(train)), "unlabelled texts", *key)
    tasks = []
    for number in range(section.tasks):
        own = ("unlabelled task", number)
        classes = seeded_sample(sorted(domain_of(train, (*own, *key))), meta.way, *own, *key)
        indices = [i for name in classes for i in seeded_sample(train.indices[name], meta.shot, *own, *key, name)]
        tasks.append(pair(indices, *own))
    return Views(pair(texts, "unlabelled texts"), tasks)
