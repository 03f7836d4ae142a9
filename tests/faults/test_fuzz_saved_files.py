"""Mangled checkpoints, pools and run folders: refused with the reason, or what was saved; never something else."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from openprompt_meta.errors import CheckpointError, OpenPromptMetaError, TemplateError
from openprompt_meta.prompts.pool import PromptPool
from openprompt_meta.prompts.pool_files import read_pool_config, read_pool_weights, write_pool_files
from openprompt_meta.runs.checkpoint import (
    FORMAT,
    Progress,
    read_checkpoint,
    write_checkpoint,
)
from openprompt_meta.runs.run import Run
from openprompt_meta.tensor_files import packed, read_tensors
from tests.helpers.fuzzing import CASES, fuzzed, junk, mangled, only_reading
from tests.helpers.victims import SmallRun

DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.bool, torch.uint8, torch.complex64]


def learner() -> Any:
    torch.manual_seed(3)
    pool = PromptPool(2, 2, 8, 8)
    optimizer = torch.optim.Adam(pool.parameters())
    sum(parameter.square().sum() for parameter in pool.parameters()).backward()  # type: ignore[union-attr]
    optimizer.step()
    return SimpleNamespace(meta_parameters=pool, optimizer=optimizer)


def state(of: Any) -> list[torch.Tensor]:
    kept = of.optimizer.state_dict()["state"]
    moments = [kept[index][name] for index in sorted(kept) for name in sorted(kept[index])]
    return [*of.meta_parameters.state_dict().values(), *moments]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fuzz")


@st.composite
def tensor_files(draw: st.DrawFn, tensors: dict[str, torch.Tensor], metadata: dict[str, str]) -> bytes:
    """A file with a sound checksum that is untrusted all the same."""
    tensors, metadata = dict(sorted(tensors.items())), dict(sorted(metadata.items()))  # files have them in any order
    for _ in range(draw(st.integers(0, 3))):
        name = draw(
            st.sampled_from([*tensors, "pool.x", "optimizer.0", "optimizer.-1.step", "optimizer.²", "optimizer.", ""])
        )
        shape = draw(st.lists(st.integers(0, 4), max_size=4))
        tensors[name] = torch.zeros(shape, dtype=draw(st.sampled_from(DTYPES)))
    for name in draw(st.sets(st.sampled_from(sorted(tensors)), max_size=2)):
        del tensors[name]
    for name in draw(st.sets(st.sampled_from([*metadata, "x"]), max_size=2)):
        metadata[name] = json.dumps(draw(junk()))
    if "progress" in metadata and draw(st.booleans()):
        values = json.loads(metadata["progress"])
        if isinstance(values, dict):
            metadata["progress"] = json.dumps(
                {**values, draw(st.sampled_from(["iteration", "best_accuracy"])): draw(junk())}
            )
    return packed(tensors, metadata)


@fuzzed(50)
@given(st.data())
def test_a_mangled_checkpoint_is_refused_or_restores_what_was_saved(folder: Path, data: st.DataObject) -> None:
    file = folder / "checkpoint.safetensors"
    write_checkpoint(file, learner(), Progress(iteration=5, best_accuracy=0.5))
    file.write_bytes(data.draw(mangled(file.read_bytes())))
    found = learner()
    with torch.no_grad():
        found.meta_parameters.prompts.zero_()
    with only_reading():
        try:
            progress = read_checkpoint(file, found)
        except CheckpointError:
            return
    assert progress == Progress(iteration=5, best_accuracy=0.5)
    assert all(torch.equal(one, other) for one, other in zip(state(found), state(learner()), strict=True))


@fuzzed(40)
@given(st.data())
def test_a_checkpoint_of_a_stranger_is_refused_or_can_be_gone_on_with(folder: Path, data: st.DataObject) -> None:
    file = folder / "untrusted.safetensors"
    write_checkpoint(file, learner(), Progress())
    tensors, metadata = read_tensors(file)
    assert metadata["format"] == FORMAT
    file.write_bytes(data.draw(tensor_files(tensors, metadata)))
    found = learner()
    with only_reading():
        try:
            read_checkpoint(file, found)
        except CheckpointError:
            return
    sum(parameter.square().sum() for parameter in found.meta_parameters.parameters()).backward()
    found.optimizer.step()


@fuzzed(50)
@given(st.data(), st.sampled_from(["prompt_pool.json", "prompt_pool.safetensors"]))
def test_a_mangled_pool_is_refused_or_fits(folder: Path, data: st.DataObject, name: str) -> None:
    pool = PromptPool(2, 2, 8, 8)
    write_pool_files(folder / "pool", pool, "text", "model")
    file = folder / "pool" / name
    if name.endswith(".json") and data.draw(st.booleans()):
        content = json.loads(file.read_text())
        file.write_text(json.dumps({**content, data.draw(st.sampled_from(sorted(content))): data.draw(junk())}))
    else:
        file.write_bytes(data.draw(mangled(file.read_bytes())))
    with only_reading():
        try:
            config = read_pool_config(folder / "pool")
            made = PromptPool(config["num_prompts"], config["prompt_length"], 8, 8, top_n=config["top_n"])
            tensors = read_pool_weights(folder / "pool", made)
        except TemplateError:
            return
    assert torch.equal(tensors["prompts"], pool.prompts)


@fuzzed(40)
@given(st.data())
def test_a_pool_of_a_stranger_is_refused_or_fits(folder: Path, data: st.DataObject) -> None:
    write_pool_files(folder / "strange", PromptPool(2, 2, 8, 8), "text", "model")
    file = folder / "strange" / "prompt_pool.safetensors"
    file.write_bytes(data.draw(tensor_files(*read_tensors(file))))
    with only_reading():
        try:
            read_pool_config(folder / "strange")
            tensors = read_pool_weights(folder / "strange", PromptPool(2, 2, 8, 8))
        except TemplateError:
            return
    PromptPool(2, 2, 8, 8).load_state_dict(tensors, assign=True)


@fuzzed(min(CASES, 300) or 6)
@given(st.data())
def test_a_mangled_run_folder_is_refused_or_ends_with_results(
    folder: Path, straight: Path, small_run: SmallRun, data: st.DataObject
) -> None:
    run = folder / "run"
    shutil.rmtree(run, ignore_errors=True)
    shutil.copytree(straight, run)
    names = ["config.yaml", "versions.json", "results.json", "seed-0/test.json", "seed-0/metrics.jsonl"]
    names += ["seed-0/checkpoints/last.safetensors", "seed-0/checkpoints/best.safetensors"]
    if data.draw(st.booleans()):
        (run / "seed-0/test.json").unlink()  # so that training is looked at again
        names.remove("seed-0/test.json")
    for name in data.draw(st.sets(st.sampled_from(names), min_size=1, max_size=2)):
        (run / name).write_bytes(data.draw(mangled((run / name).read_bytes())))
    try:
        results = Run(small_run.config, run, show_progress=False).train()
    except OpenPromptMetaError:
        return
    assert results is not None
    assert json.loads((run / "results.json").read_text(encoding="utf-8")) == results
    assert not list(run.rglob("*.part"))
