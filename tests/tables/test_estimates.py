"""Estimates of a run's time: work as torch counts it, a rate that is measured once, and no torch to plan with."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode
from transformers import BertConfig, BertModel

from openprompt_meta.config.validation import config_from_mapping
from openprompt_meta.tables import estimates
from openprompt_meta.tables.estimates import EncoderSize, MachineRate, encoder_size, estimated_seconds, machine_rate

TOKENS = 12


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OPENPROMPT_META_CACHE", str(tmp_path))
    return tmp_path / "rates.json"


def test_work_is_what_torch_counts() -> None:
    size = EncoderSize(layers=3, width=32, inner=64, words=50)
    model = BertModel(
        BertConfig(
            num_hidden_layers=3,
            hidden_size=32,
            intermediate_size=64,
            vocab_size=50,
            num_attention_heads=2,
            attn_implementation="eager",
        ),
        add_pooling_layer=False,
    )
    with FlopCounterMode(display=False) as counter:
        model(torch.ones(1, TOKENS, dtype=torch.long))
    assert size.flops(TOKENS, at_mask=False) == counter.get_total_flops()
    # Keys and values of the last layer are half of its attention's products; everything else of it is left out.
    assert size.flops(TOKENS, at_mask=False) - size.flops(TOKENS, at_mask=True) == TOKENS * (
        4 * 32 * 32 + 4 * 32 * 64 + 4 * TOKENS * 32
    )


def test_the_packaged_encoder_has_its_own_size_and_an_unknown_one_that_of_bert() -> None:
    assert encoder_size("minilm") == (EncoderSize(6, 384, 1536, 30522), True)
    assert encoder_size("nobody/knows-this") == (EncoderSize(12, 768, 3072, 30522), False)


def test_the_rate_is_measured_once(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    size = EncoderSize(2, 32, 64, 50)
    measured = machine_rate(size, "float32", 1)
    assert measured.flops > 1e6
    monkeypatch.setattr(estimates, "_measure_rate", lambda *_: pytest.fail("measured again"))
    assert machine_rate(size, "float32", 1) == measured


@pytest.mark.parametrize("content", ["", "[]", '{"32x64 float32 1 threads": {"flops": 0, "bytes": 1}}'])
def test_a_damaged_rate_is_measured_anew(cache: Path, monkeypatch: pytest.MonkeyPatch, content: str) -> None:
    cache.write_text(content)
    monkeypatch.setattr(estimates, "_measure_rate", lambda *_: MachineRate(7.0, 5.0))
    assert machine_rate(EncoderSize(2, 32, 64, 50), "float32", 1) == MachineRate(7.0, 5.0)


def test_more_of_the_same_takes_as_much_longer(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(estimates, "_measure_rate", lambda *_: MachineRate(1e9, 1e9))

    def seconds(**keys: object) -> float:
        meta = {"iterations": 100, "validate_every": 50, "valid_tasks": 10, "test_tasks": 10, **keys}
        return estimated_seconds(config_from_mapping({"meta": meta}))[0]

    task = (seconds(test_tasks=110) - seconds()) / 100
    iteration = (seconds(iterations=200, validate_every=100) - seconds()) / 100
    # 15 steps there and back on 25 texts and a pass over 100, against 5 steps and a pass there and back.
    assert task / iteration == pytest.approx((100 + 15 * 2 * 25) / (2 * (5 * 25 + 100)), rel=0.02)
    assert seconds(valid_tasks=20) - seconds() == pytest.approx(3 * 10 * task)


def test_methods_without_an_inner_loop_take_what_they_read(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(estimates, "_measure_rate", lambda *_: MachineRate(1e9, 1e15))

    def seconds(method: str, **keys: object) -> float:
        meta = {"iterations": 100, "validate_every": 50, "valid_tasks": 10, "test_tasks": 10, **keys}
        return estimated_seconds(config_from_mapping({"method": method, "meta": meta}))[0]

    task = (seconds("contrastnet", test_tasks=110) - seconds("contrastnet")) / 100
    more = seconds("contrastnet", iterations=200, validate_every=100) - seconds("contrastnet")
    # Forwards, and back through weights: both sets, and in two forms 10 texts and 2 tasks of 25; a task is read once.
    assert more / 100 / task == pytest.approx(3 * (25 + 75 + 2 * (10 + 2 * 25)) / (25 + 75), rel=0.02)
    for method in ("ds", "mlada", "hatt"):  # no text goes through the language model
        assert 0 < seconds(method, test_tasks=110) - seconds(method) < 100 * task / 20


def test_a_plan_with_a_known_rate_needs_no_torch(cache: Path) -> None:
    rate = '{"flops": 1e11, "bytes": 1e10}'
    for threads in range(1, 257):
        cache.write_text(
            (cache.read_text()[:-1] + "," if threads > 1 else "{") + f'"384x1536 float32 {threads} threads": {rate}}}'
        )
    code = (
        "import sys; from openprompt_meta.cli import main; "
        "main(['table', 'main-5shot', '--dry-run']); sys.exit(3 if 'torch' in sys.modules else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "cells to run" in done.stdout, done.stderr
    assert done.returncode == 0
