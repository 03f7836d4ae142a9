"""`runners/measure_pool.py`: what it leaves out, what it is asked for, and what it prints."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from openprompt_meta.config.schema import RunConfig
from runners import measure_pool
from runners.measure_pool import asked_of, main, table, without

pytestmark = pytest.mark.meta


def mixture(*parts: str) -> RunConfig:
    values = {"dataset.mixture": list(parts), "dataset.apart_from": ["data/banking"]}
    return RunConfig().with_values(values)


@pytest.mark.parametrize(
    "path", ["data/hwu64", "./data/hwu64/", "data/../data/hwu64", "elsewhere/hwu64", "copies/hwu64.csv", "hwu64"]
)
def test_a_data_set_is_taken_out_by_its_path_or_its_name_and_held_apart(path: str) -> None:
    for part in ("hwu64", "data/hwu64"):
        left = without(mixture("demo", part, "data/liu54"), "hwu64", path).dataset
        assert left.mixture == ["demo", "data/liu54"]
        assert left.apart_from[0] == "data/banking"
        assert {part, path} <= set(left.apart_from)


def test_the_same_folder_under_another_name_is_taken_out(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    os.symlink(tmp_path / "mine", tmp_path / "linked")
    left = without(mixture("demo", str(tmp_path / "mine")), "linked", str(tmp_path / "linked")).dataset
    assert left.mixture == ["demo"]
    assert str(tmp_path / "linked") in left.apart_from


def test_what_is_not_in_the_mixture_is_held_apart_with_a_remark(capsys: pytest.CaptureFixture[str]) -> None:
    left = without(mixture("demo", "hwu64"), "tickets", "data/tickets").dataset
    assert left.mixture == ["demo", "hwu64"]
    assert left.apart_from == ["data/banking", "data/tickets"]
    assert "tickets is not in the mixture (demo, hwu64)" in capsys.readouterr().err


def test_settings_after_the_data_are_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    monkeypatch.setattr(measure_pool, "measure", lambda options: seen.append(options) or 0)
    assert main(["--leave-out", "pools/general", "--data", "demo", "data/hwu64", "meta.iterations=5"]) == 0
    assert main(["meta.iterations=5", "--leave-out", "pools/general", "--data", "demo", "--data", "data/hwu64"]) == 0
    for options in seen:
        assert options.data == ["demo", "data/hwu64"]
        assert options.overrides == ["meta.iterations=5"]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--data", "demo", "meta.iterations=5"], "it goes with --leave-out"),
        (["--leave-out", "pools/general", "--data", "meta.iterations=5"], "names no data set"),
        (["--leave-out", "pools/general", "--pool", "mine", "--data", "demo"], "not allowed with"),
    ],
)
def test_arguments_that_make_no_sense_are_refused(
    arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(arguments)
    assert told in capsys.readouterr().err


def test_the_texts_that_are_timed_are_of_all_classes_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure_pool, "UNSEEN", 6)
    texts = [f"{name}{i}" for name in "abc" for i in range(5)]
    split = SimpleNamespace(texts=texts, indices={name: range(5 * n, 5 * n + 5) for n, name in enumerate("abc")})
    assert asked_of(split, ["a", "b", "c"], 2) == ["a2", "a3", "b2", "b3", "c2", "c3"]


def test_the_table_compares_the_pool_with_what_was_tuned_on_the_same_tasks() -> None:
    rows = {
        "class means": {"5-way 1-shot": [0.5, 0.5, 0.7], "5-way 5-shot": [0.6, 0.6, 0.6]},
        "logistic regression": {"5-way 1-shot": [0.4, 0.4, 0.4], "5-way 5-shot": [0.7, 0.9, 0.8]},
        "pool": {"5-way 1-shot": [0.6, 0.6, 0.9], "5-way 5-shot": [0.8, 0.8, 0.8]},
        "contrastive": {"5-way 1-shot": [0.7, 0.5]},
    }
    printed = {line.split(" | ")[0].strip("| "): line for line in table(rows).splitlines()}
    ahead = printed["pool ahead by"]
    assert "13.33" in ahead
    assert "(class means) | 0.00" in ahead
    assert ahead.rstrip(" |").endswith("(logistic regression)")
    # 0.6 - 0.7 and 0.6 - 0.5: the third task was not tuned on.
    assert printed["pool ahead of contrastive, same tasks"].split(" | ")[1].startswith("0.00")
    assert printed["pool ahead of contrastive, same tasks"].endswith("|  |")
