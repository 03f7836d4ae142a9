"""A disk that keeps other bytes than it was given: found before the good file is replaced.

The bytes are changed on the real disk, between the writing and the reading back, by a hook on the opening of files.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from openprompt_meta.errors import CheckpointError, TemplateError
from openprompt_meta.files import write_atomic
from openprompt_meta.prompts.pool import PromptPool
from openprompt_meta.prompts.pool_files import read_pool_config, read_pool_weights, write_pool_files
from openprompt_meta.runs.checkpoint import Progress, load_pool, write_checkpoint

Damage = Callable[[int], None]
_damage: Damage | None = None


def _watch(event: str, arguments: tuple[Any, ...]) -> None:
    global _damage
    if _damage is None or event != "open" or not str(arguments[0]).endswith(".part"):
        return
    if arguments[2] & (os.O_WRONLY | os.O_RDWR):
        return
    damage, _damage = _damage, None
    descriptor = os.open(arguments[0], os.O_RDWR)
    try:
        damage(descriptor)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


sys.addaudithook(_watch)  # for good: hooks cannot be taken back


@contextmanager
def bad_disk(damage: Damage) -> Iterator[None]:
    """The next file that is read back was damaged before."""
    global _damage
    _damage = damage
    yield
    assert _damage is None, "nothing was read back"


def flip_a_bit(descriptor: int) -> None:
    middle = os.fstat(descriptor).st_size // 2
    byte = os.pread(descriptor, 1, middle)[0]
    os.pwrite(descriptor, bytes([byte ^ 1]), middle)


def lose_the_end(descriptor: int) -> None:
    os.ftruncate(descriptor, os.fstat(descriptor).st_size - 1)


def lose_everything(descriptor: int) -> None:
    os.ftruncate(descriptor, 0)


def zero_a_page(descriptor: int) -> None:
    os.pwrite(descriptor, bytes(min(4096, os.fstat(descriptor).st_size)), 0)


def add_bytes(descriptor: int) -> None:
    os.pwrite(descriptor, b"\0", os.fstat(descriptor).st_size)


DAMAGES = [flip_a_bit, lose_the_end, lose_everything, zero_a_page, add_bytes]


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("size", [1, 5000, 3_000_000])
def test_what_does_not_read_back_never_replaces_a_good_file(damage: Damage, size: int, tmp_path: Path) -> None:
    file = tmp_path / "file"
    write_atomic(file, b"old")
    with bad_disk(damage), pytest.raises(OSError, match="gives back other bytes than were written"):
        write_atomic(file, os.urandom(size - 1) + b"!")
    assert file.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["file"]
    write_atomic(file, b"new")
    assert file.read_bytes() == b"new"


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_bad_disk_leaves_the_checkpoint_before(damage: Damage, tmp_path: Path) -> None:
    file = tmp_path / "last.safetensors"
    old, new = (
        SimpleNamespace(meta_parameters=pool, optimizer=torch.optim.Adam(pool.parameters()))
        for pool in (PromptPool(2, 2, 8, 8), PromptPool(2, 2, 8, 8))
    )
    write_checkpoint(file, old, Progress(iteration=1))  # type: ignore[arg-type]
    with bad_disk(damage), pytest.raises(CheckpointError, match="other bytes than were written"):
        write_checkpoint(file, new, Progress(iteration=2))  # type: ignore[arg-type]
    assert load_pool(file, new.meta_parameters).iteration == 1
    assert torch.equal(new.meta_parameters.prompts, old.meta_parameters.prompts)


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_bad_disk_leaves_the_pool_that_was_saved(damage: Damage, tmp_path: Path) -> None:
    old = PromptPool(2, 2, 8, 8)
    write_pool_files(tmp_path, old, "old", "model")
    with bad_disk(damage), pytest.raises(TemplateError, match="cannot be saved"):
        write_pool_files(tmp_path, PromptPool(2, 2, 8, 8), "new", "model")
    assert read_pool_config(tmp_path)["text"] == "old"
    assert torch.equal(read_pool_weights(tmp_path, PromptPool(2, 2, 8, 8))["prompts"], old.prompts)


def test_a_save_killed_between_its_two_files_is_the_one_before(tmp_path: Path) -> None:
    torch.manual_seed(1)
    old, new = PromptPool(2, 2, 8, 8), PromptPool(3, 2, 8, 8)
    for folder, pool in (("old", old), ("new", new)):
        write_pool_files(tmp_path / folder, pool, folder, "model")
    # The JSON takes its place first: this is what a kill between the two leaves.
    (tmp_path / "new" / "prompt_pool.json").rename(tmp_path / "old" / "prompt_pool.json")
    assert read_pool_config(tmp_path / "old")["text"] == "old"
    assert torch.equal(read_pool_weights(tmp_path / "old", PromptPool(2, 2, 8, 8))["prompts"], old.prompts)
