"""`ProtoVerbalizer`: OpenPrompt's prototypical verbalizer, on any device, for any number of shots, in episodes."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from openprompt.prompts import ProtoVerbalizer as OpenPromptProtoVerbalizer
from torch import Tensor, nn

from openprompt_meta.errors import VerbalizerError
from openprompt_meta.prompts.label_words import LabelWords
from openprompt_meta.prompts.query import evaluation_mode
from openprompt_meta.verbalizers.base import last_hidden_states, require_vocabulary_head
from openprompt_meta.verbalizers.manual import ManualVerbalizer
from openprompt_meta.verbalizers.mixed import MixedVerbalizer

logger = logging.getLogger(__name__)

MULTI_VERBS = ("multi", "proto")


def prototype_loss(embeddings: Tensor, labels: Tensor, prototypes: Tensor) -> Tensor:
    """ProtoVerb's two contrastive losses, for any number of examples a class.

    Equal to OpenPrompt's ``pcl_loss``, which takes the same number of each class only: the
    instance-prototype loss is the mean cross-entropy over examples divided by the number of classes, the
    instance-instance loss the sum over pairs of one class divided by the squared number of examples.

    Args:
        embeddings: ``[n, m]``.
        labels: ``[n]``.
        prototypes: ``[C, m]``.
    """
    embeddings, prototypes = F.normalize(embeddings, dim=-1), F.normalize(prototypes, dim=-1)
    to_prototypes = F.cross_entropy(embeddings @ prototypes.T, labels) / len(prototypes)

    similarity = embeddings @ embeddings.T  # [n, n], rows compared with anchors in columns
    same_class = labels.unsqueeze(0) == labels.unsqueeze(1)
    negatives = similarity.masked_fill(same_class, -torch.inf).logsumexp(dim=0, keepdim=True)  # [1, n]
    terms = torch.logaddexp(similarity, negatives) - similarity
    between_instances = terms[same_class].sum() / len(labels) ** 2
    return to_prototypes + between_instances


class ProtoVerbalizer(MixedVerbalizer, OpenPromptProtoVerbalizer):
    """OpenPrompt's ``ProtoVerbalizer`` without its limits (CUDA only, equal shots, one task, a vocabulary head).

    Where OpenPrompt's runs, this one learns the same prototypes and predicts the same distribution.

    Args:
        tokenizer: the language model's tokenizer.
        model: the language model.
        classes: the classes of the task.
        num_classes: their number, if they have no names.
        label_words: words of the classes, for ``multi_verb="multi"`` or ``mix_lambda`` below 1.
        prefix: OpenPrompt's.
        multi_token_handler: OpenPrompt's.
        post_log_softmax: OpenPrompt's.
        lr: step size for prototypes (Adam).
        mid_dim: size of a prototype.
        epochs: steps on the prototypes.
        multi_verb: ``multi`` averages standardised scores with the hand-crafted verbalizer's, as in ProtoVerb's
            paper; ``proto`` uses prototypes alone. By default ``multi`` if there are label words and λ is 1.
        mix_lambda: λ of this package, mixing probabilities with the hand-crafted verbalizer's.
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
        label_words: LabelWords | None = None,
        prefix: str = " ",
        multi_token_handler: str = "first",
        post_log_softmax: bool = True,
        lr: float = 1e-3,
        mid_dim: int = 64,
        epochs: int = 5,
        multi_verb: str | None = None,
        mix_lambda: float = 1.0,
        aggregation: str = "logits",
        words_read_by: str = "head",
        learn: Sequence[str] = (),
        feature_size: int | None = None,
    ) -> None:
        if multi_verb is None:
            multi_verb = "multi" if label_words is not None and mix_lambda == 1.0 else "proto"
        if multi_verb not in MULTI_VERBS:
            raise VerbalizerError(f"multi_verb must be one of {', '.join(MULTI_VERBS)}; got {multi_verb!r}.")
        if multi_verb == "multi" and mix_lambda < 1.0:
            raise VerbalizerError(
                "multi_verb: multi and mix_lambda below 1 are two ways to bring in hand-crafted words; choose one."
            )
        if classes is None and num_classes is None:
            num_classes = 2  # a size for OpenPrompt's constructor, until begin_task names the classes
        super().__init__(
            tokenizer,
            model,
            classes,
            num_classes,
            label_words,
            mix_lambda,
            aggregation,
            words_read_by,
            learn,
            # What follows is for OpenPrompt's constructor; label words are the hand-crafted part's business.
            model=model,
            lr=lr,
            mid_dim=mid_dim,
            epochs=epochs,
            multi_verb=multi_verb,
            prefix=prefix,
            multi_token_handler=multi_token_handler,
            post_log_softmax=post_log_softmax,
        )
        if multi_verb == "multi":
            require_vocabulary_head(model, "proto_verbalizer with multi_verb: multi")
        if multi_verb == "multi" or (
            mix_lambda < 1.0 and words_read_by == "head"
        ):  # with OpenPrompt's own arguments, which others do not have
            self.hand_crafted = ManualVerbalizer(
                tokenizer, classes, num_classes, label_words, prefix, multi_token_handler, aggregation
            )
        if feature_size is not None and feature_size != self.hidden_dims:
            self.head = nn.Linear(feature_size, mid_dim, bias=False)
        self._initial_head = self.head.weight.detach().clone()
        self._initial_proto: Tensor = self.proto.detach().clone()

    # -- learning ---------------------------------------------------------------------------------------------

    def begin_task(self, classes: Sequence[str], label_words: LabelWords | None = None) -> None:
        """Take these classes, with the projection and prototypes as they were at first."""
        super().begin_task(classes, label_words)
        proto = self._initial_proto
        if len(proto) != self.num_classes:
            # Drawn from the number of classes alone, so that every task of a kind starts alike.
            generator = torch.Generator().manual_seed(self.num_classes)
            proto = torch.empty(self.num_classes, self.mid_dim)
            nn.init.xavier_uniform_(proto, generator=generator)
        weight = self.head.weight
        with torch.no_grad():
            weight.copy_(self._initial_head)
        self.proto = nn.Parameter(proto.to(weight, copy=True))
        self.optimizer = torch.optim.Adam(self.group_parameters_proto, lr=self.lr)
        self.trained = False

    def fit_support(self, features: Tensor, logits: Tensor | None, labels: Tensor) -> None:
        """Learn projection and prototypes on fixed features, by :attr:`epochs` steps of the contrastive loss."""
        labels = self._checked_support(features, labels)
        features = features.detach()
        loss = features.new_zeros(())
        with torch.enable_grad():
            for _ in range(self.epochs):
                self.optimizer.zero_grad()
                loss = prototype_loss(self.head(features), labels, self.proto)
                loss.backward()
                self.optimizer.step()
        self.optimizer.zero_grad()
        logger.debug("Prototypes learned in %d steps, loss %.4f.", self.epochs, loss.item())
        self.trained = True

    def train_proto(self, model: nn.Module, dataloader: Iterable[Any], device: Any = None) -> None:
        """OpenPrompt's call: learn prototypes from a labelled data loader, on whatever device the model is.

        Args:
            model: a ``PromptForClassification`` with this verbalizer.
            dataloader: yields labelled batches.
            device: ignored; OpenPrompt's runner passes a CUDA index here.
        """
        features, labels = [], []
        with torch.no_grad(), evaluation_mode(model):
            for batch in dataloader:
                on_device = batch.to(model.device).to_dict()
                hidden = last_hidden_states(model.prompt_model(on_device))  # type: ignore[operator]
                features.append(model.extract_at_mask(hidden, on_device))  # type: ignore[operator]
                labels.append(on_device["label"])
        if not features:
            raise VerbalizerError("train_proto was given a data loader without batches.")
        self.fit_support(torch.cat(features), None, torch.cat(labels))

    # -- prediction -------------------------------------------------------------------------------------------

    def soft_log_probabilities(self, features: Tensor) -> Tensor:
        """``softmax(cos(head(h), prototype))`` in log space, ``[B, C]``."""
        scores: Tensor = self.sim(self.head(features), self.proto)
        return scores.log_softmax(dim=-1)

    def log_probabilities(self, features: Tensor, logits: Tensor | None) -> Tensor:
        """As the other verbalizers', or ProtoVerb's ensemble with hand-crafted words (``multi_verb: multi``)."""
        if self.multi_verb != "multi" or self.hand_crafted is None or logits is None:
            return super().log_probabilities(features, logits)
        words: Tensor = self.hand_crafted.log_probabilities(features, logits)
        if not self.trained:  # OpenPrompt trusts the words alone until there are prototypes
            return words
        ensemble: Tensor = self.ensemble_logits(words, self.soft_log_probabilities(features))
        return ensemble.log_softmax(dim=-1)
