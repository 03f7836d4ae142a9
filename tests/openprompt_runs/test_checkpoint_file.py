"""Training state in a file that cannot hold code."""

from __future__ import annotations

import math
import pickle
from pathlib import Path
from typing import Any

import dill
import pytest
import safetensors.torch
import torch
from hypothesis import given
from hypothesis import strategies as st

from openprompt_meta.errors import CheckpointError
from openprompt_meta.openprompt_runs.runners import read_runner_state, write_runner_state
from openprompt_meta.tensor_files import DamagedFile, flatten_tree, rebuild_tree

pytestmark = pytest.mark.prompts

_LEAVES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
_TREES = st.recursive(
    _LEAVES, lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.integers(), inner), max_leaves=20
)


@given(_TREES)
def test_plain_trees_come_back_as_they_were(tree: Any) -> None:
    assert rebuild_tree(*flatten_tree(tree)) == tree


def test_tensors_come_back_bit_for_bit() -> None:
    tensors = {
        "half": torch.tensor([0.1, -math.inf], dtype=torch.float16),
        "double": torch.rand(2, 3, dtype=torch.float64).T,
        "flags": torch.tensor([True, False]),
        "bytes": torch.get_rng_state(),
        "scalar": torch.tensor(3.5),
        "empty": torch.empty(0, 4),
    }
    for name, value in rebuild_tree(*flatten_tree(tensors)).items():
        assert value.dtype == tensors[name].dtype
        assert torch.equal(value, tensors[name])


def test_an_optimiser_goes_on_as_if_nothing_had_happened() -> None:
    def train(parameter: torch.nn.Parameter, optimizer: torch.optim.Optimizer, steps: int) -> None:
        for _ in range(steps):
            optimizer.zero_grad()
            (parameter**2).sum().backward()
            optimizer.step()

    straight = torch.nn.Parameter(torch.tensor([1.0, -2.0]))
    through = torch.optim.AdamW([straight], lr=0.1)
    train(straight, through, 2)
    saved = rebuild_tree(*flatten_tree({"parameter": straight, "optimizer": through.state_dict()}))
    train(straight, through, 3)

    resumed = torch.nn.Parameter(saved["parameter"])
    again = torch.optim.AdamW([resumed], lr=0.5)
    again.load_state_dict(saved["optimizer"])
    train(resumed, again, 3)
    assert torch.equal(resumed, straight)


def test_tied_weights_may_share_their_memory() -> None:
    weight = torch.rand(3, 2)
    back = rebuild_tree(*flatten_tree({"embedding": weight, "decoder": weight}))
    assert torch.equal(back["embedding"], back["decoder"])


def test_copies_are_equal(tmp_path: Path) -> None:
    write_runner_state({"epoch": 1}, tmp_path / "last", tmp_path / "best")
    assert (tmp_path / "last").read_bytes() == (tmp_path / "best").read_bytes()
    assert sorted(file.name for file in tmp_path.iterdir()) == ["best", "last"]


class _Payload:
    """Writes a file when it is unpickled."""

    def __init__(self, target: str) -> None:
        self.target = target

    def __reduce__(self) -> tuple[Any, ...]:
        return (open, (self.target, "w"))


def _as_torch(payload: Any, path: Path) -> None:
    torch.save(payload, path)


def _as_openprompt(payload: Any, path: Path) -> None:
    torch.save(payload, path, pickle_module=dill)


def _as_pickle(payload: Any, path: Path) -> None:
    path.write_bytes(pickle.dumps(payload))


@pytest.mark.parametrize("write", [_as_torch, _as_openprompt, _as_pickle])
def test_a_pickle_is_refused_and_does_nothing(write: Any, tmp_path: Path) -> None:
    write({"state_dict": _Payload(str(tmp_path / "executed"))}, tmp_path / "last.ckpt")
    with pytest.raises(CheckpointError, match="not a checkpoint of this package"):
        read_runner_state(tmp_path / "last.ckpt")
    assert not (tmp_path / "executed").exists()


def test_the_payload_of_the_test_above_would_have_been_executed(tmp_path: Path) -> None:
    pickle.loads(pickle.dumps(_Payload(str(tmp_path / "executed")))).close()  # noqa: S301
    assert (tmp_path / "executed").exists()


@pytest.mark.parametrize("length", [0, 4, 60, 200])
def test_half_a_file_is_refused(length: int, tmp_path: Path) -> None:
    file = tmp_path / "last.ckpt"
    write_runner_state({"tensor": torch.rand(100), "epoch": 3}, file)
    file.write_bytes(file.read_bytes()[:length])
    with pytest.raises(CheckpointError, match="damaged"):
        read_runner_state(file)


@pytest.mark.parametrize("part", [b'[[\\"epoch\\", 3]', bytes(range(40, 50))])
def test_an_altered_file_is_refused(part: bytes, tmp_path: Path) -> None:
    file = tmp_path / "last.ckpt"
    write_runner_state({"epoch": 3, "tensor": torch.arange(100, dtype=torch.uint8)}, file)
    content = file.read_bytes()
    assert part in content
    file.write_bytes(content.replace(part, part.replace(b"3", b"4").replace(bytes([41]), bytes([42]))))
    with pytest.raises(CheckpointError, match="does not match its checksum"):
        read_runner_state(file)


@pytest.mark.parametrize("rest", ["", "{", "{}", "[" * 100_000, '{"tensor": "7"}', '{"items": [[1]]}', '{"items": 3}'])
def test_what_is_no_tree_is_refused(rest: str) -> None:
    with pytest.raises(DamagedFile, match="no tree"):
        rebuild_tree({}, rest)


def test_other_safetensors_are_refused(tmp_path: Path) -> None:
    (tmp_path / "last.ckpt").write_bytes(safetensors.torch.save({"weight": torch.rand(2)}))
    with pytest.raises(CheckpointError, match="not a checkpoint of this package"):
        read_runner_state(tmp_path / "last.ckpt")
