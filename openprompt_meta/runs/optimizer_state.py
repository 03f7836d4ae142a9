"""An optimiser's state as tensors for a file, and back: all that was kept, or nothing."""

from __future__ import annotations

import json
from collections.abc import Mapping

import torch
from torch import Tensor

from openprompt_meta.tensor_files import DamagedFile

__all__ = ["checked_state", "state_tensors"]

_PREFIX = "optimizer."
_KEPT = "optimizer_parameters"
"""Which parameters have had a gradient; a tuned language model has some that never get one."""
_ADAM_KEEPS = {"step", "exp_avg", "exp_avg_sq"}


def state_tensors(optimizer: torch.optim.Optimizer) -> tuple[dict[str, Tensor], dict[str, str]]:
    """What the optimiser keeps of each parameter that has had a gradient, and metadata that says which those are."""
    states = optimizer.state_dict()["state"]
    tensors = {
        f"{_PREFIX}{index}.{name}": torch.as_tensor(value)
        for index, state in states.items()
        for name, value in state.items()
    }
    return tensors, {_KEPT: json.dumps(sorted(states))}


def checked_state(
    optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor], metadata: Mapping[str, str]
) -> dict[int, dict[str, Tensor]]:
    """The ``state`` for the optimiser's ``load_state_dict``.

    Raises:
        DamagedFile: it is that of another optimiser, or not all of it is there.
    """
    parameters = [value for group in optimizer.param_groups for value in group["params"]]
    state: dict[int, dict[str, Tensor]] = {}
    for name, value in tensors.items():
        if name.startswith(_PREFIX):
            index, _, key = name.removeprefix(_PREFIX).partition(".")
            state.setdefault(int(index) if index.isdecimal() else -1, {})[key] = value
    # A file of the first release does not say: then all of them have had a gradient, or none.
    otherwise = json.dumps(list(range(len(parameters))) if state else [])
    complete = json.dumps(sorted(state)) == metadata.get(_KEPT, otherwise)
    fitting = (
        complete
        and state.keys() <= set(range(len(parameters)))
        and all(_fits(optimizer, parameters[index], kept) for index, kept in state.items())
    )
    if not fitting:
        raise DamagedFile("it holds the state of another optimiser, or only a part of it")
    return state


def _fits(optimizer: torch.optim.Optimizer, parameter: Tensor, kept: Mapping[str, Tensor]) -> bool:
    if isinstance(optimizer, (torch.optim.Adam, torch.optim.AdamW)) and kept.keys() != _ADAM_KEEPS:
        return False
    shapes = {name: () if name == "step" else tuple(parameter.shape) for name in kept}
    return all(tuple(value.shape) == shapes[name] and value.is_floating_point() for name, value in kept.items())
