"""The pool that ships: what it was made from, and that it serves from the first call on."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from openprompt_meta import MetaPromptClassifier
from openprompt_meta.classifier.artefact import read_artefact
from openprompt_meta.cli import main
from openprompt_meta.config.schema import KNOWN_DATASETS
from openprompt_meta.data.facts import facts_of
from openprompt_meta.data.loading import load
from openprompt_meta.errors import ConfigError, DataError, TemplateError
from openprompt_meta.pools import GENERAL, MADE_FROM
from openprompt_meta.tensor_files import read_tensors
from runners.make_pool import text_hashes

DEMO = load("demo")
CLASSES = DEMO.test.classes[:4]


def few(count: int) -> tuple[list[str], list[str]]:
    places = [(name, i) for name in CLASSES for i in DEMO.test.indices[name][:count]]
    return [DEMO.test.texts[i] for _, i in places], [name for name, _ in places]


def others(after: int) -> tuple[list[str], list[str]]:
    places = [(name, i) for name in CLASSES for i in DEMO.test.indices[name][after : after + 8]]
    return [DEMO.test.texts[i] for _, i in places], [name for name, _ in places]


# -- what it was made from --------------------------------------------------------------------------------------------


def test_nothing_of_a_test_split_is_in_the_making() -> None:
    hashes, metadata = read_tensors(GENERAL / MADE_FROM)
    learned = set(hashes["train"].tolist())
    assert len(learned) > 5000
    assert not learned & set(hashes["test"].tolist())
    classes = {name: set(metadata[f"classes of {name}"].split("\n")) for name in ("train", "test")}
    assert not classes["train"] & classes["test"]
    # Against lists that were not written with the pool: the demo's texts, and the classes of the six sets.
    assert set(text_hashes(DEMO.test.texts).tolist()) <= set(hashes["test"].tolist())
    assert not learned & set(text_hashes(DEMO.test.texts).tolist())
    for name in KNOWN_DATASETS:
        held_out = {f"{name}/{each}" for each in facts_of(name).splits["authors"].test}
        assert not classes["train"] & held_out, name


def test_it_is_small_and_what_was_saved() -> None:
    files = list(GENERAL.iterdir())
    assert sum(file.stat().st_size for file in files) < 1_000_000
    assert not [file for file in files if file.suffix not in (".json", ".safetensors", ".md")]
    stored = read_artefact(GENERAL)  # checks the checksums
    assert stored.task is None
    description = json.loads((GENERAL / "classifier.json").read_text("utf-8"))
    assert "/" not in description["base_model"]["name"]
    card = (GENERAL / "README.md").read_text("utf-8")
    for part in ("Where it does not help", "demo", *KNOWN_DATASETS):
        assert part in card


# -- using it ---------------------------------------------------------------------------------------------------------


def test_five_examples_are_enough_and_every_load_gives_the_same_bits(tmp_path: Path) -> None:
    texts, labels = few(5)
    asked, expected = others(5)
    classifier = MetaPromptClassifier().fit(texts, labels)
    probabilities = classifier.predict_proba(asked)
    assert (classifier.predict(asked) == expected).mean() > 0.8
    assert np.isfinite(probabilities).all()
    again = MetaPromptClassifier().fit(texts, labels)
    assert (again.predict_proba(asked) == probabilities).all()
    classifier.save_pretrained(tmp_path / "saved")
    loaded = MetaPromptClassifier.from_pretrained(tmp_path / "saved")
    assert (loaded.predict_proba(asked) == probabilities).all()
    assert loaded.head_ == classifier.head_
    assert str(classifier.head_).startswith("a logistic regression around class means with names")
    assert classifier.explain(asked[0]).head == classifier.head_


def test_no_example_is_needed_where_names_say_something() -> None:
    asked, expected = others(0)
    classifier = MetaPromptClassifier().fit([], [], classes=list(CLASSES))
    assert (classifier.predict(asked) == expected).mean() > 0.7
    with pytest.raises(DataError, match="their names say nothing"):
        MetaPromptClassifier().fit([], [], classes=["1", "2"])
    with pytest.raises(DataError, match="at least two classes"):
        MetaPromptClassifier().fit(["one text"], ["one class"])


def test_texts_of_no_class_can_be_turned_away() -> None:
    texts, labels = few(5)
    strange = ["the mitochondria are the powerhouse of the cell", "xqzw blorp"]
    asked, expected = others(5)
    classifier = MetaPromptClassifier(reject_below=0.5).fit(texts, labels)
    sure = classifier.predict_proba(asked).max(axis=1) >= 0.5
    found = classifier.predict([*asked, *strange])
    assert set(found[: len(asked)][~sure]) <= {"none of these"}
    assert (found[: len(asked)][sure] != "none of these").all()
    assert (found[: len(asked)] == expected).mean() > 0.6
    rejected = classifier.predict_proba(strange).max(axis=1) < 0.5
    assert ((found[len(asked) :] == "none of these") == rejected).all()
    truth = MetaPromptClassifier(reject_below=0.4).fit(*few(2)[:1], [i % 2 == 0 for i in range(8)])
    assert {type(label) for label in truth.predict(asked)} <= {bool, int}
    assert True in truth.predict(asked)
    numbers = MetaPromptClassifier(reject_below=0.999).fit(texts, [CLASSES.index(label) for label in labels])
    assert -1 in numbers.predict(strange)
    with pytest.raises(ConfigError, match=r"reject_below is 1.5; expected a probability below 1"):
        MetaPromptClassifier(reject_below=1.5).fit(texts, labels).predict(strange)
    clash = ["none of these" if label == labels[0] else label for label in labels]
    with pytest.raises(DataError, match="which is what reject_below calls"):
        MetaPromptClassifier(reject_below=0.5).fit(texts, clash).predict(strange)


def test_the_command_needs_no_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    texts, labels = few(3)
    rows = "".join(f'"{text}",{label}\n' for text, label in zip(texts, labels, strict=True))
    (tmp_path / "few.csv").write_text("text,label\n" + rows, encoding="utf-8")
    assert main(["fit", "--data", str(tmp_path / "few.csv"), "--out", str(tmp_path / "made")]) == 0
    shown = capsys.readouterr().out
    assert "4 classes from 12 examples" in shown
    assert "Decided by a logistic regression around class means with names" in shown
    assert MetaPromptClassifier.from_pretrained(tmp_path / "made").predict(texts[:1])[0] == labels[0]
    (tmp_path / "asked.csv").write_text(f'text\n"{texts[0]}"\n"xqzw blorp"\n', encoding="utf-8")
    command = ["predict", str(tmp_path / "made"), str(tmp_path / "asked.csv"), "--out", str(tmp_path / "done.csv")]
    for _ in range(2):  # the second finds every row done
        assert main([*command, "--reject-below", "0.97", "--quiet"]) == 0
    rejected = (tmp_path / "done.csv").read_text("utf-8").splitlines()
    assert rejected[2].startswith("xqzw blorp,none of these,")
    assert main([*command, "--reject-below", "7"]) == 2
    assert "reject_below is 7.0; expected a probability below 1" in capsys.readouterr().err


# -- going on from it -------------------------------------------------------------------------------------------------


def test_other_splits_may_call_unseen_what_it_has_seen(caplog: pytest.LogCaptureFixture) -> None:
    from openprompt_meta.config.validation import config_from_mapping
    from openprompt_meta.data.loading import open_dataset
    from openprompt_meta.methods.language_model import load_language_model
    from openprompt_meta.methods.method import build_method

    for splits, warns in (("default", False), ("random", True)):
        values = {
            "prompt_pool_template": {"init": "general", "num_prompts": 1, "features": "auto", "as_prefix": True},
            "dataset": {"splits": splits, "split_counts": [18, 9, 9] if splits == "random" else None},
        }
        config = config_from_mapping(values)
        caplog.clear()
        build_method(config, load_language_model(config), open_dataset(config.dataset), seed=0)
        assert ("is no measure of unseen classes" in caplog.text) == warns


def test_a_yaml_that_ships_with_the_recommended_preset_goes_on_from_it() -> None:
    from openprompt_meta.config.loading import find_yaml, load_config
    from openprompt_meta.data.loading import open_dataset
    from openprompt_meta.methods.language_model import load_language_model
    from openprompt_meta.methods.method import build_method

    config = load_config(find_yaml("demo"))
    assert config.prompt_pool_template.init == "general"
    template = build_method(
        config, load_language_model(config), open_dataset(config.dataset), seed=0
    ).classifier.template
    shipped, _ = read_tensors(GENERAL / "prompt_pool.safetensors")
    assert (template.pool.prompts == shipped["prompts"]).all()
    assert template.features == "mean"
    assert template.as_prefix


def test_a_run_goes_on_from_it() -> None:
    from openprompt_meta.config.validation import config_from_mapping
    from openprompt_meta.data.loading import open_dataset
    from openprompt_meta.methods.language_model import load_language_model
    from openprompt_meta.methods.method import build_method

    values = {"init": "general", "num_prompts": 1, "features": "mean", "as_prefix": True}
    config = config_from_mapping({"prompt_pool_template": values})
    method = build_method(config, load_language_model(config), open_dataset(config.dataset), seed=0)
    shipped, _ = read_tensors(GENERAL / "prompt_pool.safetensors")
    assert (method.template.pool.prompts == shipped["prompts"]).all()
    at_mask = config.with_values({"prompt_pool_template.features": "mask"})
    with pytest.raises(TemplateError, match=r"has features = mean; asked for is features = mask"):
        build_method(at_mask, load_language_model(at_mask), open_dataset(at_mask.dataset), seed=0)
    within = config.with_values({"prompt_pool_template.as_prefix": False})
    with pytest.raises(TemplateError, match=r"has as_prefix = True; asked for is as_prefix = False"):
        build_method(within, load_language_model(within), open_dataset(within.dataset), seed=0)
    wide = config.with_values({"prompt_pool_template.num_prompts": 3})
    with pytest.raises(TemplateError, match=r"has num_prompts = 1; asked for is num_prompts = 3"):
        build_method(wide, load_language_model(wide), open_dataset(wide.dataset), seed=0)


@pytest.mark.real_encoder
def test_leave_one_out_is_what_fitting_without_each_example_gives(tmp_path: Path) -> None:
    texts = ["will it rain", "how cold is it", "play some jazz", "next song", "it is cold music", "rain song"]
    labels = ["weather", "weather", "music", "music", "music", "weather"]
    classifier = MetaPromptClassifier().fit(texts, labels)
    right = 0
    for left in range(len(texts)):
        others = [i for i in range(len(texts)) if i != left]
        again = MetaPromptClassifier().fit([texts[i] for i in others], [labels[i] for i in others])
        right += again.predict([texts[left]])[0] == labels[left]
    assert classifier.leave_one_out() == (right, len(texts))
    found = classifier.leave_one_out(most=4)
    assert found is not None
    assert found[1] == 4
    assert MetaPromptClassifier().fit(texts[:3], labels[:3]).leave_one_out() is None
    classifier.save_pretrained(tmp_path / "kept")
    assert MetaPromptClassifier.from_pretrained(tmp_path / "kept").leave_one_out() == (right, len(texts))
    classifier.save_pretrained(tmp_path / "without", keep_texts=False)
    assert MetaPromptClassifier.from_pretrained(tmp_path / "without").leave_one_out() is None
    assert MetaPromptClassifier(inner_steps=1).fit(texts, labels).leave_one_out() is None
