from __future__ import annotations

import json
import sys

import pytest
import torch

from openprompt_meta.compat import bridge, versions
from openprompt_meta.compat.bridge import bridge_transformers
from openprompt_meta.errors import CompatibilityError
from tests.helpers.interpreters import pretend, run_python

# Reads OpenPrompt's own source for the names that it imports from transformers, and which of them are lacking now.
SURVEY = """
import ast, importlib, importlib.util, json, pathlib
def survey():
    folder = pathlib.Path(importlib.util.find_spec('openprompt').origin).parent
    objects = {}
    for path in folder.rglob('*.py'):
        for node in ast.walk(ast.parse(path.read_text(encoding='utf-8'))):
            if isinstance(node, ast.ImportFrom) and (node.module or '').split('.')[0] == 'transformers':
                for alias in node.names:
                    try:
                        found = getattr(importlib.import_module(node.module), alias.name)
                    except (ImportError, AttributeError):
                        found = None
                    objects[f'{node.module}.{alias.name}'] = found
    return objects
"""


@pytest.mark.prompts
def test_the_bridge_supplies_what_openprompt_lacks_and_touches_nothing_else() -> None:
    out = run_python(
        SURVEY + "import transformers.processing_utils\n"
        "before = survey()\n"
        "from openprompt_meta.compat.bridge import bridge_transformers\n"
        "first = bridge_transformers()\n"
        "after = survey()\n"
        "second = bridge_transformers()\n"
        "again = survey()\n"
        "print(json.dumps({\n"
        "    'lacking': sorted(n for n, o in before.items() if o is None),\n"
        "    'bridged': sorted(first),\n"
        "    'still lacking': [n for n, o in after.items() if o is None],\n"
        "    'replaced': [n for n, o in before.items() if o is not None and after[n] is not o],\n"
        "    'changed by a second call': [n for n, o in after.items() if again[n] is not o],\n"
        "    'bridged by a second call': sorted(set(second) - set(first)),\n"
        "    'count': len(before),\n"
        "}))\n"
    )
    found = json.loads(out)
    assert found["count"] > 30
    assert found["lacking"], "OpenPrompt lacks something on every supported transformers"
    assert found["bridged"] == found["lacking"]
    assert found["still lacking"] == []
    assert found["replaced"] == []
    assert found["changed by a second call"] == []
    assert found["bridged by a second call"] == []


def test_the_bridge_refuses_an_unsupported_transformers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "installed_version", pretend("transformers", "6.1.0"))
    with pytest.raises(CompatibilityError, match=r"transformers 6\.1\.0 .*>=4\.40,<6"):
        bridge_transformers()


@pytest.mark.prompts
def test_a_library_that_transformers_itself_lacks_is_not_papered_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(name: str) -> object:
        raise ModuleNotFoundError("No module named 'regex'", name="regex")

    monkeypatch.setattr(bridge.importlib, "import_module", broken)
    with pytest.raises(ModuleNotFoundError, match="regex"):
        bridge._has("transformers.file_utils", "ModelOutput")


AdamW = bridge._adamw()


def test_the_stand_in_for_adamw_does_not_decay_by_default() -> None:
    # torch's own default would shrink a parameter without a gradient by lr * 0.01.
    parameter = torch.nn.Parameter(torch.ones(3))
    optimiser = AdamW([parameter], lr=0.5)
    parameter.grad = torch.zeros(3)
    optimiser.step()
    assert torch.equal(parameter, torch.ones(3))


@pytest.mark.prompts
def test_the_stand_in_for_adamw_takes_the_steps_of_the_class_it_stands_for() -> None:
    bridge_transformers()
    stock = sys.modules["transformers"].AdamW
    torch.manual_seed(0)
    start, gradients = torch.randn(5, dtype=torch.float64), torch.randn(4, 5, dtype=torch.float64)

    def steps(optimiser_class: type[torch.optim.Optimizer]) -> torch.Tensor:
        parameter = torch.nn.Parameter(start.clone())
        optimiser = optimiser_class([parameter], lr=0.01, eps=1e-12)  # type: ignore[call-arg]
        for gradient in gradients:
            parameter.grad = gradient.clone()
            optimiser.step()
        return parameter.detach()

    torch.testing.assert_close(steps(AdamW), steps(stock), rtol=0, atol=1e-9)
    assert not torch.equal(steps(AdamW), start)


def test_the_stand_in_for_adamw_refuses_what_it_cannot_do() -> None:
    with pytest.raises(NotImplementedError, match="correct_bias"):
        AdamW([torch.nn.Parameter(torch.ones(1))], correct_bias=False)
