"""`MetaPromptClassifier`: from a few labelled texts to a classifier, as a scikit-learn estimator."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import NotFittedError

from openprompt_meta.classifier.adaptation import (
    FittedTask,
    Support,
    adapt_pool,
    known_texts,
    leave_one_out,
    names_to_read,
    words_of,
)
from openprompt_meta.classifier.artefact import (
    Stored,
    is_artefact,
    local_folder,
    read_artefact,
    upload,
    write_artefact,
)
from openprompt_meta.classifier.inputs import (
    Label,
    checked_label_words,
    checked_labels,
    checked_metrics,
    checked_texts,
    conflicting_texts,
    kind_of,
)
from openprompt_meta.classifier.prediction import Explanation, Predictor
from openprompt_meta.classifier.pretrained import (
    Changes,
    MetaLearned,
    base_model_of,
    changed,
    fresh,
    of_run,
    require_on_this_machine,
    takes_shipped_pool,
)
from openprompt_meta.errors import ConfigError, DataError, OpenPromptMetaError, VerbalizerError
from openprompt_meta.pools import GENERAL
from openprompt_meta.runs.folder import RunFolder

logger = logging.getLogger(__name__)

# Texts that are tokenised at a time: what a call keeps in memory beside its results does not grow with its texts.
_WINDOW = 2048

_building = threading.Lock()


REJECTED: tuple[str, int] = ("none of these", -1)
"""What texts of no class are called, where classes are strings and where they are numbers."""


def rejected_as(classes: Sequence[Label]) -> Label:
    """What texts that are of none of these classes are called; no class has that name."""
    found = REJECTED[0] if isinstance(classes[0], str) else REJECTED[1]
    if found in classes:
        raise DataError(f"A class is called {found!r}, which is what reject_below calls texts of no class. Rename it.")
    return found


class NotFitted(OpenPromptMetaError, NotFittedError):  # noqa: N818 - scikit-learn's name for it
    """A classifier was asked before it was given examples."""


class MetaPromptClassifier(ClassifierMixin, BaseEstimator):
    """Classifies text from a handful of examples a class, with a frozen language model and a meta-learned pool.

    ``MetaPromptClassifier()`` starts from the pool that ships, on the packaged encoder; :meth:`from_run` makes one
    that starts from a run's, :meth:`from_pretrained` loads a saved one. With another ``base_model`` alone it starts
    from a pool that has learned nothing: plain prompt tuning, a baseline to compare with.

    It is a scikit-learn classifier whose ``X`` is a list of strings. Predicting changes nothing in it, so threads may
    share one; a call of :meth:`fit` takes effect for the calls that start after it. Predictions of a text may differ
    in the last bits with the texts that go through the model in the same batch.

    Args:
        artefact: a run folder of ``openprompt-meta train``, a folder of :meth:`save_pretrained`, or ``None``.
        base_model: the language model by name or folder, if it is elsewhere than it was. It must be the same one. What
            a saved classifier itself names is not fetched from the model hub; what is named here is.
        seed: which of a run's seeds, and the seed of whatever is random in :meth:`fit`; the artefact's if ``None``.
        inner_steps: gradient steps of :meth:`fit`, J; the run's ``inner_steps_eval`` if ``None``.
        inner_lr: their size, α; the run's if ``None``.
        mix_lambda: λ, from 1 (label embeddings alone) to 0 (label words alone, which need a model with a vocabulary
            head); the run's if ``None``.
        adapt_examples: support examples that take part in the gradient steps at most, which bounds their memory; label
            embeddings are computed from all of them.
        reject_below: :meth:`predict` says :data:`REJECTED` of a text whose most probable class is less probable than
            this: it is likely of none of the classes. By default every text gets a class.
        batch_tokens: tokens that go through the model at a time in prediction, padding included.
        device: ``cpu``, ``cuda``, …; the run's if ``None``.
        allow_pickle: whether to take a language model that there are no safetensors of; the run's if ``None``, and
            never by the word of a saved classifier.

    Attributes:
        classes_: the classes, sorted; columns of :meth:`predict_proba`.

    Example::

        classifier = MetaPromptClassifier.from_run("runs/demo/demo")
        classifier.fit(["will it rain", "is it cold", "play jazz"], ["weather", "weather", "music"])
        classifier.predict(["do i need an umbrella"])
    """

    # Not in __init__, where scikit-learn allows parameters alone.
    _meta: tuple[object, MetaLearned] | None = None
    _task: FittedTask | None = None
    _live: tuple[FittedTask, Predictor] | None = None
    _examples: tuple[list[str], list[Label], dict[str, Any] | None] | None = None
    _metrics: Mapping[str, float] = MappingProxyType({})

    def __init__(
        self,
        artefact: str | os.PathLike[str] | None = None,
        *,
        base_model: str | os.PathLike[str] | None = None,
        seed: int | None = None,
        inner_steps: int | None = None,
        inner_lr: float | None = None,
        mix_lambda: float | None = None,
        adapt_examples: int = 256,
        reject_below: float | None = None,
        batch_tokens: int = 2048,
        device: str | None = None,
        allow_pickle: bool | None = None,
    ) -> None:
        self.artefact = artefact
        self.base_model = base_model
        self.seed = seed
        self.inner_steps = inner_steps
        self.inner_lr = inner_lr
        self.mix_lambda = mix_lambda
        self.adapt_examples = adapt_examples
        self.reject_below = reject_below
        self.batch_tokens = batch_tokens
        self.device = device
        self.allow_pickle = allow_pickle

    # -- where it comes from ------------------------------------------------------------------------------------------

    @classmethod
    def from_run(cls, run: str | os.PathLike[str], seed: int | None = None, **settings: Any) -> MetaPromptClassifier:
        """A classifier to be fitted, with the best pool of a trained run.

        Args:
            run: the run folder.
            seed: which of its seeds; the first if ``None``.
            settings: other arguments of the constructor.

        Raises:
            RunError: it is not a run folder, has no such seed, or its best checkpoint is missing or damaged.
            ModelError: the run's language model cannot be loaded.
        """
        classifier = cls(run, seed=seed, **settings)
        classifier._meta = (classifier._source(), of_run(run, seed, classifier._changes()))
        return classifier

    @classmethod
    def from_pretrained(
        cls, artefact: str | os.PathLike[str], revision: str | None = None, token: str | None = None, **settings: Any
    ) -> MetaPromptClassifier:
        """The classifier that :meth:`save_pretrained` or :meth:`push_to_hub` wrote, with its language model.

        Args:
            artefact: its folder, or a name on the model hub such as ``user/name``.
            revision: branch, tag or commit on the hub.
            token: for the hub; the one that is logged in by default.
            settings: other arguments of the constructor. They hold for what is fitted from here on; what is fitted
                already predicts as it was saved.

        Raises:
            ArtefactError: there is none, or it is damaged, of another kind, or of a later version.
            ModelError: the language model cannot be loaded, or is not the one that the prompts were learned on.
        """
        folder = local_folder(artefact, revision, token)
        classifier = cls(folder, **settings)
        stored = classifier._read_artefact(folder)
        # These settings say where the model is and how to read it; the others are for learning.
        moved = Changes(
            base_model=classifier.base_model, device=classifier.device, allow_pickle=classifier.allow_pickle
        )
        meta = replace(stored.meta, config=changed(stored.meta.config, moved))
        base_model_of(meta)
        classifier._meta = (classifier._source(), classifier._changed(stored.meta))
        classifier._metrics = dict(stored.metrics)
        if stored.task is not None:
            classifier._task = task = replace(stored.task, meta=meta)
            classifier._live = (task, classifier._new_predictor(task))
        return classifier

    def save_pretrained(
        self,
        folder: str | os.PathLike[str],
        *,
        keep_texts: bool = True,
        metrics: Mapping[str, float] | None = None,
    ) -> None:
        """Write the classifier to a folder of JSON and safetensors, without its language model.

        A classifier that is there already is replaced once the new one is complete. Before :meth:`fit`, the pool alone
        is saved, to be fitted later.

        Args:
            folder: where to; made if need be.
            keep_texts: whether to keep the examples. Without them nothing can be added by :meth:`partial_fit`, and
                :meth:`explain` has no nearest examples; predictions are the same.
            metrics: how well it does, for the model card and for those who load it.

        Raises:
            ArtefactError: the folder holds something else, or cannot be written; what was there is as it was.
        """
        write_artefact(folder, self._stored(keep_texts, metrics))

    def push_to_hub(
        self,
        repo_id: str,
        *,
        keep_texts: bool = False,
        metrics: Mapping[str, float] | None = None,
        private: bool | None = None,
        token: str | None = None,
        revision: str | None = None,
        commit_message: str = "Save the classifier",
        create_pr: bool = False,
    ) -> str:
        """Save the classifier and upload it to the model hub.

        Args:
            repo_id: ``user/name``; made if need be.
            keep_texts: as in :meth:`save_pretrained`, but without them by default: what is published stays published.
            metrics: as in :meth:`save_pretrained`.
            private: whether a new repository is private; the hub's default if ``None``.
            token: for the hub; the one that is logged in by default.
            revision: branch to upload to.
            commit_message: of the upload.
            create_pr: open a pull request instead.

        Returns:
            Where it is on the hub.

        Raises:
            ArtefactError: the hub cannot be reached or refuses.
        """
        return upload(
            self._stored(keep_texts, metrics),
            repo_id,
            private=private,
            token=token,
            revision=revision,
            commit_message=commit_message,
            create_pr=create_pr,
        )

    def export_onnx(self, folder: str | os.PathLike[str]) -> None:
        """Write the fitted classifier as one ONNX graph, with its tokenizer and the names of its classes beside it.

        What it gives is equal to :meth:`predict_proba` within 1e-4. It needs the package ``onnx``.

        Args:
            folder: where to; made if need be.

        Raises:
            NotFitted: there are no classes yet.
            ArtefactError: the classifier cannot be said exactly in a graph, with the reason.
        """
        from openprompt_meta.classifier.export import export_onnx

        export_onnx(self._predictor(self._fitted()), Path(folder))

    def _stored(self, keep_texts: bool, metrics: Mapping[str, float] | None) -> Stored:
        task = self._task
        measured = self._metrics if metrics is None else checked_metrics(metrics)
        if task is None:
            return Stored(self._meta_learned(), None, measured)
        if not keep_texts:
            adapted = replace(task.adapted, features=task.adapted.features[:0])
            task = replace(task, texts=None, adapted=adapted)
        return Stored(task.meta, task, measured)

    # -- learning -----------------------------------------------------------------------------------------------------

    def fit(
        self,
        texts: Any,
        labels: Any,
        label_words: Mapping[Any, str | Sequence[str]] | None = None,
        classes: Any = None,
        label_descriptions: Mapping[Any, str] | None = None,
    ) -> MetaPromptClassifier:
        """Learn classes from examples, forgetting what was fitted before.

        A copy of the meta-learned pool is adapted to the examples; the pool itself stays as it is.

        Args:
            texts: strings, at least one for each of two or more classes.
            labels: the class of each: strings, or whole numbers.
            label_words: a word or words for each class, where words contribute; by default those in the class's name,
                if it says something: ``book_hotel`` does, ``3`` and ``label_a`` do not.
            classes: all classes, if some of them (or all: zero-shot, with no texts) have no example. They are then
                known by their words alone, which the verbalizer must read, as that of the pool which ships does.
            label_descriptions: the same for classes that are better said in a sentence each.

        Raises:
            DataError: texts or labels that cannot be learned from, saying which. One text with two labels is refused:
                among so few examples it is a mistake.
            VerbalizerError: label words are given and contribute nothing.
        """
        label_words = _with_descriptions(label_words, label_descriptions)
        if classes is None:
            return self._take(self._learned(*self._checked(texts, labels), label_words))
        known = checked_labels(classes)
        zero_shot = all(given is None or (isinstance(given, list | tuple) and not given) for given in (texts, labels))
        examples = ([], []) if zero_shot else self._checked(texts, labels)
        unknown = [label for label in dict.fromkeys(examples[1]) if label not in known]
        if unknown:
            raise DataError(f"Labels {unknown[:8]} are not among the classes {known[:20]}.")
        return self._take(self._learned(*examples, label_words, known))

    def partial_fit(
        self,
        texts: Any,
        labels: Any,
        classes: Any = None,
        label_words: Mapping[Any, str | Sequence[str]] | None = None,
    ) -> MetaPromptClassifier:
        """Add examples, of classes known or new, and learn from all of them.

        The same as one :meth:`fit` with all examples in their order; without inner steps, as with the pool that
        ships, no text is read again. As long as there are examples of one class only,
        they are kept, and nothing can be predicted.

        Args:
            texts: strings.
            labels: their classes.
            classes: if given, a label that is not among them is refused. A class is known from its first example on.
            label_words: words of classes that have none yet, for λ below 1.

        Raises:
            DataError: as :meth:`fit`; or the classifier was loaded without the texts it was fitted to.
        """
        new_texts, new_labels = self._checked(texts, labels)
        if classes is not None:
            allowed = checked_labels(classes)
            unknown = [label for label in dict.fromkeys(new_labels) if label not in allowed]
            if unknown:
                raise DataError(f"Labels {unknown[:8]} are not among the classes {allowed[:20]}.")
        old_texts, old_labels, words = self._examples_so_far()
        all_texts, all_labels = self._checked([*old_texts, *new_texts], [*old_labels, *new_labels])
        if label_words is not None:
            words = {**(words or {}), **{str(name): given for name, given in label_words.items()}}
        known = () if self._task is None else self._task.classes  # some of them by their words alone
        if len({*all_labels, *known}) < 2:
            self._examples = (all_texts, all_labels, words)
            return self
        return self._take(self._learned(all_texts, all_labels, words, known, self._task))

    def _take(self, task: FittedTask) -> MetaPromptClassifier:
        predictor = self._new_predictor(task)
        self._task, self._live = task, (task, predictor)
        self._examples = None
        self._metrics = {}
        return self

    def _examples_so_far(self) -> tuple[list[str], list[Label], dict[str, Any] | None]:
        if self._examples is not None:
            return self._examples
        task = self._task
        if task is None:
            return [], [], None
        if task.texts is None:
            raise DataError(
                "The classifier was saved without the texts it was fitted to (keep_texts=False), so none can be added "
                "to them. Fit it again with all examples."
            )
        words = None if task.label_words is None else dict(task.label_words)
        return list(task.texts), [task.classes[label] for label in task.labels], words

    def _checked(self, texts: Any, labels: Any) -> tuple[list[str], list[Label]]:
        if labels is None:
            raise DataError("This classifier requires y to be passed, but the target y is None: labels are needed.")
        checked, own = checked_texts(texts, empty_texts=False), checked_labels(labels)
        if len(checked) != len(own):
            raise DataError(
                f"There are {len(checked)} texts and {len(own)} labels (inconsistent numbers of samples); each text "
                "needs one label."
            )
        conflicts = conflicting_texts(checked, own)
        if conflicts:
            text, both = next(iter(conflicts.items()))
            more = f" So are {len(conflicts) - 1} more." if len(conflicts) > 1 else ""
            raise DataError(
                f"The text {text[:80]!r} is labelled {' and '.join(map(repr, sorted(both)))}.{more} Keep one label."
            )
        return checked, own

    def _learned(
        self,
        texts: list[str],
        labels: list[Label],
        label_words: Any,
        known: Sequence[Label] = (),
        before: FittedTask | None = None,
    ) -> FittedTask:
        for name, least in (("adapt_examples", 1), ("batch_tokens", 1)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
                raise ConfigError(f"{name} is {value!r}; expected a whole number of at least {least}.")
        if labels and known and kind_of(labels[0]) != kind_of(known[0]):
            raise DataError(
                f"Labels are of mixed type: {labels[0]!r} and the class {known[0]!r}. Make them all the same."
            )
        classes = tuple(sorted({*labels, *known}))
        if not labels and len(classes) < 2:
            raise DataError(f"A classifier needs at least two classes; got {list(classes)}. Name more of them.")
        if len(classes) < 2:
            raise DataError(
                f"All examples are of one class, {classes[0]!r}; a classifier needs at least two classes. "
                "Add examples of another."
            )
        meta = self._meta_learned()
        without = sorted(set(classes) - set(labels))
        if without and not meta.config.knows_classes_by_words:
            raise DataError(
                f"There is no example of {without[:8]}. Give one of each class; or use a run whose verbalizer reads "
                "the words of the classes (rep_verbalizer.name_weight above 0, or name_verbalizer)."
            )
        base = base_model_of(meta)
        every = not meta.config.verbalizer_section.does_without_names
        words = None if label_words is None else checked_label_words(label_words, classes, not every)
        if words is not None and not meta.config.uses_words:
            raise VerbalizerError(
                "Label words were given, but they contribute nothing: mix_lambda is 1, and names do not count as "
                "examples. Set mix_lambda below 1 (which needs a model with a vocabulary head), or leave them out."
            )
        spoken = names_to_read([str(name) for name in classes], words, every)
        unknown = [name for name in without if str(name) not in spoken]
        if unknown:
            raise DataError(
                f"Of the classes {unknown[:8]} there is no example, and their names say nothing. Give an example of "
                "each, or say in label_descriptions what they are."
            )
        numbers = {name: i for i, name in enumerate(classes)}
        own = tuple(numbers[label] for label in labels)
        names = [str(name) for name in classes]
        support = Support(texts, own, names, words_of(names, words), spoken)
        read = known_texts(before) if before is not None and _read_alike(before.meta, meta) else {}
        adapted = adapt_pool(base, meta.config, meta.pool, support, meta.seed, int(self.adapt_examples), read)
        return FittedTask(meta, classes, own, tuple(texts), words, adapted)

    # -- predicting ---------------------------------------------------------------------------------------------------

    def predict_proba(self, texts: Any) -> np.ndarray[Any, np.dtype[np.float32]]:
        """Probabilities ``[n, C]`` of the classes, in the order of :attr:`classes_`.

        Args:
            texts: strings, any number of them. One that is longer than the length budget is cut as in training, which
                is logged once.

        Raises:
            NotFitted: there are no classes yet.
            DataError: something is not a text.
        """
        return np.concatenate(list(self._probabilities(self._fitted(), texts)))

    def predict(self, texts: Any) -> np.ndarray[Any, Any]:
        """The most probable class of each text, or :data:`REJECTED`; the same errors as :meth:`predict_proba`."""
        task = self._fitted()
        least = self._least_probability()  # first: an error costs no pass over the texts
        return np.concatenate([_labels(task.classes, part, least) for part in self._probabilities(task, texts)])

    def labels_of(self, probabilities: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """What :meth:`predict` makes of rows of :meth:`predict_proba`, ``[n]``."""
        return _labels(self._fitted().classes, probabilities, self._least_probability())

    def _least_probability(self) -> float:
        least = 0 if self.reject_below is None else self.reject_below
        if isinstance(least, bool) or not isinstance(least, int | float | np.number) or not 0 <= least < 1:
            raise ConfigError(f"reject_below is {least!r}; expected a probability below 1, or None.")
        return float(least)

    def explain(self, text: str, words: int = 5, examples: int = 5) -> Explanation:
        """Why a text is classified as it is.

        Args:
            text: one text.
            words: nearest words for each position of its prompt.
            examples: nearest support examples.
        """
        (checked,) = checked_texts([text])
        return self._predictor(self._fitted()).explain(checked, max(words, 0), max(examples, 0))

    def leave_one_out(self, most: int = 100) -> tuple[int, int] | None:
        """How many of the examples are classified rightly by all the others, and of how many.

        Args:
            most: examples that are left out at most, of each class in turn.

        Returns:
            ``None`` where it cannot be had: a class has fewer than two examples, the pool takes inner steps on the
            examples (that which ships takes none), the classifier was saved without its examples, or words are
            predicted by a vocabulary head.
        """
        task = self._fitted()
        return leave_one_out(base_model_of(task.meta), task, most)

    def _probabilities(self, task: FittedTask, texts: Any) -> Iterator[np.ndarray[Any, np.dtype[np.float32]]]:
        """Of a window of texts at a time: who wants labels alone need not keep them all."""
        checked = checked_texts(texts)
        predictor = self._predictor(task)
        cut = 0
        for start in range(0, len(checked), _WINDOW):
            part, truncated = predictor.probabilities(checked[start : start + _WINDOW], int(self.batch_tokens))
            cut += truncated
            yield part.numpy()
        if cut and not predictor.has_warned.is_set():
            predictor.has_warned.set()
            logger.warning(
                "%d of %d texts are longer than the budget of %d tokens and were cut, as in training.",
                cut,
                len(checked),
                task.meta.config.dataset.max_seq_length,
            )

    def _predictor(self, task: FittedTask) -> Predictor:
        live = self._live
        if live is None or live[0] is not task:
            with _building:
                live = self._live
                if live is None or live[0] is not task:
                    live = self._live = (task, self._new_predictor(task))
        return live[1]

    def _new_predictor(self, task: FittedTask) -> Predictor:
        return Predictor(base_model_of(task.meta), task)

    def _fitted(self) -> FittedTask:
        task = self._task
        if task is None:
            raise NotFitted(
                "This MetaPromptClassifier has no classes yet: call fit(texts, labels) with examples of two classes "
                "or more, or load a fitted one with from_pretrained."
            )
        return task

    @property
    def classes_(self) -> np.ndarray[Any, Any]:
        """The classes, sorted; an AttributeError before :meth:`fit`, as scikit-learn has it."""
        return _array(self._fitted().classes)

    @property
    def head_(self) -> str | None:
        """Which head :meth:`fit` has chosen and why, in a sentence; ``None`` for a verbalizer without a choice."""
        return self._predictor(self._fitted()).head

    @property
    def task_(self) -> FittedTask:
        """What :meth:`fit` learned; an AttributeError before it, as for :attr:`classes_`."""
        return self._fitted()

    @property
    def meta_learned(self) -> MetaLearned:
        """What :meth:`fit` starts from."""
        return self._meta_learned()

    # -- what it starts from ------------------------------------------------------------------------------------------

    def _meta_learned(self) -> MetaLearned:
        source = self._source()
        if self._meta is None or self._meta[0] != source:
            self._meta = (source, self._read_source())
        return self._meta[1]

    def _read_source(self) -> MetaLearned:
        if self.artefact is None and takes_shipped_pool(self.base_model):
            return self._changed(read_artefact(GENERAL).meta)
        if self.artefact is None:
            return fresh(self.seed, self._changes())
        if RunFolder(self.artefact).config_file.is_file() and not is_artefact(self.artefact):
            return of_run(self.artefact, self.seed, self._changes())
        return self._changed(self._read_artefact(local_folder(self.artefact)).meta)

    def _read_artefact(self, folder: str | os.PathLike[str]) -> Stored:
        stored = read_artefact(folder)
        if self.base_model is None:
            require_on_this_machine(stored.meta.config.plm.model_path)
        return stored

    def _changed(self, meta: MetaLearned) -> MetaLearned:
        config = changed(meta.config, self._changes())
        return replace(meta, config=config, seed=meta.seed if self.seed is None else self.seed)

    def _source(self) -> tuple[object, ...]:
        """Everything that decides what :meth:`fit` starts from."""
        return (self.artefact, self.seed, self._changes())

    def _changes(self) -> Changes:
        return Changes(
            self.base_model, self.device, self.inner_steps, self.inner_lr, self.mix_lambda, self.allow_pickle
        )

    # -- scikit-learn -------------------------------------------------------------------------------------------------

    def __sklearn_is_fitted__(self) -> bool:
        return self._task is not None

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False
        tags.input_tags.one_d_array = True
        tags.input_tags.string = True
        return tags

    def __getstate__(self) -> dict[str, Any]:
        # Without the language model, which another process loads for itself.
        return {name: value for name, value in super().__getstate__().items() if name != "_live"}


def _read_alike(before: MetaLearned, now: MetaLearned) -> bool:
    """Whether the features of a text are the same by both: one pool on one language model, read in one way."""
    sections = ("plm", "dataset", "prompt_pool_template", "run")
    return (
        before.fingerprint == now.fingerprint
        and before.pool.keys() == now.pool.keys()
        and all(torch.equal(value, now.pool[name]) for name, value in before.pool.items())
        and all(getattr(before.config, section) == getattr(now.config, section) for section in sections)
    )


def _with_descriptions(words: Mapping[Any, Any] | None, descriptions: Mapping[Any, str] | None) -> Any:
    """Words and descriptions of classes in one mapping; no class has both."""
    if descriptions is None:
        return words
    if not isinstance(descriptions, Mapping) or not all(isinstance(text, str) for text in descriptions.values()):
        raise DataError("label_descriptions is no mapping from classes to a sentence each.")
    both = [name for name in descriptions if name in (words or {})]
    if both:
        raise DataError(f"The classes {both[:8]} have both label_words and label_descriptions. Give one of them.")
    return {**(words or {}), **descriptions}


def _labels(classes: Sequence[Label], probabilities: np.ndarray[Any, Any], least: float) -> np.ndarray[Any, Any]:
    """The most probable class of each row, or what stands for none if it is less probable than ``least``."""
    found: np.ndarray[Any, Any] = _array(classes)[probabilities.argmax(axis=1)]
    if least == 0:
        return found
    rejected = rejected_as(classes)
    if isinstance(classes[0], bool):  # numbers and truth values keep their kinds only as objects
        found = found.astype(object)
    return np.where(probabilities.max(axis=1) < least, rejected, found)


def _array(classes: Sequence[Label]) -> np.ndarray[Any, Any]:
    return np.array(list(classes))
