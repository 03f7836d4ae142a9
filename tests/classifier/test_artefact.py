"""A classifier on disk: what it holds, who can read it, what is refused, and that nothing is ever half there."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import re
import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch

from openprompt_meta import MetaPromptClassifier, PromptPoolTemplate, load_mlm
from openprompt_meta import files as whole_folder
from openprompt_meta.classifier.adaptation import FittedTask
from openprompt_meta.classifier.artefact import FILES, Stored, read_artefact
from openprompt_meta.config.schema import RunConfig
from openprompt_meta.errors import ArtefactError, DataError, ModelError
from openprompt_meta.runs.run import Run
from tests.helpers.few_texts import LABELS, QUESTIONS, TEXTS
from tests.helpers.other_values import another_value, configs_with_each_key_changed
from tests.helpers.small_runs import small_config, write_data


@pytest.fixture
def saved(fitted: MetaPromptClassifier, tmp_path: Path) -> Path:
    fitted.save_pretrained(tmp_path / "saved")
    return tmp_path / "saved"


def content_of(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def edit(folder: Path, change: Callable[[dict[str, Any]], None], name: str = "classifier.json") -> None:
    """Change a JSON of a saved classifier, and the checksum of it."""
    content = json.loads((folder / name).read_text("utf-8"))
    change(content)
    (folder / name).write_text(json.dumps(content), "utf-8")
    seal(folder, name)


def seal(folder: Path, name: str) -> None:
    description = json.loads((folder / "classifier.json").read_text("utf-8"))
    if name in description["files"]:
        description["files"][name] = hashlib.sha256((folder / name).read_bytes()).hexdigest()
        (folder / "classifier.json").write_text(json.dumps(description), "utf-8")


# -- round trips ------------------------------------------------------------------------------------------------------


def test_a_loaded_classifier_predicts_the_same_bits(fitted: MetaPromptClassifier, saved: Path) -> None:
    loaded = MetaPromptClassifier.from_pretrained(saved)
    assert np.array_equal(loaded.predict_proba(QUESTIONS), fitted.predict_proba(QUESTIONS))
    assert loaded.explain(QUESTIONS[0]) == fitted.explain(QUESTIONS[0])
    assert list(loaded.classes_) == list(fitted.classes_)


def test_every_key_is_found_again(unfitted: MetaPromptClassifier, tmp_path: Path) -> None:
    meta = unfitted.meta_learned
    # What tensors the pool has and the base model are facts of what was learned, the others for the reader to say.
    # Of where the data were, the last part.
    pool = {f"prompt_pool_template.{name}" for name in ("num_prompts", "prompt_length", "attention")}
    fixed = {"plm.model_path", "plm.allow_pickle", "run.device", "run.folder", *pool}
    for key, config in configs_with_each_key_changed(meta.config):
        if key.path not in fixed:
            unfitted._meta = (unfitted._source(), replace(meta, config=config))
            unfitted.save_pretrained(tmp_path / "saved")
            kept = read_artefact(tmp_path / "saved").meta.config
            changed = another_value(key)
            assert kept.value_at(key.path) == (Path(changed).name if key.path == "dataset.path" else changed), key.path


def test_nothing_says_where_the_run_and_its_data_lay(tiny_mlm_folder: Callable[[str], Path], tmp_path: Path) -> None:
    config = small_config(tiny_mlm_folder("bert"), write_data(tmp_path / "secret place" / "data"), iterations=2)
    words = tmp_path / "secret place" / "words.json"
    words.write_bytes((tmp_path / "secret place/data/labels.json").read_bytes())
    run = tmp_path / "secret place" / "run"
    config = config.with_values({"run.folder": str(run), "dataset.label_words": str(words)})
    Run(config, run, show_progress=False).train()
    fitted = MetaPromptClassifier.from_run(run).fit(TEXTS, LABELS)
    fitted.save_pretrained(tmp_path / "saved")
    for file in (tmp_path / "saved").iterdir():
        assert b"secret place" not in file.read_bytes(), file.name
    loaded = MetaPromptClassifier.from_pretrained(tmp_path / "saved")
    assert np.array_equal(loaded.predict_proba(QUESTIONS), fitted.predict_proba(QUESTIONS))
    loaded.save_pretrained(tmp_path / "again")
    one, two = ((tmp_path / name / "classifier.json").read_bytes() for name in ("saved", "again"))
    assert one == two


def test_a_loaded_classifier_learns_on_as_the_saved_one(fitted: MetaPromptClassifier, saved: Path) -> None:
    loaded = MetaPromptClassifier.from_pretrained(saved)
    for classifier in (loaded, fitted):
        classifier.partial_fit(["a flight"], ["travel"])
    assert np.array_equal(loaded.predict_proba(QUESTIONS), fitted.predict_proba(QUESTIONS))
    loaded.fit(TEXTS[:3], LABELS[:3])
    assert np.array_equal(loaded.predict_proba(QUESTIONS), fitted.fit(TEXTS[:3], LABELS[:3]).predict_proba(QUESTIONS))


def test_one_that_was_saved_before_there_were_prefixes_still_loads(fitted: MetaPromptClassifier, saved: Path) -> None:
    def as_before(settings: dict[str, Any]) -> None:
        for key in ("query", "as_prefix", "prefix_strength"):
            del settings[key]

    edit(saved, lambda c: as_before(c["settings"]["prompt_pool_template"]))
    edit(saved, as_before, "prompt_pool.json")
    loaded = MetaPromptClassifier.from_pretrained(saved)
    assert (loaded.predict_proba(QUESTIONS) == fitted.predict_proba(QUESTIONS)).all()


def test_what_is_read_of_a_text_is_saved_by_its_name(tiny_run: Path, tmp_path: Path) -> None:
    shutil.copytree(tiny_run, tmp_path / "run")
    config = (tmp_path / "run" / "config.yaml").read_text("utf-8")
    assert config.count("features: mask") == 1
    (tmp_path / "run" / "config.yaml").write_text(config.replace("features: mask", "features: auto"), "utf-8")
    MetaPromptClassifier.from_run(tmp_path / "run").fit(TEXTS, LABELS).save_pretrained(tmp_path / "saved")
    described = json.loads((tmp_path / "saved" / "prompt_pool.json").read_text("utf-8"))
    assert described["features"] == "mask"


def test_the_folder_can_be_given_to_the_constructor(fitted: MetaPromptClassifier, saved: Path) -> None:
    again = MetaPromptClassifier(saved).fit(TEXTS, LABELS)
    assert np.array_equal(again.predict_proba(QUESTIONS), fitted.predict_proba(QUESTIONS))


@pytest.mark.parametrize("labels", [[3, 3, 1, 1, 1, 2], [True, True, False, False, False, True]])
def test_classes_come_back_as_the_kind_they_were(unfitted: MetaPromptClassifier, tmp_path: Path, labels: Any) -> None:
    unfitted.fit(TEXTS, labels).save_pretrained(tmp_path / "saved")
    loaded = MetaPromptClassifier.from_pretrained(tmp_path / "saved")
    assert loaded.task_.classes == tuple(sorted(set(labels)))
    assert [type(name) for name in loaded.task_.classes] == [type(name) for name in sorted(set(labels))]


def test_settings_hold_for_what_is_fitted_after_loading(fitted: MetaPromptClassifier, saved: Path) -> None:
    loaded = MetaPromptClassifier.from_pretrained(saved, inner_steps=1)
    assert np.array_equal(loaded.predict_proba(QUESTIONS), fitted.predict_proba(QUESTIONS))
    assert loaded.task_.meta.config.meta.inner_steps_eval == 3
    assert len(loaded.fit(TEXTS, LABELS).task_.adapted.inner_losses) == 1


def test_a_pool_without_a_task_is_saved_to_be_fitted_later(unfitted: MetaPromptClassifier, tmp_path: Path) -> None:
    unfitted.save_pretrained(tmp_path / "pool")
    loaded = MetaPromptClassifier.from_pretrained(tmp_path / "pool")
    assert not hasattr(loaded, "classes_")
    expected = unfitted.fit(TEXTS, LABELS).predict_proba(QUESTIONS)
    assert np.array_equal(loaded.fit(TEXTS, LABELS).predict_proba(QUESTIONS), expected)


def test_without_texts_it_predicts_but_cannot_be_added_to(fitted: MetaPromptClassifier, tmp_path: Path) -> None:
    fitted.save_pretrained(tmp_path / "saved", keep_texts=False)
    for content in content_of(tmp_path / "saved").values():
        assert not any(text.encode() in content for text in TEXTS)
    loaded = MetaPromptClassifier.from_pretrained(tmp_path / "saved")
    assert np.array_equal(loaded.predict_proba(QUESTIONS), fitted.predict_proba(QUESTIONS))
    assert loaded.explain("sun").nearest_examples == ()
    assert loaded.task_.counts == [1, 3, 2]
    with pytest.raises(DataError, match="without the texts"):
        loaded.partial_fit(["a flight"], ["travel"])
    loaded.save_pretrained(tmp_path / "again")
    assert fitted.explain("sun").nearest_examples  # the one that was saved still has its texts


def test_metrics_are_kept_until_something_else_is_fitted(fitted: MetaPromptClassifier, tmp_path: Path) -> None:
    fitted.save_pretrained(tmp_path / "one", metrics={"accuracy": 0.75})
    loaded = MetaPromptClassifier.from_pretrained(tmp_path / "one")
    loaded.save_pretrained(tmp_path / "two")
    assert "| `accuracy` | 0.7500 |" in (tmp_path / "two" / "README.md").read_text("utf-8")
    loaded.fit(TEXTS, LABELS).save_pretrained(tmp_path / "two")
    assert "0.7500" not in (tmp_path / "two" / "README.md").read_text("utf-8")
    for wrong in ({"accuracy": float("nan")}, {"accuracy": "good"}, [0.5]):
        with pytest.raises(DataError, match="metrics is"):
            fitted.save_pretrained(tmp_path / "two", metrics=wrong)  # type: ignore[arg-type]


# -- what is in it ----------------------------------------------------------------------------------------------------


def test_a_folder_is_json_and_safetensors_with_a_card(saved: Path) -> None:
    assert sorted(content_of(saved)) == sorted(FILES)
    for file in saved.glob("*.json"):
        json.loads(file.read_text("utf-8"))
    names = set(safetensors.torch.load_file(saved / "classifier.safetensors"))
    assert {"meta_pool.keys", "meta_pool.prompts", "verbalizer.feature_sum", "features"} <= names


def test_the_card_names_model_data_metrics_versions_and_template(fitted: MetaPromptClassifier, saved: Path) -> None:
    card = (saved / "README.md").read_text("utf-8")
    head = card.split("---")[1]
    assert "library_name: openprompt_meta" in head
    assert "pipeline_tag: text-classification" in head
    assert fitted.task_.meta.fingerprint in card
    assert fitted.task_.meta.config.prompt_pool_template.text in card
    assert "meta-learned on `small`, 3-way 2-shot tasks" in card
    assert "accuracy on validation tasks" in card
    assert "inductive accuracy on test tasks" in card
    assert "| `sport` | 3 |" in card
    assert re.search(r"Saved with .*openprompt_meta \d.*torch \d.*transformers \d", card)
    assert "Meta-learned with" in card
    assert "platform" not in card


def test_names_of_classes_are_no_markup(unfitted: MetaPromptClassifier, tmp_path: Path) -> None:
    hostile = ["a|b`c`\n# title", "---\nlicense: mit", "<script>alert(1)</script>"]
    unfitted.fit(TEXTS[:3], hostile).save_pretrained(tmp_path / "saved")
    card = (tmp_path / "saved" / "README.md").read_text("utf-8")
    assert card.count("\n---\n") == 1
    assert "\n# title" not in card
    assert sorted(MetaPromptClassifier.from_pretrained(tmp_path / "saved").classes_) == sorted(hostile)


def test_any_openprompt_project_reads_the_adapted_prompts(
    fitted: MetaPromptClassifier, saved: Path, tiny_mlm_folder: Callable[[str], Path]
) -> None:
    plm, tokenizer, _, _ = load_mlm(tiny_mlm_folder("bert"))
    template = PromptPoolTemplate.from_pretrained(saved, plm, tokenizer)
    assert torch.equal(template.pool.prompts, fitted.task_.adapted.pool["prompts"])
    assert torch.equal(template.pool.keys, fitted.task_.adapted.pool["keys"])
    assert template.template_text == fitted.task_.meta.config.prompt_pool_template.text


@pytest.mark.real_encoder
def test_on_the_packaged_encoder_it_is_well_below_a_megabyte(tmp_path: Path) -> None:
    texts = [f"{topic} number {i}" for topic in ("rain", "song", "table", "bus", "bill") for i in range(5)]
    labels = [text.split()[0] for text in texts]
    MetaPromptClassifier(inner_steps=1).fit(texts, labels).save_pretrained(tmp_path / "saved")
    assert sum(map(len, content_of(tmp_path / "saved").values())) < 400_000
    assert list(MetaPromptClassifier.from_pretrained(tmp_path / "saved").predict(texts[:1])) == ["rain"]


# -- what is refused --------------------------------------------------------------------------------------------------


def test_a_changed_base_model_is_refused(
    fitted: MetaPromptClassifier, saved: Path, tiny_mlm_folder: Callable[[str], Path], tmp_path: Path
) -> None:
    other = tmp_path / "other"
    shutil.copytree(tiny_mlm_folder("bert"), other)
    moved = MetaPromptClassifier.from_pretrained(saved, base_model=other)
    assert np.array_equal(moved.predict_proba(QUESTIONS), fitted.predict_proba(QUESTIONS))
    weights = safetensors.torch.load_file(other / "model.safetensors")
    weights[min(weights)].view(-1)[0] += 1e-3
    safetensors.torch.save_file(weights, other / "model.safetensors", {"format": "pt"})
    with pytest.raises(ModelError, match=r"base model .*other has changed: its weights have sha256 [0-9a-f]{16}"):
        MetaPromptClassifier.from_pretrained(saved, base_model=other)
    with pytest.raises(ModelError, match="has changed"):
        MetaPromptClassifier(saved, base_model=other).fit(TEXTS, LABELS)


def test_a_changed_vocabulary_is_refused(saved: Path, tiny_mlm_folder: Callable[[str], Path], tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(tiny_mlm_folder("bert"), other)
    tokenizer = (other / "tokenizer.json").read_text("utf-8")
    swapped = tokenizer.replace('"rain"', '"@"').replace('"sad"', '"rain"').replace('"@"', '"sad"')
    assert swapped != tokenizer
    (other / "tokenizer.json").write_text(swapped, "utf-8")
    with pytest.raises(ModelError, match="has changed: its vocabulary"):
        MetaPromptClassifier.from_pretrained(saved, base_model=other)


def test_another_model_is_refused(saved: Path, tiny_mlm_folder: Callable[[str], Path]) -> None:
    with pytest.raises(ModelError, match="has changed"):
        MetaPromptClassifier.from_pretrained(saved, base_model=tiny_mlm_folder("roberta"))


def test_a_newer_format_is_refused_with_the_remedy(saved: Path) -> None:
    edit(saved, lambda content: content.update(format_version=2, written_by="openprompt_meta 9.0"))
    with pytest.raises(ArtefactError, match=r"format version 2 \(written by 'openprompt_meta 9.0'\).*Update"):
        MetaPromptClassifier.from_pretrained(saved)


def test_settings_of_a_newer_version_are_refused(saved: Path) -> None:
    edit(saved, lambda content: content["settings"]["meta"].update(quantum_steps=3))
    with pytest.raises(ArtefactError, match=r"meta\.quantum_steps: unknown key"):
        MetaPromptClassifier.from_pretrained(saved)


@pytest.mark.parametrize("version", [0, "1", None, 1.5, [], {}, -1])
def test_a_version_that_is_none_is_refused(saved: Path, version: Any) -> None:
    edit(saved, lambda content: content.update(format_version=version))
    with pytest.raises(ArtefactError, match="format version"):
        MetaPromptClassifier.from_pretrained(saved)


def test_a_foreign_format_is_refused(saved: Path) -> None:
    edit(saved, lambda content: content.update(format="sklearn"))
    with pytest.raises(ArtefactError, match=r"'sklearn'; a classifier's is 'openprompt_meta\.classifier'"):
        MetaPromptClassifier.from_pretrained(saved)


@pytest.mark.parametrize("name", [name for name in FILES if name not in ("README.md", "prompt_pool.json")])
def test_a_file_that_was_cut_anywhere_is_refused(saved: Path, name: str) -> None:
    whole = (saved / name).read_bytes()
    for end in {0, 1, 9, len(whole) // 2, len(whole) - 2, len(whole) - 1} - {len(whole.rstrip())}:
        (saved / name).write_bytes(whole[:end])
        with pytest.raises(ArtefactError, match=name):
            MetaPromptClassifier.from_pretrained(saved)
    (saved / name).unlink()
    with pytest.raises(ArtefactError, match=f"{name} is missing"):
        MetaPromptClassifier.from_pretrained(saved)


@pytest.mark.parametrize("name", ["classifier.safetensors", "prompt_pool.safetensors", "support.json"])
def test_a_flipped_bit_is_refused(saved: Path, name: str) -> None:
    content = bytearray((saved / name).read_bytes())
    content[-3] ^= 1
    (saved / name).write_bytes(content)
    with pytest.raises(ArtefactError, match="not the file that was saved"):
        MetaPromptClassifier.from_pretrained(saved)


def test_files_of_two_classifiers_do_not_mix(fitted: MetaPromptClassifier, saved: Path, tmp_path: Path) -> None:
    fitted.fit(TEXTS[:4], LABELS[:4]).save_pretrained(tmp_path / "other")
    for name in ("classifier.safetensors", "prompt_pool.safetensors", "support.json"):
        shutil.copytree(saved, tmp_path / "mixed", dirs_exist_ok=True)
        shutil.copy(tmp_path / "other" / name, tmp_path / "mixed")
        with pytest.raises(ArtefactError, match=f"{name} is not the file"):
            MetaPromptClassifier.from_pretrained(tmp_path / "mixed")


class Hostile:
    """Writes a file when it is read back from a pickle."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.mkdir, (str(self.marker),)


@pytest.mark.parametrize("name", ["model.pkl", "pytorch_model.bin", "classifier.pt"])
def test_a_pickle_is_refused_and_never_read(tmp_path: Path, name: str) -> None:
    marker = tmp_path / "was_run"
    folder = tmp_path / "saved"
    folder.mkdir()
    (folder / name).write_bytes(pickle.dumps(Hostile(marker)))
    with pytest.raises(ArtefactError, match=rf"classifier.json is missing \({name} looks like a pickle"):
        MetaPromptClassifier.from_pretrained(folder)
    with pytest.raises(ArtefactError, match=r"is a file .* looks like a pickle"):
        MetaPromptClassifier.from_pretrained(folder / name)
    assert not marker.exists()


@pytest.mark.parametrize("name", ["classifier.json", "classifier.safetensors", "prompt_pool.safetensors"])
def test_a_pickle_under_another_name_is_refused(saved: Path, tmp_path: Path, name: str) -> None:
    marker = tmp_path / "was_run"
    (saved / name).write_bytes(pickle.dumps(Hostile(marker)))
    if name != "classifier.json":
        seal(saved, name)
    with pytest.raises(ArtefactError, match=name):
        MetaPromptClassifier.from_pretrained(saved)
    assert not marker.exists()


@pytest.mark.parametrize(
    "text",
    [
        '{__import__(\'os\').mkdir(\'was_run\')} {"mask"} {"placeholder": "text_a"}',
        '{"placeholder": "text_a", "post_processing": lambda x: __import__("os").mkdir("was_run")} {"mask"}',
        '{"placeholder": "text_a"} {"pool"}',
        "{" * 5000,
        7,
    ],
)
def test_a_hostile_template_is_refused_and_never_run(
    saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    edit(saved, lambda content: content["settings"]["prompt_pool_template"].update(text=text))
    with pytest.raises(ArtefactError, match=r"prompt_pool_template\.text"):
        MetaPromptClassifier.from_pretrained(saved)
    assert not (tmp_path / "was_run").exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: c.pop("settings"), "'settings' should be an object"),
        (lambda c: c.pop("base_model"), "'base_model' should be an object"),
        (lambda c: c["base_model"].update(name=3), "'name' should be a string"),
        (lambda c: c.update(files=[]), "'files' should be an object"),
        (lambda c: c.update(files={}), "is not the file that was saved"),
        (lambda c: c.update(seed=True), "'seed' should be a whole number"),
        (lambda c: c.update(task=[]), "'task' should be an object"),
        (lambda c: c["task"].update(classes=["food"]), "'classes' should be two or more"),
        (lambda c: c["task"].update(classes=["b", "a", "c"]), "sorted"),
        (lambda c: c["task"].update(classes=["a", "b", 3]), "mixed type"),
        (lambda c: c["task"].update(classes=[1, 2, 3]), "of kind str"),
        (lambda c: c["task"].update(classes=["a", "b"]), "from 0 to 1"),
        (lambda c: c["task"].update(classes=["a", "b", "c", "d"]), "from 0 to 3"),
        (lambda c: c["task"].update(inner_losses=["low"]), "list of numbers"),
        (lambda c: c["task"].update(label_words={"food": 3}), "label_words"),
        (lambda c: c["settings"]["prompt_pool_template"].update(num_prompts=10**9), "the settings ask for 1000000000"),
        (lambda c: c["settings"]["prompt_pool_template"].update(prompt_length=7), "positions"),
        (lambda c: c["settings"].update(verbalizer="evil"), "verbalizer"),
        (lambda c: c.update(metrics=None), "'metrics'"),
    ],
)
def test_a_description_that_was_changed_is_refused(
    saved: Path, change: Callable[[dict[str, Any]], None], message: str
) -> None:
    edit(saved, change)
    with pytest.raises(ArtefactError, match=message):
        MetaPromptClassifier.from_pretrained(saved)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: c.update(labels=[0, 1]), "from 0 to 2"),
        (lambda c: c.update(labels=[0, 1, 2, 2, 2, 9]), "from 0 to 2"),
        (lambda c: c.update(labels=[True, 1, 2, 0, 0, 0]), "from 0 to 2"),
        (lambda c: c.update(labels="012"), "'labels' should be a list"),
        (lambda c: c.update(texts=["one"]), "1 texts and 6 labels"),
        (lambda c: c.update(texts=[1] * 6), "Text 0 is 1"),
        (lambda c: c.update(texts=None), r"features of shape \(6, 32\); the examples ask for \(0, 32\)"),
    ],
)
def test_examples_that_were_changed_are_refused(
    saved: Path, change: Callable[[dict[str, Any]], None], message: str
) -> None:
    edit(saved, change, "support.json")
    with pytest.raises(ArtefactError, match=message):
        MetaPromptClassifier.from_pretrained(saved)


@pytest.mark.parametrize(
    ("name", "tensor", "value"),
    [
        ("classifier.safetensors", "meta_pool.keys", torch.full((3, 32), float("nan"))),
        ("classifier.safetensors", "meta_pool.prompts", torch.zeros(3, 2, 32, dtype=torch.int64)),
        ("classifier.safetensors", "meta_pool.prompts", torch.zeros(3, 64)),
        ("classifier.safetensors", "features", torch.zeros(2, 32)),
        ("classifier.safetensors", "features", torch.full((6, 32), float("inf"))),
        ("prompt_pool.safetensors", "keys", torch.zeros(2, 32)),
    ],
)
def test_tensors_that_do_not_fit_are_refused(saved: Path, name: str, tensor: str, value: torch.Tensor) -> None:
    tensors = {**safetensors.torch.load_file(saved / name), tensor: value}
    safetensors.torch.save_file(tensors, saved / name)
    seal(saved, name)
    with pytest.raises(ArtefactError, match=name):
        MetaPromptClassifier.from_pretrained(saved)


def test_a_verbalizer_or_pool_of_another_size_is_refused(saved: Path) -> None:
    name = "classifier.safetensors"
    tensors = safetensors.torch.load_file(saved / name)
    for change in (
        {"verbalizer.feature_sum": torch.zeros(2, 5)},
        {"verbalizer.feature_sum": torch.full((3, 32), float("nan"))},
        {"verbalizer.strange": torch.zeros(1)},
    ):
        safetensors.torch.save_file({**tensors, **change}, saved / name)
        seal(saved, name)
        with pytest.raises(ModelError, match="verbalizer"):
            MetaPromptClassifier.from_pretrained(saved).predict(["rain"])


def test_features_of_another_width_than_the_models_are_refused_whatever_the_pool_is_asked_with(saved: Path) -> None:
    edit(saved, lambda c: c["settings"]["prompt_pool_template"].update(query="embeddings"))
    assert len(MetaPromptClassifier.from_pretrained(saved).predict(["rain"])) == 1
    name = "classifier.safetensors"
    tensors = safetensors.torch.load_file(saved / name)
    safetensors.torch.save_file({**tensors, "features": torch.zeros(6, 31)}, saved / name)
    seal(saved, name)
    with pytest.raises(ModelError, match="have 31 numbers each, expected 32"):
        MetaPromptClassifier.from_pretrained(saved).predict(["rain"])


def test_where_there_is_no_classifier_the_message_says_what_there_is(tmp_path: Path, tiny_run: Path) -> None:
    with pytest.raises(ArtefactError, match="There is no folder"):
        MetaPromptClassifier.from_pretrained(tmp_path / "nowhere")
    with pytest.raises(ArtefactError, match=r"classifier\.json is missing"):
        MetaPromptClassifier.from_pretrained(tmp_path)
    with pytest.raises(ArtefactError, match=r"is a run folder.*from_run"):
        MetaPromptClassifier.from_pretrained(tiny_run)


# -- whole or not at all ----------------------------------------------------------------------------------------------


def test_a_folder_of_something_else_is_never_replaced(fitted: MetaPromptClassifier, saved: Path) -> None:
    (saved / "notes.txt").write_text("mine")
    before = content_of(saved)
    with pytest.raises(ArtefactError, match=r"not a classifier's \(notes.txt\)"):
        fitted.save_pretrained(saved)
    assert content_of(saved) == before
    lone = saved.parent / "lone"
    lone.mkdir()
    (lone / "README.md").write_text("mine")
    with pytest.raises(ArtefactError, match=r"not a classifier's \(README.md\)"):
        fitted.save_pretrained(lone)
    with pytest.raises(ArtefactError, match="Name a folder of its own"):
        fitted.save_pretrained(lone / "README.md")
    assert content_of(lone) == {"README.md": b"mine"}


def test_an_older_classifier_is_replaced_and_nothing_stays_beside(fitted: MetaPromptClassifier, saved: Path) -> None:
    expected = fitted.fit(TEXTS[:4], LABELS[:4]).predict_proba(QUESTIONS)
    fitted.save_pretrained(saved)
    assert np.array_equal(MetaPromptClassifier.from_pretrained(saved).predict_proba(QUESTIONS), expected)
    assert [path.name for path in saved.parent.iterdir()] == ["saved"]


def test_where_folders_cannot_change_places_two_renames_do(
    fitted: MetaPromptClassifier, saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(one: Path, other: Path) -> None:
        raise OSError(22, "Invalid argument")

    monkeypatch.setattr(whole_folder, "_exchange", refuse)
    expected = fitted.fit(TEXTS[:4], LABELS[:4]).predict_proba(QUESTIONS)
    fitted.save_pretrained(saved)
    assert np.array_equal(MetaPromptClassifier.from_pretrained(saved).predict_proba(QUESTIONS), expected)
    assert [path.name for path in saved.parent.iterdir()] == ["saved"]


def test_a_link_to_a_folder_stays_a_link(fitted: MetaPromptClassifier, saved: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(saved, target_is_directory=True)
    fitted.save_pretrained(tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert np.array_equal(
        MetaPromptClassifier.from_pretrained(saved).predict_proba(QUESTIONS), fitted.predict_proba(QUESTIONS)
    )


OLD, NEW = 6, 4  # examples


def examples_of(folder: Path) -> int:
    """The number of examples of the classifier in a folder, which is read and checked whole."""
    task = read_artefact(folder).task
    assert task is not None
    return len(task.labels)


FAILING = ["os.fsync", "os.replace", "os.mkdir", "openprompt_meta.files._put_in_place"]


@pytest.mark.parametrize("name", FAILING)
@pytest.mark.parametrize("exception", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_failure_at_any_step_leaves_one_whole_classifier_and_nothing_else(
    fitted: MetaPromptClassifier, saved: Path, monkeypatch: pytest.MonkeyPatch, name: str, exception: BaseException
) -> None:
    before = content_of(saved)
    fitted.fit(TEXTS[:NEW], LABELS[:NEW])
    module, _, function = name.rpartition(".")
    stock = getattr(sys.modules[module], function)
    failures = 0
    for fails_at in range(100):
        calls = iter(range(1000))

        def failing(*args: Any, fails_at: int = fails_at, calls: Any = calls, **kwargs: Any) -> Any:
            if next(calls) == fails_at:
                raise exception
            return stock(*args, **kwargs)

        with monkeypatch.context() as patch:
            patch.setattr(name, failing)
            try:
                fitted.save_pretrained(saved)
                found = "saved"
            except (ArtefactError, KeyboardInterrupt) as error:
                found = str(error) or "interrupted"
        assert [path.name for path in saved.parent.iterdir()] == ["saved"]
        if found == "saved":
            assert examples_of(saved) == NEW
        else:
            failures += 1
            # An interrupt may come when the new one is in its place already.
            assert content_of(saved) == before or (found == "interrupted" and examples_of(saved) == NEW)
            assert found == "interrupted" or "No space left on device" in found
        if next(calls) <= fails_at:  # it was never called that often: all moments are through
            break
        for file, content in before.items():
            (saved / file).write_bytes(content)
    assert failures > 0


def killed_at(moment: int, work: Callable[[], None]) -> int:
    """Do ``work`` in a process of its own that ends without a word at its ``moment``-th call into the file system.

    Returns:
        9 if it was killed, 0 if there were fewer calls.
    """
    process = os.fork()
    if process:
        return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    calls = iter(range(moment))

    def watched(stock: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            if next(calls, None) is None:
                os._exit(9)
            return stock(*args, **kwargs)

        return call

    try:
        for name in ("open", "fsync", "replace", "rename", "mkdir", "unlink", "rmdir", "truncate"):
            setattr(os, name, watched(getattr(os, name)))
        whole_folder._exchange = watched(whole_folder._exchange)
        work()
    except BaseException:
        os._exit(1)
    os._exit(0)


@pytest.mark.filterwarnings("ignore:.*fork.*")
def test_a_kill_at_any_moment_leaves_the_old_or_the_new_one(fitted: MetaPromptClassifier, tmp_path: Path) -> None:
    old, target = tmp_path / "old", tmp_path / "at" / "target"
    fitted.save_pretrained(old)
    fitted.fit(TEXTS[:NEW], LABELS[:NEW])
    shutil.copytree(old, target)
    seen = []
    for moment in range(500):
        code = killed_at(moment, lambda: fitted.save_pretrained(target))
        assert code in (0, 9)
        seen.append(examples_of(target))
        if code == 0:
            break
        shutil.rmtree(target)
        shutil.copytree(old, target)
    assert len(seen) > 30
    assert seen == sorted(seen, reverse=True)  # the old one up to some moment, the new one from there on
    assert set(seen) == {OLD, NEW}
    # And what the killed ones have left beside is cleared away.
    assert [path.name for path in target.parent.iterdir()] == ["target"]


def test_what_an_interrupted_exchange_left_is_named(saved: Path) -> None:
    left = saved.with_name(".saved.0123456789ab.part")
    saved.rename(left)
    with pytest.raises(ArtefactError, match=r"\.saved\.0123456789ab\.part is what an interrupted save left"):
        MetaPromptClassifier.from_pretrained(saved)
    (left / "classifier.json").unlink()
    with pytest.raises(ArtefactError, match=r"There is no folder \S*$"):
        MetaPromptClassifier.from_pretrained(saved)


def test_a_writer_at_work_is_not_cleared_away(fitted: MetaPromptClassifier, saved: Path) -> None:
    with whole_folder.folder_writer(saved) as at_work:
        (at_work / "classifier.json").write_text("soon")
        fitted.save_pretrained(saved)
        assert at_work.is_dir()
        shutil.copytree(saved, at_work, dirs_exist_ok=True)
    assert [path.name for path in saved.parent.iterdir()] == ["saved"]


def _one_bit_off(tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    name = min(tensors)
    return {**tensors, name: torch.nextafter(tensors[name], torch.tensor(9.0))}


DIFFERENT: list[Callable[[Stored, FittedTask], Stored]] = [
    lambda stored, task: replace(stored, task=None),
    lambda stored, task: replace(stored, task=replace(task, classes=("food", "sport", "wether"))),
    lambda stored, task: replace(stored, task=replace(task, labels=task.labels[::-1])),
    lambda stored, task: replace(stored, task=replace(task, texts=None)),
    lambda stored, task: replace(stored, task=replace(task, label_words={"food": ("soup",)})),
    lambda stored, task: replace(stored, meta=replace(stored.meta, seed=1)),
    lambda stored, task: replace(stored, meta=replace(stored.meta, config=RunConfig())),
    lambda stored, task: replace(stored, meta=replace(stored.meta, pool=_one_bit_off(stored.meta.pool))),
    *(
        lambda stored, task, name=name: replace(  # type: ignore[misc]
            stored,
            task=replace(task, adapted=replace(task.adapted, **{name: _one_bit_off(getattr(task.adapted, name))})),
        )
        for name in ("pool", "verbalizer")
    ),
    lambda stored, task: replace(
        stored,
        task=replace(task, adapted=replace(task.adapted, features=_one_bit_off({"": task.adapted.features})[""])),
    ),
]


@pytest.mark.parametrize("change", DIFFERENT)
def test_what_reads_back_as_something_else_does_not_replace(
    fitted: MetaPromptClassifier,
    saved: Path,
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[Stored, FittedTask], Stored],
) -> None:
    from openprompt_meta.classifier import artefact as writing

    before = content_of(saved)
    other = change(read_artefact(saved), fitted.task_)
    monkeypatch.setattr(writing, "read_artefact", lambda folder: other)
    with pytest.raises(ArtefactError, match="reads back as something else"):
        fitted.save_pretrained(saved)
    assert content_of(saved) == before


def test_where_nothing_can_be_written_it_is_refused(fitted: MetaPromptClassifier, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(ArtefactError, match=r"cannot be saved to .*file/saved: Not a directory"):
        fitted.save_pretrained(tmp_path / "file" / "saved")
