"""What every method is to a run: something that evaluates tasks, and where tasks come from."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from openprompt_meta.components import methods
from openprompt_meta.config.schema import RunConfig
from openprompt_meta.data.dataset import TextDataset
from openprompt_meta.data.episodes import Episodes, seeded_chance
from openprompt_meta.encoder.classifier import MaskClassifier
from openprompt_meta.encoder.loading import LoadedMLM
from openprompt_meta.errors import ConfigError
from openprompt_meta.learners.task import Task, TaskLearner
from openprompt_meta.prompts.pool_template import PromptPoolTemplate

# -- Tasks of a split: episodes of indices turned into batches of tensors ---------------------------------------------


class Texts(Protocol):
    """The texts of a split in the form that a method's learner takes."""

    def batch(self, indices: Sequence[int], labels: Sequence[int] | None = None) -> dict[str, Tensor]:
        """The texts at ``indices`` as tensors, with ``label`` ``[B]`` if labels are given."""


@dataclass(frozen=True)
class TaskSource:
    """``source[index]`` is the task of that number, always the same one.

    Attributes:
        episodes: which texts make up which task.
        texts: the split's texts, encoded.
        label_words: words of its classes.
        names: the words of each of its classes as texts, encoded, and where those of which class are; for
            verbalizers that read them. With several texts of a class a task has one of them.
        share_with_names: which part of the tasks has names; those with a class without an example have them in any
            case.
    """

    episodes: Episodes
    texts: Texts
    label_words: Mapping[str, Sequence[str]]
    names: tuple[Texts, Mapping[str, Sequence[int]]] | None = None
    share_with_names: float = 1.0

    def __getitem__(self, index: int) -> Task:
        episode = self.episodes[index]
        names, of_classes = None, []
        needs_names = len(set(episode.support_labels)) < len(episode.classes)  # some have no example
        if self.names is not None and (needs_names or seeded_chance(self.share_with_names, "names", index)):
            texts, places = self.names
            of_classes = [places[name][index % len(places[name])] for name in episode.classes]
            names = texts.batch(of_classes, range(len(episode.classes)))
        return Task(
            index=index,
            classes=episode.classes,
            label_words={name: self.label_words[name] for name in episode.classes if name in self.label_words},
            support=self.texts.batch(episode.support, episode.support_labels),
            query=self.texts.batch(episode.query, episode.query_labels),
            names=names,
            text_ids=(episode.support, episode.query, of_classes),
        )


@dataclass(frozen=True)
class Method:
    """A method ready to be trained, if it is one that trains, and tested.

    Attributes:
        learner: adapts to tasks and evaluates them; a :class:`~openprompt_meta.learners.MetaLearner` if there is
            something to learn across tasks.
        sources: tasks of the splits ``train``, ``valid`` and ``test``, the same for every method of a seed.
        num_parameters: how many numbers are tuned, across tasks or inside one.
        eval_steps: steps inside a task in validation and test.
        classifier: the language model with template and verbalizer, for methods that prompt.
        start: what is done once, before the first iteration of training.
    """

    learner: TaskLearner
    sources: Mapping[str, TaskSource]
    num_parameters: int
    eval_steps: int
    classifier: MaskClassifier | None = None
    start: Callable[[], None] = lambda: None

    @property
    def template(self) -> PromptPoolTemplate:
        """The classifier's."""
        if self.classifier is None:
            raise ConfigError("This method has no template. Choose one that prompts, such as method: metaprompter.")
        template: PromptPoolTemplate = self.classifier.template
        return template


def build_method(
    config: RunConfig, loaded: LoadedMLM, dataset: TextDataset, seed: int, show_progress: bool = False
) -> Method:
    """Put the method that ``config.method`` names together for one seed.

    Args:
        config: the whole run.
        loaded: from ``load_language_model``. It is read, never changed, so seeds and methods may share it.
        dataset: the texts.
        seed: of whatever starts at random, and of the tasks, which are the same for all methods.
        show_progress: draw a progress bar while texts are encoded.
    """
    method: Method = methods()[config.method].load()(config, loaded, dataset, seed, show_progress)
    return method
