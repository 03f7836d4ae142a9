"""What a checkpoint restores of an optimiser: all that was kept, or nothing."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from openprompt_meta.errors import CheckpointError
from openprompt_meta.runs.checkpoint import Progress, read_checkpoint, write_checkpoint
from openprompt_meta.tensor_files import packed, read_tensors


def learner(trained: tuple[str, ...] = ()) -> Any:
    """Two layers, of which ``trained`` parameters have had a gradient."""
    torch.manual_seed(0)
    layers = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.Linear(2, 1))
    optimizer = torch.optim.Adam(layers.parameters())
    for name, parameter in layers.named_parameters():
        if name in trained:
            parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    return SimpleNamespace(meta_parameters=layers, optimizer=optimizer)


def test_parameters_that_never_had_a_gradient_have_no_state_afterwards_either(tmp_path: Path) -> None:
    path = tmp_path / "last.safetensors"
    write_checkpoint(path, learner(trained=("0.weight", "1.bias")), Progress(iteration=3))
    found = learner()
    assert read_checkpoint(path, found).iteration == 3
    assert sorted(found.optimizer.state_dict()["state"]) == [0, 3]


def test_a_state_without_one_of_its_parameters_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "last.safetensors"
    write_checkpoint(path, learner(trained=("0.weight", "1.bias")), Progress())
    tensors, metadata = read_tensors(path)
    fewer = {name: value for name, value in tensors.items() if not name.startswith("optimizer.3.")}
    path.write_bytes(packed(fewer, metadata))
    with pytest.raises(CheckpointError, match="only a part of it"):
        read_checkpoint(path, learner())
