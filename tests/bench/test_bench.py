"""What the benchmarks rest on: fair turns, work counted rightly, the same mathematics on both sides."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from bench import __main__ as command
from bench import adaptation, growth, iteration, limit, prediction, timing
from bench.table import markdown
from bench.timing import alternate
from bench.workload import Workload, dataset_of, language_model
from openprompt_meta.learners.task import MetaLearner

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
def test_prediction_is_explained_by_the_tokens_that_are_read() -> None:
    found = prediction.measure(Workload("minilm", shot=1, way=2), rounds=2, texts=40)
    tokenizer = language_model("minilm", "float32").tokenizer
    lengths = [len(tokenizer(text)["input_ids"]) for text in dataset_of("short").test.texts[:40]]
    mean, (template, prompt) = sum(lengths) / 40, (4, 8)  # "Topic is [MASK]." and the length of a prompt
    assert found["tokens a text, padding and all"] == {
        "query vectors": pytest.approx(mean + template),
        "reading with prompts": pytest.approx(mean + template + prompt),
        "bare encoder": pytest.approx((32 * max(lengths[:32]) + 8 * max(lengths[32:])) / 40),
        "bare encoder, by length": max(lengths),
    }
    rate = found["texts/s"]
    assert found["shares"]["prediction, seen before, of the bare encoder, by length"] == pytest.approx(
        rate["prediction, seen before"] / rate["bare encoder, by length"]
    )


def test_adaptation_takes_fifteen_steps_both_ways(monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[int] = []
    evaluate = MetaLearner.evaluate
    monkeypatch.setattr(MetaLearner, "evaluate", lambda self, task, n: steps.append(n) or evaluate(self, task, 1))
    found = adaptation.measure(Workload("minilm", shot=1, way=2, query=1), rounds=2)
    assert steps == [15] * 4
    assert found["ratio"] == found["seconds"]["plain"] / found["seconds"]["fast"]


def test_the_table_says_of_each_figure_what_it_is() -> None:
    results = {
        "machine": {"threads": 2, "cores": 4},
        "clock": "wall",
        "rounds": 3,
        "iteration": [{"setting": "a", "seconds": {"fast": 2.0}, "ratio": {"plain": 4.0}, "breakdown": {"gelu": 0.1}}],
        "limit": [{"setting": "b", "gigaflop/s": 60.0, "peak gigaflop/s": 100.0, "reached": 0.6}],
        "adaptation": [{"setting": "c", "seconds": {"fast": 1.0}, "ratio": 4.2}],
        "prediction": [
            {
                "setting": "d",
                "shares": {"prediction, of the bare encoder": 0.5},
                "tokens a text, padding and all": {"query vectors": 13.0},
                "breakdown": {"tokens": 0.01},
            }
        ],
        "memory": [{"setting": "e", "megabytes": {"fast": 100.0, "plain": 400.0}, "fast/plain": 0.25}],
    }
    text = markdown(results)
    for expected in (
        "wall times, taken in turn in one process, best of 3, with 2 threads on 4 cores",
        "meta-iteration, a: fast 2.00 s",
        "4.0 times as fast as plain",
        "60 of 100 Gflop/s, 60%",
        "c: 1.00 s, 4.2 times as fast as plain",
        "prediction, of the bare encoder: 0.50 of its texts a second",
        "query vectors 13.0",
        "fast 100 MB, plain 400 MB, 0.25 of it",
    ):
        assert expected in text


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--rounds", "1"], "--rounds 1"),
        (["--shots", "0"], "--shots [0]: expected 1 to 25"),
        (["--shots", "26"], "--shots [26]: expected 1 to 25"),
        (["--out", "/dev/null/results"], "--out /dev/null/results: cannot be made"),
        (["--models", "gpt"], "invalid choice: 'gpt'"),
        (["--only", "adaptation", "--kinds", "long"], "name the models, e.g. --models minilm-mlm"),
    ],
)
def test_what_cannot_be_measured_is_refused(
    arguments: list[str], expected: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["bench", *arguments])
    with pytest.raises(SystemExit):
        command.main()
    assert expected in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "settings"),
    [
        ([], {"minilm-mlm, short texts, 1-shot", "minilm-mlm, long texts, 1-shot", "bert-base, short texts, 1-shot"}),
        (["--models", "bert-base"], {"bert-base, short texts, 1-shot", "bert-base, long texts, 1-shot"}),
        (["--kinds", "short", "--models", "minilm"], {"minilm, short texts, 1-shot"}),
    ],
)
def test_by_default_only_what_takes_minutes_is_measured_and_otherwise_what_is_asked_for(
    arguments: list[str], settings: set[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    found = {"seconds": {"fast": 1.0}, "ratio": {}, "breakdown": {}}
    monkeypatch.setattr(iteration, "measure", lambda work, rounds, full: {"setting": str(work), **found})
    fixed = ["bench", "--only", "iteration", "--shots", "1", "--out", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", [*fixed, *arguments])
    command.main()
    results = json.loads((tmp_path / "results.json").read_text())
    assert {one["setting"] for one in results["iteration"]} == settings
    assert results["rounds"] == 3
