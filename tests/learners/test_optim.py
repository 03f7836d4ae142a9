"""Steps inside a task are the plain ones, whatever the gradients' layout in memory."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from openprompt_meta.learners.optim import GradientSteps, InnerSteps, with_layout_of


@pytest.mark.parametrize("way", ["transposed", "expanded", "plain"])
def test_a_step_does_not_depend_on_how_a_gradient_lies_in_memory(way: str) -> None:
    torch.manual_seed(0)
    start = torch.randn(3, 3)
    factor = {"transposed": torch.randn(3, 3).t(), "expanded": torch.randn(3, 1).expand(3, 3)}.get(
        way, torch.randn(3, 3)
    )

    class Handed(torch.autograd.Function):
        """Hands the factor back as the gradient, as it lies."""

        @staticmethod
        def forward(ctx, weight):  # type: ignore[no-untyped-def]
            return (weight * factor).sum()

        @staticmethod
        def backward(ctx, gradient):  # type: ignore[no-untyped-def]
            return factor

    weight = nn.Parameter(start.clone())
    (given,) = torch.autograd.grad(Handed.apply(weight), [weight])
    assert given.stride() == factor.stride(), "else there is nothing to see here"
    GradientSteps([InnerSteps([weight], 0.5)]).take(Handed.apply(weight))
    for i in range(3):
        for j in range(3):
            assert weight[i, j].item() == pytest.approx(start[i, j].item() - 0.5 * factor[i, j].item(), rel=1e-6)


def test_a_gradient_that_is_laid_out_already_is_not_copied() -> None:
    parameter, gradient = torch.randn(2, 3), torch.randn(2, 3)
    assert with_layout_of(parameter, gradient) is gradient
    assert with_layout_of(parameter, None) is None


def test_each_group_takes_steps_of_its_own_and_what_the_loss_does_not_know_stays() -> None:
    one, two, idle = (nn.Parameter(torch.tensor([value])) for value in (1.0, 2.0, 3.0))
    steps = GradientSteps([InnerSteps([one, idle], 0.1), InnerSteps([two], 0.01, "adam")])
    for _ in range(2):
        steps.take(one.sum() + 5 * two.sum())
    assert one.item() == pytest.approx(1 - 2 * 0.1)
    assert two.item() == pytest.approx(2 - 2 * 0.01, rel=1e-5)  # Adam's steps are of the size lr, whatever the slope
    assert idle.item() == 3
    assert one.grad is None
