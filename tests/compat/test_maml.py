from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from openprompt_meta.compat import maml as compat_maml
from openprompt_meta.compat import versions
from openprompt_meta.compat.maml import load_maml
from openprompt_meta.errors import CompatibilityError
from tests.helpers.interpreters import pretend, run_python

pytestmark = pytest.mark.meta

STEPS, RATE = 3, 0.3


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 1)).double()


def batches() -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(1)
    draw = lambda *shape: torch.randn(*shape, generator=generator, dtype=torch.float64)  # noqa: E731
    return (draw(5, 4), draw(5, 1)), (draw(7, 4), draw(7, 1))


def by_learn2learn(first_order: bool) -> list[Tensor]:
    model = network()
    support, query = batches()
    maml = load_maml()(model, lr=RATE, first_order=first_order)
    learner = maml.clone()
    for _ in range(STEPS):
        learner.adapt(nn.functional.mse_loss(learner(support[0]), support[1]))
    nn.functional.mse_loss(learner(query[0]), query[1]).backward()
    return [parameter.grad for parameter in model.parameters() if parameter.grad is not None]


def by_hand(first_order: bool) -> list[Tensor]:
    """The same with plain tensors: w1, b1, w2, b2 and the chain of updates written out."""
    (x, y), (x_query, y_query) = batches()
    start = [parameter.detach().clone().requires_grad_() for parameter in network().parameters()]

    def loss(weights: list[Tensor], inputs: Tensor, targets: Tensor) -> Tensor:
        w1, b1, w2, b2 = weights
        return ((torch.tanh(inputs @ w1.T + b1) @ w2.T + b2 - targets) ** 2).mean()

    weights = start
    for _ in range(STEPS):
        gradients = torch.autograd.grad(loss(weights, x, y), weights, create_graph=not first_order)
        weights = [weight - RATE * gradient for weight, gradient in zip(weights, gradients, strict=True)]
    return list(torch.autograd.grad(loss(weights, x_query, y_query), start))


@pytest.mark.parametrize("first_order", [True, False])
def test_learn2learns_maml_equals_a_hand_written_one(first_order: bool) -> None:
    theirs, ours = by_learn2learn(first_order), by_hand(first_order)
    assert len(theirs) == len(ours) == 4
    for one, other in zip(theirs, ours, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-12)


def test_first_and_second_order_differ() -> None:
    differences = [(one - other).abs().max() for one, other in zip(by_hand(True), by_hand(False), strict=True)]
    assert max(differences) > 1e-3


def test_loading_it_needs_neither_gym_nor_torchvision_and_leaves_no_trace() -> None:
    out = run_python(
        "import sys\n"
        "from openprompt_meta.compat.maml import load_maml\n"
        "print(load_maml().__module__, load_maml() is load_maml())\n"
        "print([n for n in sys.modules if n.split('.')[0] in ('learn2learn', 'gym', 'torchvision', 'transformers')])\n"
        # The genuine package comes now: its __init__ runs, and stops at a library that is not installed, if any.
        "try:\n"
        "    import learn2learn\n"
        "except ModuleNotFoundError as error:\n"
        "    print('learn2learn' not in (error.name or ''))\n"
        "else:\n"
        "    print(hasattr(learn2learn, '__version__'))\n"
    )
    assert out.split("\n") == ["learn2learn.algorithms.maml True", "[]", "True"]


def test_a_learn2learn_that_the_program_imported_is_used() -> None:
    out = run_python(
        "import sys, types\n"
        "for name in ('learn2learn', 'learn2learn.algorithms', 'learn2learn.algorithms.maml'):\n"
        "    sys.modules[name] = types.ModuleType(name)\n"
        "class MAML: pass\n"
        "sys.modules['learn2learn.algorithms.maml'].MAML = MAML\n"
        "from openprompt_meta.compat.maml import load_maml\n"
        "print(load_maml() is MAML, 'learn2learn.algorithms' in sys.modules)\n"
    )
    assert out == "True True"


def test_without_learn2learn_the_command_that_installs_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "installed_version", pretend("learn2learn", None))
    compat_maml._maml_module.cache_clear()
    with pytest.raises(CompatibilityError, match=r"learn2learn is not installed.*build_ext learn2learn==0\.2\.0"):
        load_maml()
