"""`NameVerbalizer`: the names of the classes read as texts by the same encoder; needs no head and no example."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from openprompt_meta.errors import VerbalizerError
from openprompt_meta.prompts.label_words import LabelWords
from openprompt_meta.verbalizers.base import EpisodicVerbalizer, Uncopied, labels_that_fit, last_hidden_states


def mean_by_class(features: Tensor, labels: Tensor, num_classes: int) -> Tensor:
    """The mean of each class's features, ``[C, d_o]``; gradients flow.

    Raises:
        VerbalizerError: a class has none.
    """
    labels = labels_that_fit(features, labels, num_classes)
    members = F.one_hot(labels, num_classes).to(features.dtype)  # [n, C]
    counts = members.sum(dim=0)
    if bool((counts == 0).any()):
        missing = (counts == 0).nonzero().flatten().tolist()
        raise VerbalizerError(f"No name of class {', '.join(map(str, missing))} was read. Give words for each class.")
    means: Tensor = (members.T @ features) / counts.unsqueeze(-1)
    return means


_READS_WORDS = (
    "NameVerbalizer has the words of the classes read as texts, so its words {} at the [MASK]. Drop the line from the "
    "script, or take manual_verbalizer, which needs a vocabulary head."
)


class NameVerbalizer(EpisodicVerbalizer):
    """``P(y | x) = softmax_y(ρ · cos(n_y, h(x)))``, with n_y the features of the class's words read as a text.

    The names are wrapped by the same template and prompts as the texts (:meth:`fit_names` is given their features), so
    that prompts learn to bring the two together. It is the hand-crafted verbalizer of an encoder that predicts no
    words, and like it needs no example of a class.

    Args:
        tokenizer: the language model's tokenizer.
        classes: the classes of the task.
        num_classes: their number, if they have no names.
        temperature: ρ.
        label_words: words of the classes in a YAML; elsewhere ``read_names_with`` takes them.
        model: not needed.
    """

    name_features: Tensor | None  # [C, d_o]

    def __init__(
        self,
        tokenizer: Any = None,
        classes: Sequence[str] | None = None,
        num_classes: int | None = None,
        temperature: float = 10.0,
        label_words: LabelWords | None = None,
        model: nn.Module | None = None,
    ) -> None:
        super().__init__(
            tokenizer=tokenizer, classes=None if classes is None else list(classes), num_classes=num_classes
        )
        if not temperature > 0:
            raise VerbalizerError(f"temperature (ρ) must be above 0, got {temperature!r}.")
        self.temperature = float(temperature)
        self.words_to_read = label_words
        self._names: Uncopied[Tensor] = Uncopied()  # with gradient
        self.register_buffer("name_features", None)

    @property
    def needs_vocabulary_head(self) -> bool:
        """Never: words are read, not predicted."""
        return False

    @property
    def reads_names(self) -> bool:
        """Always: they are all it compares with."""
        return True

    def begin_task(self, classes: Sequence[str], label_words: LabelWords | None = None) -> None:
        """Take these classes and forget the names before."""
        self._take_classes(classes)
        self._names.value = self.name_features = None

    def fit_names(self, features: Tensor, labels: Tensor) -> None:
        """Keep the names' features; gradients flow through them."""
        if self.num_classes is None:
            raise VerbalizerError("NameVerbalizer does not know its classes: give classes, or call begin_task.")
        self._names.value = mean_by_class(features, labels, self.num_classes)
        self.name_features = self._names.value.detach()  # what state_dict saves

    def fit_support(self, features: Tensor, logits: Tensor | None, labels: Tensor) -> None:
        """Nothing: names are known without examples."""

    def detach_fit(self) -> None:
        """Keep the names' features, but let no gradient flow through them from here on."""
        if self._names.value is not None:
            self._names.value = self._names.value.detach()

    @property
    def label_words_ids(self) -> Tensor:
        """OpenPrompt's scripts ask for it; there is none.

        Raises:
            VerbalizerError: always.
        """
        raise VerbalizerError(_READS_WORDS.format("have no label_words_ids"))

    def process_logits(self, logits: Tensor, **kwargs: Any) -> Tensor:
        """OpenPrompt's scripts ask for it; vocabulary logits mean nothing here.

        Raises:
            VerbalizerError: always.
        """
        raise VerbalizerError(_READS_WORDS.format("make nothing of vocabulary logits"))

    def gather_outputs(self, outputs: Any) -> Tensor:
        """Hidden states; names are read anew if they are to be."""
        self.read_names_again()
        return last_hidden_states(outputs)

    def process_outputs(self, outputs: Tensor, batch: Any = None, **kwargs: Any) -> Tensor:
        """Log-probabilities ``[B, C]`` from features ``[B, d_o]``."""
        return self.log_probabilities(outputs, None)

    def log_probabilities(self, features: Tensor, logits: Tensor | None) -> Tensor:
        """``softmax(ρ cos)`` in log space, ``[B, C]``."""
        names = self.name_features if self._names.value is None else self._names.value
        if names is None:
            raise VerbalizerError(
                "The names of the classes have not been read yet: call fit_names with their features, or "
                "read_names_with(model, label_words) once in an OpenPrompt script."
            )
        similarity = F.normalize(features, dim=-1) @ F.normalize(names, dim=-1).T
        return (self.temperature * similarity).log_softmax(dim=-1)

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *args: Any) -> None:
        self._names.value = None  # of a task that this replaces
        # A buffer without a size yet takes that of the saved one.
        saved = state_dict.get(prefix + "name_features")
        self.name_features = None if saved is None else torch.empty_like(saved)
        super()._load_from_state_dict(state_dict, prefix, *args)
