"""HATT against loops over queries, classes, examples and features."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from openprompt_meta.learners.hatt import Hatt
from openprompt_meta.learners.task import Batch, Task

pytestmark = pytest.mark.meta

FILTERS = 6


def network(shots: int, scores: str = "softplus") -> Hatt:
    torch.manual_seed(shots)
    vectors = torch.randn(9, 4)
    vectors[0] = 0
    return Hatt(vectors, shots, FILTERS, 0.5, scores).double().eval()  # type: ignore[arg-type]


def rows_of(count: int) -> list[list[int]]:
    return [[1 + (3 * i + j) % 8 for j in range(1 + i % 4)] for i in range(count)]


def batch_of(rows: list[list[int]], labels: list[int]) -> Batch:
    width = max(map(len, rows))
    return {
        "words": torch.tensor([[*row, *[0] * (width - len(row))] for row in rows]),
        "is_word": torch.tensor([[i < len(row) for i in range(width)] for row in rows]),
        "label": torch.tensor(labels),
    }


def task_of(shots: int, classes: int = 3) -> Task:
    labels = [label for label in range(classes) for _ in range(shots)]
    rows = rows_of(classes * shots + 4)
    names = [str(label) for label in range(classes)]
    return Task(0, names, {}, batch_of(rows[:-4], labels), batch_of(rows[-4:], [0, 1, 2, 0]))


def read(one: Hatt, row: list[int]) -> Tensor:
    """A text by itself."""
    vectors = [torch.zeros(4).double(), *one.vectors[torch.tensor(row)], torch.zeros(4).double()]
    found = []
    for i in range(len(row)):
        window = torch.stack(vectors[i : i + 3])  # [3, d]
        found.append((torch.einsum("fdw,wd->f", one.convolution.weight, window) + one.convolution.bias).clamp_min(0))
    return torch.stack(found).max(dim=0).values


def convolved(rows: Tensor, weight: Tensor, bias: Tensor, before: int, after: int) -> Tensor:
    """``rows`` ``[c, K, f]`` under ``weight`` ``[C, c, K]``, feature by feature."""
    channels, height, features = rows.shape
    shots = weight.shape[2]
    padded = torch.zeros(channels, before + height + after, features).double()
    padded[:, before : before + height] = rows
    out = torch.zeros(weight.shape[0], padded.shape[1] - shots + 1, features).double()
    for i in range(out.shape[1]):
        for j in range(features):
            out[:, i, j] = (weight * padded[:, i : i + shots, j]).sum(dim=(1, 2)) + bias
    return out


def by_hand(one: Hatt, task: Task, shots: int) -> Tensor:
    support, query = rows_of(len(task.classes) * shots + 4), None
    support, query = support[:-4], support[-4:]
    logits = torch.zeros(4, len(task.classes)).double()
    before, after = (shots - 1) // 2, shots // 2
    for q, row in enumerate(query):
        asked = read(one, row)
        for label in range(len(task.classes)):
            examples = torch.stack([read(one, text) for text in support[label * shots : (label + 1) * shots]])
            image = examples.unsqueeze(0)
            for layer in one.maps:
                image = convolved(image, layer.weight.squeeze(3), layer.bias, before, after).clamp_min(0)
            image = convolved(image, one.last.weight.squeeze(3), one.last.bias, 0, 0)[0, 0]
            scores = [math.log1p(math.exp(value)) for value in image.tolist()]
            alike = [(one.projection(example) * one.projection(asked)).tanh().sum() for example in examples]
            total = sum(value.exp() for value in alike)
            mean = sum(value.exp() / total * example for value, example in zip(alike, examples, strict=True))
            for j in range(FILTERS):
                logits[q, label] -= scores[j] * (mean[j] - asked[j]) ** 2  # type: ignore[index]
    return logits


@pytest.mark.parametrize("shots", [1, 2, 3, 4, 5])
def test_it_is_what_four_loops_give_for_any_number_of_shots(shots: int) -> None:
    one, task = network(shots), task_of(shots)
    assert torch.allclose(one(task), by_hand(one, task, shots), rtol=1e-9, atol=1e-10)


def test_the_order_of_the_support_set_is_of_classes_not_of_rows() -> None:
    one, task = network(2), task_of(2)
    order = torch.tensor([4, 0, 2, 1, 5, 3])  # the examples of each class in their order
    mixed = Task(0, task.classes, {}, {key: value[order] for key, value in task.support.items()}, task.query)
    assert torch.allclose(one(mixed), one(task))


def test_with_one_shot_and_even_features_it_is_prototypes() -> None:
    one, task = network(1), task_of(1)
    with torch.no_grad():
        one.projection.weight.zero_()
        one.projection.bias.zero_()
        one.last.weight.zero_()
        one.last.bias.fill_(math.log(math.e - 1))  # softplus gives 1
    support, query = one.read(task.support), one.read(task.query)
    assert torch.allclose(one(task), -torch.cdist(query, support).square(), atol=1e-9)
    assert torch.equal(one.instance_attention(support.unsqueeze(1), query), torch.ones(4, 3, 1).double())


def test_relu_can_silence_every_feature_and_softplus_cannot() -> None:
    task = task_of(3)
    for scores, silent in (("relu", True), ("softplus", False)):
        one = network(3, scores)
        with torch.no_grad():
            one.last.bias.fill_(-30.0)
        logits = one(task)
        assert bool((logits == 0).all()) is silent
        logits.log_softmax(dim=-1)[0, 0].backward()
        assert bool((one.last.bias.grad == 0).all()) is silent


def test_word_vectors_are_learned_and_padding_is_not() -> None:
    one, task = network(2), task_of(2)
    one(task).log_softmax(dim=-1)[:, 0].sum().backward()
    gradient = one.vectors.grad
    assert gradient is not None
    assert bool((gradient[1:].abs().sum(dim=1) > 0).any())
    assert bool((gradient[0] == 0).all())


def test_the_number_of_parameters_is_theirs_without_word_and_position_vectors() -> None:
    one = Hatt(torch.zeros(1, 60), 5)  # 50 of a word and 10 of positions, of which there are none here
    assert sum(parameter.numel() for parameter in one.parameters()) - 60 == 106_377 - 800
