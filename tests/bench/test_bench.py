"""What the benchmarks rest on: fair turns, work counted rightly, the same mathematics on both sides."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from bench import growth, limit, prediction, timing
from bench.timing import alternate
from bench.workload import Workload, dataset_of, language_model

ROOT = Path(__file__).parents[2]


def test_ways_take_turns_and_the_best_time_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, calls = [0.0], []
    lasts = {"slow": iter([8.0, 6.0, 7.0]), "fast": iter([2.0, 3.0, 4.0])}

    def way(name: str) -> None:
        calls.append(name)
        clock[0] += next(lasts[name])

    monkeypatch.setattr(timing, "_clock", [lambda: clock[0]])
    times = alternate({name: partial(way, name) for name in lasts}, rounds=3)
    assert calls == ["slow", "fast"] * 3
    assert times.best == {"slow": 6.0, "fast": 2.0}
    assert times.ratio("slow", "fast") == 3.0


def test_texts_are_as_long_as_they_are_said_to_be() -> None:
    for kind, expected in (("short", 7), ("long", 160)):
        words = [len(text.split()) for text in dataset_of(kind).train.texts]
        assert sum(words) / len(words) == pytest.approx(expected, rel=0.1)


@pytest.mark.real_encoder
def test_growth_is_measured_for_texts_of_any_length_in_processes_of_their_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(growth, "AXES", {"words a text": (3, 9)})
    monkeypatch.chdir(ROOT)
    curve = growth.measure("words a text", 1, Workload("minilm", shot=1, way=2, query=1, inner_steps=1))
    assert curve["values"] == [3, 9]
    assert all(seconds > 0 for seconds in curve["seconds"])
    assert 0 < curve["megabytes"][0] < curve["megabytes"][1] + 50
    growth.draw([curve], tmp_path / "growth.png")
    assert (tmp_path / "growth.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.real_encoder
def test_the_work_of_an_iteration_is_counted_as_by_hand() -> None:
    work = Workload(shot=1, way=2, query=1, inner_steps=0, num_prompts=1)
    method = work.method("fast")
    (task,) = work.tasks(method)
    counted = limit.measure(work, rounds=1)["gigaflop"] * 1e9
    lengths = [*task.support["attention_mask"].sum(1).tolist(), *task.query["attention_mask"].sum(1).tolist()]
    d, layers = 384, 6
    forward = 0
    for length in lengths:
        whole = 2 * length * 12 * d * d + 4 * length * length * d  # four products of the layer, and attention
        last = 2 * length * 2 * d * d + 2 * 10 * d * d + 4 * length * d  # keys and values, then one position
        forward += (layers - 1) * whole + last
    assert counted == pytest.approx(2 * forward, rel=0.1)  # backward as forward: the weights are frozen


@pytest.mark.real_encoder
def test_one_command_writes_a_table_and_json(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "bench", "--only", "limit", "--models", "minilm", "--kinds", "short"]
    done = subprocess.run(
        [*command, "--shots", "1", "--rounds", "2", "--out", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    results = json.loads((tmp_path / "results.json").read_text())
    assert 0 < results["limit"][0]["reached"] < 1.5
    assert "limit, minilm, short texts, 1-shot, float32" in (tmp_path / "results.md").read_text()
    assert done.stdout.startswith("# Benchmarks")


@pytest.mark.real_encoder
def test_prediction_is_explained_by_tokens_that_add_up() -> None:
    found = prediction.measure(Workload("minilm", shot=1, way=2), rounds=2, texts=6)
    tokenizer = language_model("minilm", "float32").tokenizer
    lengths = [len(tokenizer(text)["input_ids"]) for text in dataset_of("short").test.texts[:6]]
    tokens = found["tokens a text"]
    template, prompt = 4, 8  # "Topic is [MASK]." and the length of a prompt
    assert tokens["bare encoder"] == tokens["bare encoder, sorted"] == max(lengths)  # one batch, padded
    assert tokens["query vectors"] == pytest.approx(sum(lengths) / 6 + template)
    assert tokens["reading with prompts"] == pytest.approx(sum(lengths) / 6 + template + prompt)
    assert sum(found["breakdown"].values()) == pytest.approx(1)
    rate, share = found["texts/s"], found["shares"]["prediction, of the bare encoder"]
    assert share == pytest.approx(rate["prediction"] / rate["bare encoder"])
