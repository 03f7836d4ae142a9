"""The interface of every verbalizer here: OpenPrompt's, plus two calls that let it move from task to task."""

from __future__ import annotations

import copy
import inspect
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from openprompt import Verbalizer
from torch import Tensor, nn

from openprompt_meta.compat.bridge import refuse_unknown_keys
from openprompt_meta.errors import ConfigError, VerbalizerError
from openprompt_meta.prompts.label_words import LabelWords, read_openprompt_label_words
from openprompt_meta.prompts.pooling import has_vocabulary_head

_T = TypeVar("_T")


class Uncopied(Generic[_T]):
    """Holds what a copy starts without: tensors of the task at hand, which carry gradients and cannot be copied."""

    def __init__(self) -> None:
        self.value: _T | None = None

    def __deepcopy__(self, memo: dict[int, Any]) -> Uncopied[_T]:
        return Uncopied()


class EpisodicVerbalizer(Verbalizer):
    """A verbalizer that can be pointed at a new task.

    ``begin_task(classes)``, ``fit_support(features, logits, labels)``, and then OpenPrompt's stock call
    (``gather_outputs``, ``process_outputs``), which gives log-probabilities ``[B, C]`` that sum to one.
    """

    words_to_read: LabelWords | None = None
    """Label words of a YAML, for whoever has the names read."""
    names_reader: Callable[[], tuple[Tensor, Tensor]] | None = None  # set by encoder.names

    @property
    @abstractmethod
    def needs_vocabulary_head(self) -> bool:
        """Whether predictions need the language model's logits over the vocabulary."""

    @property
    def wanted_words(self) -> Tensor | None:
        """Which tokens' logits predictions look at, ``[W]`` ascending; ``None`` if it may be any."""
        return None

    @property
    def reads_names(self) -> bool:
        """Whether the words of the classes are read as texts: :meth:`fit_names` is then called before the support."""
        return False

    @property
    def scalars(self) -> nn.Module | None:
        """What of it is learned across tasks, if it has any such thing."""
        return None

    @property
    def group_parameters_1(self) -> list[nn.Parameter]:
        """OpenPrompt's: what of the language model's head belongs to the verbalizer. Here that is nothing."""
        return []

    @property
    def group_parameters_2(self) -> list[nn.Parameter]:
        """OpenPrompt's: what the verbalizer itself learns; empty for one without parameters."""
        return [parameter for parameter in self.parameters() if parameter.requires_grad]

    def clone(self) -> EpisodicVerbalizer:
        """A verbalizer like this one for another task, sharing the language model, its tokenizer and the scalars."""
        shared = [part for part in (self.tokenizer, self.scalars) if part is not None]
        return copy.deepcopy(self, {id(part): part for part in shared})

    @abstractmethod
    def begin_task(self, classes: Sequence[str], label_words: LabelWords | None = None) -> None:
        """Forget the task before and take these classes, in this order.

        Args:
            classes: names of the classes; label ``i`` of the support set means ``classes[i]``.
            label_words: their words, for a verbalizer that uses them.
        """

    @abstractmethod
    def fit_support(self, features: Tensor, logits: Tensor | None, labels: Tensor) -> None:
        """Learn what there is to learn from a support set.

        Args:
            features: of the texts, ``[n, d_o]``; the [MASK]'s hidden states, unless the template reads something else.
            logits: the [MASK]'s vocabulary logits, ``[n, V]`` or those of :attr:`wanted_words` ``[n, W]``; ``None`` if
                :attr:`needs_vocabulary_head` is false.
            labels: ``[n]``, indices into the task's classes.
        """

    def fit_names(self, features: Tensor, labels: Tensor) -> None:
        """Take the features ``[n, d_o]`` of the classes' words, read as texts, and ``labels`` ``[n]``.

        Only if :attr:`reads_names`; called before :meth:`fit_support`.
        """

    def leave_out_names(self) -> None:
        """Let the task that was begun, which brings no names, be known by its examples alone.

        Raises:
            VerbalizerError: by names alone this verbalizer knows its classes.
        """
        raise VerbalizerError(f"{type(self).__name__} reads the names of the classes, and the task brings none.")

    def read_names_again(self) -> None:
        """In an OpenPrompt script, where prompts change step by step: read the names with them as they are now."""
        if self.names_reader is not None:
            self.fit_names(*self.names_reader())

    def detach_fit(self) -> None:
        """Keep what :meth:`fit_support` learned, but let no gradient flow through it from here on."""

    @abstractmethod
    def log_probabilities(self, features: Tensor, logits: Tensor | None) -> Tensor:
        """Log-probabilities ``[B, C]``.

        Args:
            features: of the texts, ``[B, d_o]``.
            logits: if needed, vocabulary logits ``[B, V]``, or those of :attr:`wanted_words` ``[B, W]``.
        """

    def support_log_probabilities(self, features: Tensor, logits: Tensor | None) -> Tensor:
        """The same for the support set itself, in an inner loop, where a verbalizer may have other settings."""
        return self.log_probabilities(features, logits)

    @classmethod
    def from_config(cls, config: Any, **kwargs: Any) -> EpisodicVerbalizer:
        """OpenPrompt's, but a key that the verbalizer does not know is an error instead of being dropped.

        Label words of a ``file_path`` are read first, so that the constructor has them like any others.
        """
        refuse_unknown_keys(cls, config)
        options = {**(config or {}), **kwargs}
        if options.get("file_path") is not None:
            if options.get("label_words") is not None:
                raise ConfigError(f"{cls.__name__}: label_words and file_path both give label words. Keep one.")
            options["label_words"] = read_openprompt_label_words(options["file_path"], options.get("choice") or 0)
        accepted = inspect.signature(cls).parameters
        verbalizer = cls(**{name: value for name, value in options.items() if name in accepted})
        verbalizer.words_to_read = options.get("label_words")
        return verbalizer

    def _take_classes(self, classes: Sequence[str]) -> None:
        names = list(classes)
        if len(names) < 2 or len(set(names)) != len(names):
            raise VerbalizerError(f"A task needs at least two classes with distinct names, got {names}.")
        self.classes, self.num_classes = names, len(names)

    def _checked_support(self, features: Tensor, labels: Tensor) -> Tensor:
        """:func:`labels_that_fit` of a support set, in which every class must have an example."""
        if self.num_classes is None:
            raise VerbalizerError(
                f"{type(self).__name__} does not know its classes: give classes, or call begin_task."
            )
        labels = labels_that_fit(features, labels, self.num_classes)
        present = set(labels.tolist())
        missing = [i for i in range(self.num_classes) if i not in present]
        if missing:
            raise VerbalizerError(
                f"No support example for class {self._class_names(missing)}. Each class needs at least one."
            )
        return labels

    def _class_names(self, indices: Sequence[int]) -> str:
        return ", ".join(repr(self.classes[i]) if self.classes else str(i) for i in indices)


def last_hidden_states(outputs: Any) -> Tensor:
    """The last layer's hidden states ``[B, L, d_o]`` of a language model's outputs."""
    hidden = getattr(outputs, "hidden_states", None)
    if hidden is None:
        raise VerbalizerError(
            f"The language model returned no hidden states ({type(outputs).__name__}); call it with "
            "output_hidden_states=True, as OpenPrompt's PromptModel does."
        )
    last: Tensor = hidden[-1]
    return last


def vocabulary_logits(outputs: Any, asking: str) -> Tensor:
    """Vocabulary logits ``[B, L, V]`` of a language model's outputs."""
    logits = getattr(outputs, "logits", None)
    if logits is None:
        raise VerbalizerError(_NO_HEAD.format(asking=asking, model="The language model"))
    found: Tensor = logits
    return found


def require_vocabulary_head(model: nn.Module | None, asking: str) -> None:
    """Refuse, before anything runs, a model that cannot predict words for a verbalizer that asks for them."""
    if model is not None and not has_vocabulary_head(model):
        raise VerbalizerError(_NO_HEAD.format(asking=asking, model=type(model).__name__))


_NO_HEAD = (
    "{asking} needs predictions of words, and {model} has no vocabulary head. Use a masked language model that "
    "has one (minilm-mlm, bert-base-uncased, roberta-base, microsoft/mpnet-base, …: anything transformers loads as "
    "AutoModelForMaskedLM), or a verbalizer that needs none: rep_verbalizer, warp_verbalizer, or proto_verbalizer "
    "with multi_verb: proto, each with mix_lambda: 1."
)


def labels_that_fit(features: Tensor, labels: Tensor, num_classes: int) -> Tensor:
    """The labels ``[n]`` of ``features`` ``[n, d_o]``, on their device, after a check that the two fit together."""
    if features.dim() != 2 or labels.shape != features.shape[:1] or len(labels) == 0:
        raise VerbalizerError(
            f"Expected features [n, d] and labels [n] with n ≥ 1 (one [MASK] a text), got "
            f"{list(features.shape)} and {list(labels.shape)}."
        )
    if int(labels.min()) < 0 or int(labels.max()) >= num_classes:
        raise VerbalizerError(
            f"Labels must lie between 0 and {num_classes - 1} for {num_classes} classes, got "
            f"{int(labels.min())} to {int(labels.max())}."
        )
    return labels.to(features.device).long()
