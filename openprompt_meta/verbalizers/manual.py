"""`ManualVerbalizer`: label words chosen by people, several a class, several tokens a word."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from openprompt.prompts import ManualVerbalizer as OpenPromptManualVerbalizer
from torch import Tensor, nn

from openprompt_meta.errors import VerbalizerError
from openprompt_meta.prompts.label_words import LabelWords, words_by_class
from openprompt_meta.verbalizers.base import EpisodicVerbalizer, require_vocabulary_head, vocabulary_logits

AGGREGATIONS = ("logits", "probabilities")
MULTI_TOKEN_HANDLERS = ("first", "max", "mean")


class ManualVerbalizer(EpisodicVerbalizer, OpenPromptManualVerbalizer):
    """OpenPrompt's ``ManualVerbalizer``, made episodic, normalised over the classes and free of parameters.

    Its predictions are the same distribution over classes as OpenPrompt's (which leaves out the normaliser).

    Args:
        tokenizer: the language model's tokenizer.
        classes: the classes of the task.
        num_classes: their number, if they have no names.
        label_words: a mapping from classes, or lists in their order.
        prefix: put before each word; ``" "`` for models whose tokens know about spaces.
        multi_token_handler: a word of several tokens counts as its ``first``, their ``max`` or their ``mean``.
        aggregation: words of a class are joined as the mean of their ``logits`` (the authors' code), or of their
            ``probabilities`` (the paper's equation 1).
        post_log_softmax: OpenPrompt's; makes no difference here, as predictions are normalised either way.
        model: checked for a vocabulary head if given.
    """

    def __init__(
        self,
        tokenizer: Any,
        classes: Sequence[str] | None = None,
        num_classes: int | None = None,
        label_words: LabelWords | None = None,
        prefix: str = " ",
        multi_token_handler: str = "first",
        aggregation: str = "logits",
        post_log_softmax: bool = True,
        model: nn.Module | None = None,
    ) -> None:
        require_vocabulary_head(model, "The hand-crafted verbalizer")
        if aggregation not in AGGREGATIONS:
            raise VerbalizerError(f"aggregation must be one of {', '.join(AGGREGATIONS)}; got {aggregation!r}.")
        if multi_token_handler not in MULTI_TOKEN_HANDLERS:
            raise VerbalizerError(
                f"multi_token_handler must be one of {', '.join(MULTI_TOKEN_HANDLERS)}; got {multi_token_handler!r}."
            )
        if classes is not None and label_words is not None:
            label_words = words_by_class(label_words, classes)
        super().__init__(
            tokenizer=tokenizer,
            classes=None if classes is None else list(classes),
            num_classes=num_classes,
            label_words=label_words,
            prefix=prefix,
            multi_token_handler=multi_token_handler,
            post_log_softmax=post_log_softmax,
        )
        self.aggregation = aggregation

    @property
    def needs_vocabulary_head(self) -> bool:
        """Always: words are all it looks at."""
        return True

    @property
    def wanted_words(self) -> Tensor | None:
        """The tokens of all label words."""
        tokens: Tensor | None = self._buffers.get("label_tokens")
        return tokens

    def begin_task(self, classes: Sequence[str], label_words: LabelWords | None = None) -> None:
        """Take the classes of a task, and their label words, which it cannot do without."""
        if label_words is None:
            raise VerbalizerError(
                f"The hand-crafted verbalizer needs label words for {', '.join(map(repr, classes))}."
            )
        words = words_by_class(label_words, classes)
        self._take_classes(classes)
        self.label_words = words

    def fit_support(self, features: Tensor, logits: Tensor | None, labels: Tensor) -> None:
        """Nothing: the words were chosen beforehand."""

    def safe_on_label_words_set(self) -> None:
        """OpenPrompt's, but label words that are refused do not stop later ones from being taken."""
        try:
            super().safe_on_label_words_set()
        finally:
            self._in_on_label_words_set = False

    def generate_parameters(self) -> None:
        """Token ids and masks of the label words, as buffers rather than OpenPrompt's frozen parameters."""
        empty = [i for i, words in enumerate(self.label_words) if not any(map(self._token_ids, words))]
        if empty:
            raise VerbalizerError(
                f"The tokenizer makes nothing of the label words of class {self._class_names(empty)}. Give words that "
                "it knows."
            )
        before = self._buffers.get("label_words_ids")
        super().generate_parameters()
        for name in ("label_words_ids", "words_ids_mask", "label_words_mask"):
            made = self._parameters.pop(name).data
            self.register_buffer(name, made if before is None else made.to(before.device))
        self.register_buffer("label_tokens", self.label_words_ids.unique(), persistent=False)

    def _token_ids(self, word: str) -> list[int]:
        ids: list[int] = self.tokenizer.encode(word, add_special_tokens=False)
        return ids

    def gather_outputs(self, outputs: Any) -> Tensor:
        """The vocabulary logits."""
        return vocabulary_logits(outputs, "The hand-crafted verbalizer")

    def log_probabilities(self, features: Tensor, logits: Tensor | None) -> Tensor:
        """Log-probabilities ``[B, C]``; features are not looked at."""
        if logits is None:
            raise VerbalizerError("The hand-crafted verbalizer needs vocabulary logits, none were given.")
        return self.process_logits(logits)

    def project(self, logits: Tensor, **kwargs: Any) -> Tensor:
        """OpenPrompt's: logits of each class's words ``[B, C, W]``; also from logits of :attr:`wanted_words` alone."""
        ids: Tensor = self.label_words_ids
        # If every token is wanted, the two numberings are one.
        if logits.shape[-1] == len(self.label_tokens):
            ids = torch.searchsorted(self.label_tokens, ids)
        words: Tensor = self.handle_multi_token(logits[:, ids], self.words_ids_mask)
        absent: Tensor = 1 - self.label_words_mask
        return words - 10000 * absent

    def process_logits(self, logits: Tensor, **kwargs: Any) -> Tensor:
        """Log-probabilities of the classes, ``[B, C]``, from the [MASK]'s vocabulary logits.

        Those are ``[B, V]``, or ``[B, W]`` of :attr:`wanted_words`.
        """
        if "label_words_ids" not in self._buffers:
            raise VerbalizerError(
                "The hand-crafted verbalizer has no label words yet: give label_words, or call begin_task with some."
            )
        self.to(logits.device)  # label words come with each task, and the tokenizer knows no device
        words: Tensor = self.project(logits)  # [B, C, W], far below zero where a class has fewer than W words
        if getattr(self, "_calibrate_logits", None) is not None:
            words = torch.log(self.calibrate(label_words_probs=self.normalize(words)) + 1e-15)
        present: Tensor = self.label_words_mask.bool()
        number = present.sum(dim=-1).to(words.dtype)
        if self.aggregation == "logits":
            scores = words.masked_fill(~present, 0.0).sum(dim=-1) / number
        else:
            scores = words.masked_fill(~present, -torch.inf).logsumexp(dim=-1) - number.log()
        log_probabilities: Tensor = scores.log_softmax(dim=-1)
        return log_probabilities
