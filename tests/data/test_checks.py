from __future__ import annotations

import argparse
import json
import re
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from openprompt_meta.cli.data import add_parser
from openprompt_meta.data.checks import (
    check,
    drop_conflicts,
    drop_duplicates,
    drop_small_classes,
)
from openprompt_meta.data.dataset import Split, TextDataset
from openprompt_meta.data.loading import load
from openprompt_meta.errors import DataError

Rows = list[tuple[str, str]]


def make_dataset(**splits: Rows) -> TextDataset:
    return TextDataset(
        "mine",
        {
            name: Split(
                name, tuple(t for t, _ in rows), tuple(c for _, c in rows), tuple(dict.fromkeys(c for _, c in rows))
            )
            for name, rows in splits.items()
        },
    )


def many(label: str, count: int = 20) -> Rows:
    return [(f"{label} text {i}", label) for i in range(count)]


def codes(dataset: TextDataset, **options: object) -> dict[str, int]:
    return {finding.code: finding.count for finding in check(dataset, ways=1, **options).findings}  # type: ignore[arg-type]


def test_a_sound_set_has_no_findings() -> None:
    report = check(make_dataset(train=many("a"), test=many("b")), ways=1)
    assert report.findings == ()
    assert report.passed


def test_every_kind_of_flaw_is_found() -> None:
    sound = make_dataset(train=many("a"), test=many("b"))
    assert codes(make_dataset(train=many("a"), test=[(text + "!", c) for text, c in many("a")])) == {
        "class-overlap": 1
    }
    assert codes(make_dataset(train=[*many("a"), ("Same  text", "a")], test=[*many("b"), ("same text", "b")])) == {
        "text-in-two-splits": 1
    }
    assert codes(make_dataset(train=[*many("a"), *many("b"), ("x", "a"), ("X", "b")])) == {"text-with-two-labels": 1}
    assert codes(make_dataset(train=[*many("a"), ("x", "a"), ("x ", "a"), ("x", "a")])) == {"duplicates": 2}
    assert codes(make_dataset(train=many("a", 19))) == {"class-too-small": 1}
    assert codes(make_dataset(train=many("a", 19)), shots=1) == {}
    assert codes(sound, named={"a"}) == {"label-words-missing": 1}
    assert codes(sound, mismatches=["x"]) == {"list-mismatch": 1}
    shared = TextDataset("mine", sound.splits, {"a": ("Word", "one"), "b": ("word", "two")})
    assert codes(shared) == {"label-words-shared": 1}
    assert check(sound, ways=2).findings[0].code == "too-few-classes"


def test_errors_fail_unless_they_are_allowed_and_warnings_do_not() -> None:
    crossing = make_dataset(train=[*many("a"), ("x", "a")], test=[*many("b"), ("x", "b")])
    assert not check(crossing, ways=1).passed
    assert check(crossing, ways=1, allow=["text-in-two-splits"]).passed
    assert check(make_dataset(train=[*many("a"), ("x", "a"), ("x", "a")]), ways=1).passed
    with pytest.raises(DataError, match="Did you mean 'class-overlap'"):
        check(crossing, allow=["class-overlaps"])


ROWS = st.lists(st.tuples(st.sampled_from(["x", "X ", "y", "z", "w"]), st.sampled_from("ab")), max_size=12)


@given(train=ROWS, test=ROWS)
@settings(max_examples=150, deadline=None)
def test_dropping_conflicts_keeps_exactly_the_texts_that_a_brute_force_count_keeps(train: Rows, test: Rows) -> None:
    splits = {"train": train, "test": [(text, label + "2") for text, label in test]}
    cleaned = drop_conflicts(make_dataset(**splits))
    for name, rows in splits.items():
        kept = []
        for text, label in rows:
            here = {c for t, c in rows if t.strip().lower() == text.strip().lower()}
            there = any(
                t.strip().lower() == text.strip().lower() for other, o in splits.items() if other != name for t, _ in o
            )
            if len(here) == 1 and not there:
                kept.append((text, label))
        assert list(zip(cleaned[name].texts, cleaned[name].labels, strict=True)) == kept
    remaining = check(cleaned, ways=1, shots=0, queries=0)
    assert not {"text-in-two-splits", "text-with-two-labels"} & {finding.code for finding in remaining.findings}


@given(rows=ROWS)
@settings(max_examples=60, deadline=None)
def test_dropping_duplicates_leaves_one_of_each(rows: Rows) -> None:
    cleaned = drop_duplicates(make_dataset(train=rows)).train
    expected = {(text.strip().lower(), label) for text, label in rows}
    found = Counter((text.strip().lower(), label) for text, label in zip(cleaned.texts, cleaned.labels, strict=True))
    assert found == dict.fromkeys(expected, 1)


def test_small_classes_can_be_left_out() -> None:
    cleaned = drop_small_classes(make_dataset(train=many("a") + many("b", 3)), at_least=20)
    assert cleaned.train.classes == ("a",)
    assert len(cleaned.train) == 20


def test_loading_refuses_files_that_contradict_their_lists(tmp_path: Path) -> None:
    for name, label in (("train", "a"), ("test", "b")):
        (tmp_path / f"{name}.jsonl").write_text(json.dumps({"text": f"text of {name}", "label": label}) + "\n")
    (tmp_path / "splits.json").write_text(json.dumps({"default": {"train": ["b"], "test": ["a", "c"]}}))
    with pytest.raises(
        DataError, match=r"'a' is in train\.jsonl but listed under test.*'c' is listed under test but has no text"
    ):
        load(tmp_path)


def run(*arguments: str) -> int:
    parser = argparse.ArgumentParser()
    add_parser(parser.add_subparsers())
    options = parser.parse_args(["data", *arguments])
    code: int = options.run(options)
    return code


def test_the_list_names_every_set(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("list") == 0
    table = capsys.readouterr().out
    assert all(name in table for name in ("demo", "20news", "amazon", "huffpost", "reuters", "hwu64", "liu54"))
    assert run("list", "--json") == 0
    assert json.loads(capsys.readouterr().out)[0]["classes"] == [18, 9, 9]


def test_the_check_of_the_demo_set_passes(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("check", "demo") == 0
    assert capsys.readouterr().out.endswith("passed\n")


def test_the_check_of_a_spoilt_folder_fails_until_the_flaw_is_dropped_or_allowed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, label in (("train", "a"), ("test", "b")):
        rows = [*many(label), ("the same everywhere", label)]
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps({"text": t, "label": c}) + "\n" for t, c in rows))
    arguments = ["check", str(tmp_path), "--ways", "1"]
    assert run(*arguments) == 1
    output = capsys.readouterr().out
    assert "error    texts in more than one split: 1 (text-in-two-splits)" in output
    assert "the same everywhere (test, train)" in output
    assert run(*arguments, "--allow", "text-in-two-splits") == 0
    assert "allowed  texts in more than one split" in capsys.readouterr().out
    assert run(*arguments, "--drop", "conflicts") == 0
    capsys.readouterr()
    assert run(*arguments, "--json") == 1
    report = json.loads(capsys.readouterr().out)
    assert report["passed"] is False
    assert report["rows"][0]["in_other_splits"] == 1


def test_a_file_of_few_examples_is_judged_for_fit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "few.csv"
    file.write_text("text,label\nrain,weather\nstorm,weather\nsong,music\nred,label_3\n")
    assert run("check", str(file)) == 0  # as a set for runs it would have too few classes and texts
    printed = capsys.readouterr().out
    assert f"{file}: 4 examples of 3 classes, looked at for `fit`" in printed
    assert re.search(r"^weather +2  rain$", printed, flags=re.MULTILINE)
    assert "classes with one example, on which no accuracy can be estimated: 2 (one-example)" in printed
    assert "class names that say nothing, so that examples alone count: 1 (silent-name)" in printed
    assert f"next: openprompt-meta fit --data {file} --out my_classifier" in printed
    assert run("check", str(file), "--for", "runs") == 1
    assert "class-too-small" in capsys.readouterr().out
    file.write_text("text,label\nrain,weather\nRain ,music\n")
    assert run("check", str(file), "--json") == 1
    report = json.loads(capsys.readouterr().out)
    assert next(finding["code"] for finding in report["findings"]) == "text-with-two-labels"
    assert report["classes"] == {"weather": 1, "music": 1}
    file.write_text("text,label\nrain,weather\nstorm,weather\n")
    assert run("check", str(file)) == 1
    assert "too-few-classes" in capsys.readouterr().out


def test_a_table_without_splits_is_checked_as_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.csv").write_text("text,label\n" + "".join(f"{t},{c}\n" for t, c in many("a") + many("b")))
    assert run("check", str(tmp_path / "a.csv"), "--for", "runs", "--ways", "2") == 0
    assert "all" in capsys.readouterr().out
