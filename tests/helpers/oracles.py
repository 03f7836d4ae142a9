"""What the oracles of meta-learners share: a task in float64, and the paper's equations written out in loops."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from openprompt_meta.encoder.classifier import MaskClassifier
from openprompt_meta.encoder.loading import LoadedMLM
from openprompt_meta.encoder.texts import TokenizedTexts
from openprompt_meta.learners.inner import InnerLoop
from openprompt_meta.learners.task import Task
from openprompt_meta.prompts.pool_template import PromptPoolTemplate
from openprompt_meta.verbalizers.rep import RepVerbalizer

TEXT = '{"placeholder": "text_a"} {"pool"} topic is {"mask"}.'
CLASSES = ["weather", "sport", "food"]
WORDS = {"weather": ["rain", "storm"], "sport": ["game", "goal"], "food": ["soup"]}
SUPPORT = ["rain in the night", "wind and storm", "a great player", "the team win", "we eat soup", "cook a dish"]
QUERY = ["sun and cloud in the sky", "score a goal", "i like food", "the weather is bad"]
SUPPORT_LABELS, QUERY_LABELS = [0, 0, 1, 1, 2, 2], [0, 1, 2, 0]
ALPHA, STEPS = 0.3, 3


class Setting:
    """A classifier and a task in float64, with what the oracle needs of them."""

    def __init__(
        self, mlm: LoadedMLM, verbalizer: Any = None, kind: type[MaskClassifier] = MaskClassifier, **learner: Any
    ) -> None:
        self.template = PromptPoolTemplate(mlm.model, mlm.tokenizer, TEXT, num_prompts=3, prompt_length=2, seed=1)
        self.template.double()
        verbalizer = verbalizer or RepVerbalizer(mlm.tokenizer, mlm.model)
        self.classifier = kind(mlm.model, self.template, verbalizer, freeze_plm=True, plm_eval_mode=True)
        wrapper = mlm.wrapper(tokenizer=mlm.tokenizer, max_seq_length=64)
        texts = TokenizedTexts([*SUPPORT, *QUERY], self.template, wrapper)
        self.task = Task(
            index=7,
            classes=CLASSES,
            label_words=WORDS,
            support=texts.batch(range(6), SUPPORT_LABELS),
            query=texts.batch(range(6, 10), QUERY_LABELS),
        )
        self.mlm = mlm.model
        self.base = InnerLoop(self.classifier, **learner)

    def features(self, keys: Tensor, prompts: Tensor, batch: Any) -> Tensor:
        """h_[MASK] row by row: attention, prompt and input embeddings put together by hand, no template involved."""
        rows = []
        for i in range(len(batch["label"])):
            real = int(batch["attention_mask"][i].sum())
            scores = torch.stack([key @ batch["query"][i] for key in keys]) / math.sqrt(keys.shape[1])
            weights = scores.exp() / scores.exp().sum()
            prompt = sum(weights[k] * prompts[k] for k in range(len(prompts)))
            pieces, used = [], 0
            for j in range(real):
                if batch["soft_token_ids"][i, j] > 0:
                    pieces.append(prompt[used])
                    used += 1
                else:
                    pieces.append(self.mlm.get_input_embeddings().weight[batch["input_ids"][i, j]])
            hidden = self.mlm.base_model(inputs_embeds=torch.stack(pieces).unsqueeze(0)).last_hidden_state[0]
            rows.append(hidden[int((batch["loss_ids"][i] > 0).nonzero())])
        return torch.stack(rows)


def rep_log_probabilities(support: Tensor, evaluated: Tensor, rho: float = 10.0) -> Tensor:
    """RepVerb's log-probabilities ``[n, 3]``, class by class in loops."""
    embeddings = [
        torch.stack([h for h, y in zip(support, SUPPORT_LABELS, strict=True) if y == c]).mean(0) for c in range(3)
    ]
    rows = []
    for h in evaluated:
        cosines = torch.stack([(v @ h) / (v.norm() * h.norm()) for v in embeddings])
        rows.append(rho * cosines - torch.log(torch.exp(rho * cosines).sum()))
    return torch.stack(rows)


def rep_loss(
    support: Tensor, evaluated: Tensor, labels: list[int], rho: float = 10.0, reduction: str = "mean"
) -> Tensor:
    """RepVerb's negative log-likelihood."""
    predicted = rep_log_probabilities(support, evaluated, rho)
    total = -torch.stack([row[y] for row, y in zip(predicted, labels, strict=True)]).sum()
    return total / len(labels) if reduction == "mean" else total
