"""`WarpVerbalizer` and `DartVerbalizer`: a learnable embedding for each class, compared by inner product."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from openprompt_meta.errors import VerbalizerError
from openprompt_meta.prompts.label_words import LabelWords, token_ids_of_words, words_by_class
from openprompt_meta.prompts.query import ModelReference
from openprompt_meta.verbalizers.mixed import MixedVerbalizer


class WarpVerbalizer(MixedVerbalizer):
    """``P(y | x) = softmax_y(v_y · h(x))`` with learnable ``v_y`` (paper, appendix "Implementation of WARP").

    The label embeddings are ordinary parameters: an optimiser over ``parameters()`` learns them along with
    whatever else is tuned. :meth:`fit_support` learns them on fixed features.

    Args:
        tokenizer: the language model's tokenizer.
        model: the language model; its hidden size is that of a label embedding.
        classes: the classes of the task.
        num_classes: their number, if they have no names.
        init_std: label embeddings start normal with this deviation.
        fit_steps: gradient steps that :meth:`fit_support` takes; 0 leaves all learning to an optimiser outside.
        fit_lr: their step size (Adam).
        mix_lambda: λ; below 1 hand-crafted label words contribute.
        label_words: words of the classes, if they are needed.
        aggregation: see :class:`~openprompt_meta.prompts.ManualVerbalizer`.
        words_read_by: see :class:`~openprompt_meta.RepVerbalizer`.
        learn: ``["mix_lambda"]`` to learn λ across tasks.
        feature_size: d_o, if the template reads more than one hidden state (``template.feature_size``).
    """

    def __init__(
        self,
        tokenizer: Any,
        model: nn.Module,
        classes: Sequence[str] | None = None,
        num_classes: int | None = None,
        init_std: float = 0.02,
        fit_steps: int = 5,
        fit_lr: float = 1e-2,
        mix_lambda: float = 1.0,
        label_words: LabelWords | None = None,
        aggregation: str = "logits",
        words_read_by: str = "head",
        learn: Sequence[str] = (),
        feature_size: int | None = None,
    ) -> None:
        super().__init__(
            tokenizer, model, classes, num_classes, label_words, mix_lambda, aggregation, words_read_by, learn
        )
        self.init_std = init_std
        self.fit_steps = fit_steps
        self.fit_lr = fit_lr
        self._model = ModelReference(model)
        self.feature_size: int = feature_size or model.config.hidden_size  # type: ignore[union-attr, assignment]
        self.label_embeddings: nn.Parameter | None = None
        if self.num_classes is not None:
            self._start(label_words)

    def _start(self, label_words: LabelWords | None) -> None:
        start = self.initial_label_embeddings(label_words)
        # In single precision at least, as features are evaluated, whatever the model computes in.
        self.label_embeddings = nn.Parameter(start.to(torch.promote_types(start.dtype, torch.float32)))

    def initial_label_embeddings(self, label_words: LabelWords | None) -> Tensor:
        """Where learning starts, ``[C, d_o]``: at random."""
        reference = next(self._model.model.parameters())
        return self.init_std * torch.randn(self.num_classes, self.feature_size).to(reference)

    def begin_task(self, classes: Sequence[str], label_words: LabelWords | None = None) -> None:
        """Take these classes, with new label embeddings."""
        super().begin_task(classes, label_words)
        self._start(label_words)

    def fit_support(self, features: Tensor, logits: Tensor | None, labels: Tensor) -> None:
        """Learn the label embeddings on fixed features, by :attr:`fit_steps` steps of Adam on the mean loss."""
        labels = self._checked_support(features, labels)
        if self.fit_steps == 0:
            return
        features = features.detach()
        optimizer = torch.optim.Adam([self._embeddings()], lr=self.fit_lr)
        with torch.enable_grad():
            for _ in range(self.fit_steps):
                optimizer.zero_grad()
                F.nll_loss(self.soft_log_probabilities(features), labels).backward()
                optimizer.step()
        optimizer.zero_grad()

    def soft_log_probabilities(self, features: Tensor) -> Tensor:
        """``softmax(v_y · h)`` in log space, ``[B, C]``."""
        return (features @ self._embeddings().T).log_softmax(dim=-1)

    def _embeddings(self) -> nn.Parameter:
        if self.label_embeddings is None:
            raise VerbalizerError(
                f"{type(self).__name__} does not know its classes: give classes, or call begin_task."
            )
        return self.label_embeddings


class DartVerbalizer(WarpVerbalizer):
    """WARP's verbalizer started from the input embeddings of each class's label words."""

    def initial_label_embeddings(self, label_words: LabelWords | None) -> Tensor:
        """Mean input embedding of each class's label words, ``[C, d_o]``."""
        if label_words is None:
            raise VerbalizerError("dart_verbalizer starts from label words: give some for each class.")
        embedding: Tensor = self._model.model.get_input_embeddings().weight.detach()  # type: ignore[operator]
        size: int = self._model.model.config.hidden_size  # type: ignore[union-attr, assignment]
        if embedding.shape[1] != size:
            raise VerbalizerError(
                f"dart_verbalizer starts from input embeddings, which are {embedding.shape[1]} wide in "
                f"{type(self._model.model).__name__}, while its features are {size} wide. Use warp_verbalizer."
            )
        classes = self.classes or [str(i) for i in range(self.num_classes)]
        means = []
        for name, words in zip(classes, words_by_class(label_words, classes), strict=True):
            ids = token_ids_of_words(self.tokenizer, words)
            if not ids:
                raise VerbalizerError(f"The tokenizer makes nothing of the label words of {name!r}: {words}.")
            means.append(embedding[ids].mean(dim=0))
        # Where several hidden states are read, words are compared with each of them.
        return torch.stack(means).repeat(1, self.feature_size // size)
