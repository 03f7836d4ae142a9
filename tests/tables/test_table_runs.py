"""A table that is run: what is reused, what an interruption and a failure cost, what a dry run says."""

from __future__ import annotations

import csv
import json
import os
import runpy
import signal
from pathlib import Path
from typing import Any

import pytest
from scipy import stats

from openprompt_meta.runs import run as running
from openprompt_meta.runs.process import StopRequest
from openprompt_meta.runs.run import Run
from openprompt_meta.runs.training import Training
from openprompt_meta.tables.estimates import text_sizes
from tests.helpers.small_tables import KEYS, SmallTables

pytestmark = pytest.mark.meta

ROWS = ("--rows", "metaprompter", "mean-prototypes", "logistic-regression")


def records(folder: Path, stem: str = "main-5shot-small") -> dict[str, dict[str, str]]:
    (file,) = folder.glob(f"{stem}*.csv")
    return {record["row"]: record for record in csv.DictReader(file.read_text(encoding="utf-8").splitlines())}


def test_a_table_has_every_rows_mean_over_the_tasks_of_its_cells(tables: SmallTables) -> None:
    assert tables("main-5shot", *ROWS, "--seeds", "0", "1") == 0
    found = records(tables.folder)
    assert list(found) == ["metaprompter", "mean-prototypes", "logistic-regression"]
    by_method: dict[str, list[list[float]]] = {}
    for cell in sorted(tables.cells()):
        method = json.loads((cell / "results.json").read_text())["method"]
        (test,) = cell.glob("seed-*/test.json")
        by_method.setdefault(method, []).append(json.loads(test.read_text())["accuracies"])
    assert len(tables.cells()) == 6
    for method, tests in by_method.items():
        values = [value for test in tests for value in test]
        record = found[method.replace("_", "-")]
        assert float(record["mean"]) == pytest.approx(sum(values) / 12)
        assert (record["seeds"], record["tasks"]) == ("2", "6")
    assert found["metaprompter"]["parameters"] == str(8 * (32 + 2 * 32))
    assert found["mean-prototypes"]["parameters"] == "0"


def test_rows_are_compared_on_the_same_tasks(tables: SmallTables, capsys: pytest.CaptureFixture[str]) -> None:
    assert tables("main-5shot", *ROWS, "--against", "logistic-regression") == 0
    accuracies = {}
    for cell in tables.cells():
        method = json.loads((cell / "results.json").read_text())["method"]
        accuracies[method] = json.loads((cell / "seed-0" / "test.json").read_text())["accuracies"]
    record = records(tables.folder)["mean-prototypes"]
    test = stats.ttest_rel(accuracies["mean_prototypes"], accuracies["logistic_regression"])
    low, high = test.confidence_interval(0.95)
    middle, half = float(record["difference"]), float(record["difference_interval"])
    assert (middle - half, middle + half) == pytest.approx((low, high))
    assert record["against"] == "logistic-regression"
    assert "difference to logistic regression on the same tasks" in capsys.readouterr().out


def test_a_finished_table_is_printed_again_and_not_run_again(
    tables: SmallTables, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert tables("main-5shot", *ROWS) == 0
    first = capsys.readouterr().out

    def refuse(self: Run) -> None:
        raise AssertionError("a finished cell was run")

    monkeypatch.setattr(Run, "train", refuse)
    assert tables("main-5shot", *ROWS) == 0
    assert capsys.readouterr().out == first


def test_tables_share_cells_and_one_more_seed_runs_only_that(tables: SmallTables) -> None:
    keys = [key for key in KEYS if "prompt_length" not in key]
    assert tables("main-5shot", "--rows", "metaprompter", keys=keys) == 0
    (cell,) = tables.cells()
    stamp = (cell / "results.json").stat().st_mtime_ns
    assert tables("ablation-Lp", "--rows", "Lp-8", "--seeds", "0", "1", keys=keys) == 0
    assert len(tables.cells()) == 2
    assert (cell / "results.json").stat().st_mtime_ns == stamp


def test_what_a_row_does_not_use_does_not_run_it_again(tables: SmallTables) -> None:
    assert tables("main-5shot", "--rows", "mean-prototypes") == 0
    other = ["proto_verbalizer.mid_dim=8", "fine_tuning.steps=3", "meta.iterations=7"]
    assert tables("main-5shot", "--rows", "mean-prototypes", keys=[*KEYS, *other]) == 0
    assert len(tables.cells()) == 1
    assert tables("main-5shot", "--rows", "mean-prototypes", keys=[*KEYS, "meta.query=3"]) == 0
    assert len(tables.cells()) == 2


@pytest.mark.parametrize("kind", ["crash", "signal"])
def test_an_interrupted_table_goes_on_to_the_same_figures(
    tables: SmallTables, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = ("--rows", "K-1", "K-2")
    straight = SmallTables(tables.model, tables.root, tmp_path / "straight")
    assert straight("ablation-K", *rows) == 0
    real = Training._step

    def interrupted(self: Training, bar: Any) -> None:
        real(self, bar)
        if len(tables.cells()) == 2:  # in the second cell, after its first step
            if kind == "crash":
                raise KeyboardInterrupt
            os.kill(os.getpid(), signal.SIGTERM)

    with monkeypatch.context() as patch:
        patch.setattr(Training, "_step", interrupted)
        assert tables("ablation-K", *rows) == (130 if kind == "crash" else 143)
    assert len(list(tables.folder.glob("cells/*/results.json"))) == 1
    assert not list(tables.folder.glob("*.csv"))
    assert tables("ablation-K", *rows) == 0
    stem = "ablation-K-small"
    assert records(tables.folder, stem) == records(straight.folder, stem)


def test_a_cell_that_fails_does_not_cost_the_others(tables: SmallTables, capsys: pytest.CaptureFixture[str]) -> None:
    keys = [*KEYS, "prompt_pool_template.prompt_length=43"]  # a pool that leaves the text no room
    assert tables("main-5shot", *ROWS, keys=keys) == 1
    found = records(tables.folder)
    assert (found["metaprompter"]["mean"], found["metaprompter"]["missing"]) == ("", "failed")
    assert found["mean-prototypes"]["mean"] != ""
    printed = capsys.readouterr().out
    assert "Without a figure" in printed
    assert "MetaPrompter (small, 5-shot, seed 0): " in printed
    assert "max_seq_length" in printed.partition("Without a figure")[2]


def test_a_fault_in_a_library_is_one_rows_failure_too(
    tables: SmallTables, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class OutOfMemory(Run):
        def train(self, stop: StopRequest | None = None) -> dict[str, Any] | None:
            if self.config.method == "logistic_regression":
                raise MemoryError("20 GB wanted")
            return super().train(stop)

    monkeypatch.setattr(running, "Run", OutOfMemory)
    assert tables("main-5shot", "--rows", "mean-prototypes", "logistic-regression") == 1
    assert "MemoryError: 20 GB wanted" in capsys.readouterr().out
    monkeypatch.undo()
    assert tables("main-5shot", "--rows", "mean-prototypes", "logistic-regression") == 0


def test_a_row_that_the_model_cannot_run_is_refused_with_the_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from openprompt_meta.cli import main

    assert main(["table", "ablation-verbalizer", "--finished", "--json", "--folder", str(tmp_path)]) == 1
    result = json.loads(capsys.readouterr().out)
    assert [record["missing"] for record in result["records"]] == ["failed", "not run", "failed"]
    assert "needs a model with a vocabulary head" in result["failures"][0]


def test_a_damaged_cell_is_named_and_the_others_printed(
    tables: SmallTables, capsys: pytest.CaptureFixture[str]
) -> None:
    assert tables("main-5shot", "--rows", "mean-prototypes", "logistic-regression") == 0
    victim = min(tables.cells())
    (victim / "seed-0" / "test.json").write_text("{")
    assert tables("main-5shot", "--rows", "mean-prototypes", "logistic-regression") == 1
    assert f"{victim} are damaged. Delete the folder" in capsys.readouterr().out


def test_a_dry_run_says_what_would_be_run_and_writes_nothing(
    tables: SmallTables, capsys: pytest.CaptureFixture[str]
) -> None:
    assert tables("main-5shot", "--rows", "metaprompter") == 0
    before = sorted(tables.folder.rglob("*"))
    capsys.readouterr()
    assert tables("main-5shot", *ROWS, "--seeds", "0", "1", "--dry-run", "--json") == 0
    plan = {(one["row"], one["seed"]): one for one in json.loads(capsys.readouterr().out)}
    assert sorted(tables.folder.rglob("*")) == before
    assert plan["metaprompter", 0]["action"] == "reuse"
    assert plan["metaprompter", 1]["action"] == "run"
    assert plan["metaprompter", 1]["source"].startswith("finished cell")
    assert plan["mean-prototypes", 0]["source"] == "estimate"
    assert all(one["seconds"] > 0 for one in plan.values() if one["action"] == "run")


def test_a_dry_run_can_time_an_iteration_in_place_of_an_estimate(
    tables: SmallTables, capsys: pytest.CaptureFixture[str]
) -> None:
    assert tables("main-5shot", *ROWS, "--dry-run", "--time") == 0
    printed = capsys.readouterr().out
    assert printed.count("(one iteration, timed)") == 3
    assert not tables.folder.exists()


def test_a_dry_run_trains_nothing_and_loads_no_model(
    tables: SmallTables, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError

    monkeypatch.setattr(running, "Run", refuse)
    monkeypatch.setattr(running, "load_language_model", refuse)
    assert tables("main-5shot", "--dry-run") == 0
    assert "(estimate)" in capsys.readouterr().out


def test_a_signal_ends_a_dry_run_and_not_one_trial_of_it(
    tables: SmallTables, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Training, "_step", lambda self, bar: os.kill(os.getpid(), signal.SIGTERM))
    assert tables("ablation-K", "--rows", "K-1", "K-2", "--dry-run", "--time") == 143
    assert "resume" not in capsys.readouterr().err


def test_a_dry_run_says_of_what_cannot_be_read_why_it_has_no_estimate(
    tables: SmallTables, capsys: pytest.CaptureFixture[str]
) -> None:
    (tables.root / "small").rename(tables.root / "elsewhere")
    text_sizes.cache_clear()  # of tests before
    try:
        assert tables("main-5shot", "--rows", "mean-prototypes", "--dry-run") == 0
    finally:
        (tables.root / "elsewhere").rename(tables.root / "small")
    printed = capsys.readouterr().out
    assert "run     class means of mean-pooled features on small, 5-shot, seed 0: ? (fails: " in printed
    assert "not counting 1 without an estimate" in printed


def test_transductive_figures_have_a_column_of_their_own(
    tables: SmallTables, capsys: pytest.CaptureFixture[str]
) -> None:
    assert tables("main-5shot", *ROWS, keys=[*KEYS, "rep_verbalizer.centring=transductive"]) == 0
    assert "small 5-shot, transductive" in capsys.readouterr().out
    (file,) = tables.folder.glob("*.csv")
    filled = {
        (record["row"], record["kind"])
        for record in csv.DictReader(file.read_text(encoding="utf-8").splitlines())
        if record["mean"]
    }
    assert filled == {
        ("metaprompter", "transductive"),
        ("mean-prototypes", "inductive"),
        ("logistic-regression", "inductive"),
    }


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["meta.itrations=3"], "Did you mean 'meta.iterations'"),
        (["run.seeds=[0,1]"], "set by --seeds"),
        (["method=metaprompting"], "is what the rows of main-5shot are about"),
        (["--rows", "metapromter"], "Did you mean 'metaprompter'"),
        (["--rows", "hatt", "--against", "ds"], "no such row to compare with"),
        (["--seeds", "0", "0"], "none of them twice"),
        (["--seeds", "one"], "expected whole numbers"),
        (["--shots", "1"], "main-1shot and main-5shot are two"),
        (["--tasks", "1"], "at least 2"),
    ],
)
def test_what_cannot_be_meant_is_refused_before_anything_runs(
    tables: SmallTables, options: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert tables("main-5shot", *options) == 2
    assert message in capsys.readouterr().err
    assert not tables.folder.exists()


def test_the_runner_is_the_command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    runner = Path(__file__).parents[2] / "runners" / "run_table.py"
    monkeypatch.setattr("sys.argv", [str(runner), "--help"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(runner), run_name="__main__")
    assert ended.value.code == 0
    assert "usage: openprompt-meta table" in capsys.readouterr().out


def test_tables_of_other_rows_do_not_overwrite_each_other(tables: SmallTables) -> None:
    for row in ("mean-prototypes", "mask-prototypes"):
        assert tables("main-5shot", "--rows", row) == 0
    assert len(list(tables.folder.glob("main-5shot-small*.md"))) == 2
