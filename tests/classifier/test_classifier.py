"""What a classifier learns and predicts, compared with meta-testing and with the parts it is made of."""

from __future__ import annotations

import copy
import json
import logging
import pickle
import re
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from openprompt_meta import MetaPromptClassifier
from openprompt_meta.classifier import adaptation
from openprompt_meta.classifier.adaptation import wrapped
from openprompt_meta.config.loading import load_config
from openprompt_meta.config.schema import RunConfig
from openprompt_meta.data.loading import open_dataset
from openprompt_meta.errors import (
    CheckpointError,
    ConfigError,
    DataError,
    NotFiniteError,
    RunError,
    VerbalizerError,
)
from openprompt_meta.methods.language_model import load_language_model
from openprompt_meta.methods.metaprompter import MetaPrompter, build_metaprompter
from openprompt_meta.runs.checkpoint import load_pool
from tests.helpers.few_texts import LABELS, QUESTIONS, TEXTS

pytestmark = pytest.mark.meta


def method_of(run: Path, config: RunConfig | None = None) -> MetaPrompter:
    """The run's method with its best pool, put together as the run itself does."""
    config = config or load_config(run / "config.yaml")
    method = build_metaprompter(config, load_language_model(config), open_dataset(config.dataset), seed=0)
    load_pool(run / "seed-0" / "checkpoints" / "best.safetensors", method.learner.meta_parameters)
    return method


# -- learning ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("label_embeddings", ["adapted", "last_inner_step"])
def test_fitting_and_predicting_are_what_meta_testing_does(tiny_run: Path, label_embeddings: Any) -> None:
    run = load_config(tiny_run / "config.yaml")
    config = run.with_values({"meta.label_embeddings": label_embeddings})
    method = method_of(tiny_run, config)
    source, texts = method.sources["test"], open_dataset(config.dataset).test.texts
    for index in range(3):
        episode = source.episodes[index]
        evaluated = method.learner.evaluate(source[index], steps=3).log_probabilities.exp()
        classifier = MetaPromptClassifier.from_run(tiny_run)
        classifier._meta = (classifier._source(), replace(classifier.meta_learned, config=config))
        classifier.fit([texts[i] for i in episode.support], [episode.classes[i] for i in episode.support_labels])
        found = classifier.predict_proba([texts[i] for i in episode.query])
        columns = [list(classifier.classes_).index(name) for name in episode.classes]
        np.testing.assert_allclose(found[:, columns], evaluated.numpy(), rtol=1e-4, atol=1e-6)


def test_the_meta_learned_pool_stays_as_it_is(unfitted: MetaPromptClassifier) -> None:
    before = {name: value.clone() for name, value in unfitted.meta_learned.pool.items()}
    unfitted.fit(TEXTS, LABELS).partial_fit(["a ship and a plane"], ["travel"])
    assert all(torch.equal(value, unfitted.meta_learned.pool[name]) for name, value in before.items())
    assert not torch.equal(unfitted.task_.adapted.pool["prompts"], before["prompts"])


def test_the_language_model_stays_as_it_is(unfitted: MetaPromptClassifier) -> None:
    from openprompt_meta.classifier.pretrained import base_model_of

    model = base_model_of(unfitted.meta_learned).loaded.model
    before = {name: value.clone() for name, value in model.state_dict().items()}
    unfitted.fit(TEXTS, LABELS).predict(QUESTIONS)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert not any(parameter.requires_grad for parameter in model.parameters())


def test_fitting_lowers_the_loss_on_the_examples(fitted: MetaPromptClassifier) -> None:
    losses = fitted.task_.adapted.inner_losses
    assert len(losses) == 3
    assert losses[-1] < losses[0]


def test_fitting_again_gives_the_same_bits(tiny_run: Path, fitted: MetaPromptClassifier) -> None:
    torch.manual_seed(123)  # whatever the program has done with torch's generator
    again = MetaPromptClassifier(tiny_run).fit(TEXTS, LABELS)
    assert np.array_equal(again.predict_proba(QUESTIONS), fitted.predict_proba(QUESTIONS))
    fitted.fit(["sun", "song"], ["a", "b"]).fit(TEXTS, LABELS)
    assert np.array_equal(again.predict_proba(QUESTIONS), fitted.predict_proba(QUESTIONS))


def test_fitting_leaves_torchs_generator_alone(unfitted: MetaPromptClassifier) -> None:
    torch.manual_seed(7)
    expected = torch.rand(1)
    torch.manual_seed(7)
    unfitted.fit(TEXTS, LABELS).predict(QUESTIONS)
    assert torch.equal(torch.rand(1), expected)


def test_without_a_step_a_class_is_the_mean_of_its_examples(tiny_run: Path) -> None:
    classifier = MetaPromptClassifier.from_run(tiny_run, inner_steps=0).fit(TEXTS, LABELS)
    task = classifier.task_
    assert torch.equal(task.adapted.pool["prompts"], task.meta.pool["prompts"])
    features = task.adapted.features
    means = torch.stack(
        [features[[i for i, own in enumerate(LABELS) if own == name]].mean(0) for name in task.classes]
    )
    # No step moves the pool, so the question has the same features as an example.
    with_it = MetaPromptClassifier.from_run(tiny_run, inner_steps=0).fit([*TEXTS, QUESTIONS[0]], [*LABELS, LABELS[0]])
    expected = (10.0 * F.cosine_similarity(means, with_it.task_.adapted.features[-1], dim=-1)).softmax(dim=-1)
    np.testing.assert_allclose(classifier.predict_proba(QUESTIONS[:1])[0], expected.numpy(), rtol=1e-5)


def test_settings_replace_those_of_the_run(tiny_run: Path, fitted: MetaPromptClassifier) -> None:
    longer = MetaPromptClassifier.from_run(tiny_run, inner_steps=5).fit(TEXTS, LABELS)
    assert longer.task_.adapted.inner_losses[:3] == pytest.approx(fitted.task_.adapted.inner_losses)
    assert len(longer.task_.adapted.inner_losses) == 5
    bolder = MetaPromptClassifier.from_run(tiny_run, inner_lr=0.5).fit(TEXTS, LABELS)
    assert bolder.task_.adapted.inner_losses[1] != fitted.task_.adapted.inner_losses[1]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("inner_steps", -1),
        ("inner_steps", 2.5),
        ("inner_lr", 0),
        ("inner_lr", float("inf")),
        ("mix_lambda", 1.5),
        ("adapt_examples", 0),
        ("batch_tokens", 0),
        ("batch_tokens", "many"),
    ],
)
def test_a_setting_out_of_its_range_is_refused_by_name(tiny_run: Path, name: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=rf"{name}( is|: got) (the text )?{value!r}"):
        MetaPromptClassifier(tiny_run, **{name: value}).fit(TEXTS, LABELS)


def test_a_seed_that_the_run_does_not_have_is_refused(tiny_run: Path) -> None:
    with pytest.raises(RunError, match=r"no seed 5; it has \[0\]"):
        MetaPromptClassifier.from_run(tiny_run, seed=5)


def test_a_run_without_a_checkpoint_is_refused_with_the_way_to_get_one(tiny_run: Path, tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text((tiny_run / "config.yaml").read_text())
    with pytest.raises(CheckpointError, match="openprompt-meta resume"):
        MetaPromptClassifier.from_run(tmp_path)
    with pytest.raises(RunError, match="not a run folder"):
        MetaPromptClassifier.from_run(tmp_path / "nowhere")


def test_a_run_of_a_method_that_learns_no_prompts_is_refused_with_one_that_does(
    tiny_run: Path, tmp_path: Path
) -> None:
    shutil.copytree(tiny_run, tmp_path / "run")
    written = (tmp_path / "run" / "config.yaml").read_text("utf-8")
    other = written.replace("method: metaprompter", "method: ds")
    assert other != written
    (tmp_path / "run" / "config.yaml").write_text(other, "utf-8")
    with pytest.raises(RunError, match=r"method: ds, which learns no prompts.*method: metaprompter"):
        MetaPromptClassifier.from_run(tmp_path / "run")


def test_a_run_of_a_newer_version_is_refused(tiny_run: Path, tmp_path: Path) -> None:
    shutil.copytree(tiny_run, tmp_path / "run")
    written = (tmp_path / "run" / "config.yaml").read_text("utf-8")
    newer = re.sub(r"^version: \d+", "version: 99", written, flags=re.MULTILINE)
    assert newer != written
    (tmp_path / "run" / "config.yaml").write_text(newer, "utf-8")
    with pytest.raises(ConfigError, match="99"):
        MetaPromptClassifier.from_run(tmp_path / "run")


def test_a_checkpoint_that_was_cut_is_refused(tiny_run: Path, tmp_path: Path) -> None:
    shutil.copytree(tiny_run, tmp_path / "run")
    checkpoint = tmp_path / "run" / "seed-0" / "checkpoints" / "best.safetensors"
    checkpoint.write_bytes(checkpoint.read_bytes()[:-7])
    with pytest.raises(CheckpointError, match="damaged"):
        MetaPromptClassifier.from_run(tmp_path / "run")


def test_more_examples_than_may_take_part_still_make_the_label_embeddings(tiny_run: Path) -> None:
    texts = [f"{name} on day {i}" for i in range(6) for name in ("rain", "goal")]
    labels = ["a", "b"] * 6
    few = MetaPromptClassifier.from_run(tiny_run, adapt_examples=4).fit(texts, labels)
    all_of_them = MetaPromptClassifier.from_run(tiny_run).fit(texts, labels)
    assert few.task_.adapted.verbalizer["feature_count"].tolist() == [6.0, 6.0]
    assert few.task_.adapted.inner_losses != all_of_them.task_.adapted.inner_losses
    assert len(few.task_.adapted.features) == 12


def test_every_class_takes_part_however_few_examples_may() -> None:
    from openprompt_meta.classifier.adaptation import _part
    from openprompt_meta.learners.task import Task

    labels = torch.tensor([0] * 50 + [1] + [2] * 3)
    batch = {"label": labels, "input_ids": torch.arange(54).unsqueeze(1)}
    part = _part(Task(0, ["a", "b", "c"], {}, batch, batch), most=6, seed=0)
    assert part.support["label"].bincount().tolist() == [3, 1, 2]
    assert torch.equal(part.support["label"], labels[part.support["input_ids"].flatten()])
    assert _part(Task(0, ["a", "b", "c"], {}, batch, batch), most=1, seed=0).support["label"].tolist() == [0, 1, 2]


# -- adding -----------------------------------------------------------------------------------------------------------


def test_adding_examples_equals_fitting_to_all_of_them(tiny_run: Path) -> None:
    more, theirs = ["a flight to the city", "where is the hotel", "sun and sky"], ["travel", "travel", "weather"]
    at_once = MetaPromptClassifier(tiny_run).fit([*TEXTS, *more], [*LABELS, *theirs])
    added = MetaPromptClassifier(tiny_run).partial_fit(TEXTS, LABELS).partial_fit(more, theirs)
    assert list(added.classes_) == ["food", "sport", "travel", "weather"]
    assert np.array_equal(added.predict_proba(QUESTIONS), at_once.predict_proba(QUESTIONS))
    after_fit = MetaPromptClassifier(tiny_run).fit(TEXTS, LABELS).partial_fit(more, theirs)
    assert np.array_equal(after_fit.predict_proba(QUESTIONS), at_once.predict_proba(QUESTIONS))


def test_examples_of_one_class_wait_for_another(unfitted: MetaPromptClassifier, fitted: MetaPromptClassifier) -> None:
    waiting = clone(unfitted)
    waiting.partial_fit(TEXTS[:2], LABELS[:2], classes=["food", "sport", "weather"])
    with pytest.raises(NotFittedError, match="two classes"):
        waiting.predict(QUESTIONS)
    waiting.partial_fit(TEXTS[2:], LABELS[2:])
    assert np.array_equal(waiting.predict_proba(QUESTIONS), fitted.predict_proba(QUESTIONS))


def test_without_inner_steps_added_examples_alone_are_read(tiny_run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    more, theirs = ["a storm in the city", "soup and bread"], ["weather", "food"]
    read: list[str] = []

    def noted(base: Any, config: Any, template: Any, texts: Sequence[str]) -> Any:
        read.extend(texts)
        return wrapped(base, config, template, texts)

    whole = MetaPromptClassifier(tiny_run, inner_steps=0).fit([*TEXTS, *more], [*LABELS, *theirs])
    added = MetaPromptClassifier(tiny_run, inner_steps=0).fit(TEXTS, LABELS)
    monkeypatch.setattr(adaptation, "wrapped", noted)
    added.partial_fit(more, theirs)
    assert read == more
    np.testing.assert_allclose(added.predict_proba(QUESTIONS), whole.predict_proba(QUESTIONS), atol=1e-6)

    read.clear()  # with a step each text looks different, and all are read
    added.set_params(inner_steps=1).partial_fit(["rain"], ["weather"])
    assert set(read) == {*TEXTS, *more, "rain"}


def test_a_label_that_is_none_of_the_classes_is_refused(fitted: MetaPromptClassifier) -> None:
    before = fitted.task_
    with pytest.raises(DataError, match=r"\['law'\] are not among the classes"):
        fitted.partial_fit(["a bill in the city"], ["law"], classes=["food", "sport", "weather"])
    assert fitted.task_ is before


def test_what_is_refused_leaves_what_was_fitted(fitted: MetaPromptClassifier) -> None:
    before = fitted.predict_proba(QUESTIONS)
    for texts, labels in ((TEXTS[:1], LABELS[:1]), ([TEXTS[0]], ["food"]), ([1], ["food"])):
        with pytest.raises(DataError):
            (fitted.fit if texts is TEXTS[:1] or len(labels[0]) > 4 else fitted.partial_fit)(texts, labels)
    assert np.array_equal(fitted.predict_proba(QUESTIONS), before)


def test_a_class_added_later_brings_its_label_words(with_words: Callable[..., MetaPromptClassifier]) -> None:
    classifier = with_words(mix_lambda=0.5).fit(TEXTS, LABELS, WORDS)
    with pytest.raises(DataError, match="for class 'travel'"):
        classifier.partial_fit(["a flight"], ["travel"])
    classifier.partial_fit(["a flight"], ["travel"], label_words={"travel": "hotel"})
    at_once = with_words(mix_lambda=0.5).fit([*TEXTS, "a flight"], [*LABELS, "travel"], {**WORDS, "travel": "hotel"})
    assert np.array_equal(classifier.predict_proba(QUESTIONS), at_once.predict_proba(QUESTIONS))


def test_a_loss_that_runs_away_leaves_what_was_fitted(fitted: MetaPromptClassifier) -> None:
    before = fitted.predict_proba(QUESTIONS)
    with pytest.raises(NotFiniteError, match="inner_lr"):
        fitted.set_params(inner_lr=1e38, inner_steps=5).fit(TEXTS, LABELS)
    assert np.array_equal(fitted.predict_proba(QUESTIONS), before)


def test_a_fresh_pool_depends_on_the_seed_alone(tiny_mlm_folder: Callable[[str], Path]) -> None:
    pools = [
        MetaPromptClassifier(base_model=tiny_mlm_folder("bert"), seed=seed).meta_learned.pool["prompts"]
        for seed in (0, 0, 1)
    ]
    assert torch.equal(pools[0], pools[1])
    assert not torch.equal(pools[0], pools[2])


def test_a_device_that_is_not_there_is_refused(tiny_run: Path) -> None:
    with pytest.raises(ConfigError, match="cuda:77 cannot be used here"):
        MetaPromptClassifier.from_run(tiny_run, device="cuda:77")


# -- predicting -------------------------------------------------------------------------------------------------------


def test_probabilities_add_up_and_the_largest_is_predicted(fitted: MetaPromptClassifier) -> None:
    probabilities = fitted.predict_proba(QUESTIONS)
    assert probabilities.shape == (len(QUESTIONS), 3)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0, rtol=1e-5)
    assert list(fitted.predict(QUESTIONS)) == [fitted.classes_[i] for i in probabilities.argmax(axis=1)]


def test_the_score_is_the_accuracy(fitted: MetaPromptClassifier) -> None:
    predicted = list(fitted.predict(QUESTIONS))
    expected = ["weather", "sport", "food", "weather", "food"]
    assert fitted.score(QUESTIONS, expected) == np.mean([a == b for a, b in zip(predicted, expected, strict=True)])


def test_order_and_batches_do_not_matter(fitted: MetaPromptClassifier, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [" ".join(["rain", "goal", "soup", "the"][: 1 + i % 4] * (1 + i % 7)) for i in range(40)]
    expected = np.concatenate([fitted.predict_proba([text]) for text in texts])
    for tokens in (1, 64, 100_000):
        fitted.set_params(batch_tokens=tokens)
        np.testing.assert_allclose(fitted.predict_proba(texts), expected, rtol=1e-4, atol=1e-6)
    monkeypatch.setattr("openprompt_meta.classifier.classifier._WINDOW", 7)
    np.testing.assert_allclose(fitted.predict_proba(texts), expected, rtol=1e-4, atol=1e-6)


def test_no_batch_has_more_tokens_than_allowed(fitted: MetaPromptClassifier, monkeypatch: pytest.MonkeyPatch) -> None:
    from openprompt_meta.encoder.classifier import MaskOnlyClassifier

    seen: list[tuple[int, int]] = []
    stock = MaskOnlyClassifier.read

    def watched(self: Any, batch: Any) -> Any:
        seen.append(tuple(batch["input_ids"].shape))
        return stock(self, batch)

    monkeypatch.setattr(MaskOnlyClassifier, "read", watched)
    texts = ["rain " * (1 + i % 9) for i in range(30)]
    fitted.set_params(batch_tokens=100).predict_proba(texts)
    assert sum(rows for rows, _ in seen) == 30
    assert all(rows * length <= 100 for rows, length in seen)
    assert [length for _, length in seen] == sorted(length for _, length in seen)


def test_long_texts_are_cut_as_in_training_with_one_warning(
    fitted: MetaPromptClassifier, caplog: pytest.LogCaptureFixture
) -> None:
    budget = fitted.task_.meta.config.dataset.max_seq_length
    long = "rain " * 500
    with caplog.at_level(logging.WARNING):
        probabilities = fitted.predict_proba([long, "sun", long])
        fitted.predict_proba([long])
    (warning,) = [record.getMessage() for record in caplog.records]
    assert warning.startswith(f"2 of 3 texts are longer than the budget of {budget} tokens")
    np.testing.assert_allclose(fitted.predict_proba(["rain " * (budget - 8)])[0], probabilities[0], rtol=1e-4)
    assert fitted.explain(long).truncated
    assert not fitted.explain("sun").truncated


def test_a_text_of_a_megabyte_is_classified(fitted: MetaPromptClassifier) -> None:
    text = "the storm and the rain " * 45_000
    assert len(text) > 1_000_000
    np.testing.assert_allclose(fitted.predict_proba([text]), fitted.predict_proba([text[:3000]]), rtol=1e-5)
    assert fitted.predict_proba(["x" * 1_000_000]).shape == (1, 3)


@pytest.mark.parametrize(
    "text", ["rain storm " * 900, "\u200b " * 3000 + "rain", "\x1c".join(["rain"] * 2000), "x" * 9000]
)
def test_what_is_left_out_of_a_long_text_makes_no_difference(
    fitted: MetaPromptClassifier, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick = fitted.predict_proba([text])
    monkeypatch.setattr("openprompt_meta.encoder.wrapping._first_words", lambda text, count: text)
    assert np.array_equal(fitted.predict_proba([text]), quick)


def test_whole_numbers_are_classes_too(unfitted: MetaPromptClassifier) -> None:
    numbers = {"weather": 10, "sport": 2, "food": 7}
    by_name = clone(unfitted).fit(TEXTS, LABELS).predict(QUESTIONS)
    for labels in ([numbers[name] for name in LABELS], np.array([numbers[name] for name in LABELS])):
        classifier = unfitted.fit(TEXTS, labels)
        assert list(classifier.classes_) == [2, 7, 10]
        assert list(classifier.predict(QUESTIONS)) == [numbers[name] for name in by_name]


def test_before_fitting_there_is_nothing_to_predict(unfitted: MetaPromptClassifier) -> None:
    for call in (unfitted.predict, unfitted.predict_proba, lambda texts: unfitted.explain(texts[0])):
        with pytest.raises(NotFittedError, match=r"call fit\(texts, labels\)"):
            call(QUESTIONS)
    assert not hasattr(unfitted, "classes_")


# -- label words ------------------------------------------------------------------------------------------------------


@pytest.fixture
def with_words(tiny_mlm_folder: Callable[[str], Path]) -> Callable[..., MetaPromptClassifier]:
    """A fresh pool on a tiny BERT, which has a vocabulary head."""
    return lambda **settings: MetaPromptClassifier(base_model=tiny_mlm_folder("bert"), inner_steps=1, **settings)


WORDS = {"weather": ["rain", "storm"], "sport": "game", "food": ["soup"]}


def test_label_words_have_the_say_that_lambda_gives_them(with_words: Callable[..., MetaPromptClassifier]) -> None:
    classifier = with_words(mix_lambda=0.3).fit(TEXTS, LABELS, WORDS)
    for entry in classifier.explain(QUESTIONS[0]).classes:
        assert entry.soft is not None
        assert entry.hand_crafted is not None
        assert entry.probability == pytest.approx(0.7 * entry.hand_crafted + 0.3 * entry.soft, rel=1e-4)
    other = with_words(mix_lambda=0.3).fit(TEXTS, LABELS, {**WORDS, "food": ["king"]})
    assert not np.allclose(other.predict_proba(QUESTIONS), classifier.predict_proba(QUESTIONS))


def test_without_label_words_those_in_the_classes_names_are_taken(
    with_words: Callable[..., MetaPromptClassifier],
) -> None:
    named = with_words(mix_lambda=0.5).fit(TEXTS, LABELS)
    spelt_out = with_words(mix_lambda=0.5).fit(TEXTS, LABELS, {name: [name] for name in LABELS})
    assert np.array_equal(named.predict_proba(QUESTIONS), spelt_out.predict_proba(QUESTIONS))


def test_label_words_without_a_say_are_refused(fitted: MetaPromptClassifier) -> None:
    with pytest.raises(VerbalizerError, match="mix_lambda is 1"):
        fitted.fit(TEXTS, LABELS, WORDS)


def test_label_words_must_cover_the_classes(with_words: Callable[..., MetaPromptClassifier]) -> None:
    with pytest.raises(DataError, match=r"'food'.*There are words for 'sport'"):
        with_words(mix_lambda=0.5).fit(TEXTS, LABELS, {"sport": "game", "weather": "rain"})
    with pytest.raises(DataError, match="mapping from each class"):
        with_words(mix_lambda=0.5).fit(TEXTS, LABELS, ["rain", "game", "soup"])


def test_every_verbalizer_can_be_used(tiny_run: Path, tmp_path: Path) -> None:
    run = load_config(tiny_run / "config.yaml")
    for name in (
        "adaptive_verbalizer",
        "warp_verbalizer",
        "dart_verbalizer",
        "proto_verbalizer",
        "manual_verbalizer",
    ):
        classifier = MetaPromptClassifier.from_run(tiny_run)
        meta = classifier.meta_learned
        classifier._meta = (classifier._source(), replace(meta, config=run.with_values({"verbalizer": name})))
        probabilities = classifier.fit(TEXTS, LABELS).predict_proba(QUESTIONS)
        np.testing.assert_allclose(probabilities.sum(axis=1), 1.0, rtol=1e-5)
        classifier.save_pretrained(tmp_path / name)
        loaded = MetaPromptClassifier.from_pretrained(tmp_path / name)
        assert np.array_equal(loaded.predict_proba(QUESTIONS), probabilities), name
        again = clone(classifier)
        again._meta = classifier._meta
        assert np.array_equal(again.fit(TEXTS, LABELS).predict_proba(QUESTIONS), probabilities), name


def test_transductive_centring_gives_way_to_the_support_sets(
    tiny_run: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    from openprompt_meta.classifier.pretrained import Changes, changed

    run = load_config(tiny_run / "config.yaml")
    transductive = run.with_values({"rep_verbalizer.centring": "transductive"})
    with caplog.at_level(logging.WARNING):
        assert changed(transductive, Changes()).rep_verbalizer.centring == "support"
    assert "one by one" in caplog.text


# -- explaining -------------------------------------------------------------------------------------------------------


def test_an_explanation_agrees_with_the_prediction(fitted: MetaPromptClassifier) -> None:
    explanation = fitted.explain(QUESTIONS[1])
    probabilities = dict(zip(fitted.classes_, fitted.predict_proba([QUESTIONS[1]])[0], strict=True))
    assert explanation.label == fitted.predict([QUESTIONS[1]])[0] == explanation.classes[0].label
    # The query vector of an explanation is computed apart, which may differ in the last bits.
    expected = sorted(probabilities.values(), reverse=True)
    assert [entry.probability for entry in explanation.classes] == pytest.approx(expected, rel=1e-5)
    for entry in explanation.classes:
        assert entry.probability == pytest.approx(probabilities[entry.label], rel=1e-5)
        assert entry.hand_crafted is None
        assert entry.soft == pytest.approx(entry.probability)


def test_attention_is_that_of_the_adapted_pool(tiny_run: Path, fitted: MetaPromptClassifier) -> None:
    texts = method_of(tiny_run).sources["test"].texts
    text = texts._texts[0]
    query = texts.batch([0])["query"][0]
    keys = fitted.task_.adapted.pool["keys"]
    expected = (keys @ query / len(query) ** 0.5).softmax(dim=0)
    found = fitted.explain(text).attention
    assert sum(found) == pytest.approx(1.0)
    np.testing.assert_allclose(found, expected.numpy(), rtol=1e-4)


def test_the_nearest_words_are_those_of_the_largest_cosine(fitted: MetaPromptClassifier) -> None:
    from openprompt_meta.classifier.pretrained import base_model_of

    loaded = base_model_of(fitted.task_.meta).loaded
    explanation = fitted.explain(QUESTIONS[0], words=2)
    prompt = torch.einsum("k,kld->ld", torch.tensor(explanation.attention), fitted.task_.adapted.pool["prompts"])
    assert len(explanation.prompt_words) == len(prompt) == 2
    for position, words in zip(prompt, explanation.prompt_words, strict=True):
        cosines = F.cosine_similarity(loaded.model.get_input_embeddings().weight, position, dim=-1)
        ranked = [i for i in cosines.argsort(descending=True).tolist() if i not in loaded.tokenizer.all_special_ids]
        assert [near.word for near in words] == loaded.tokenizer.convert_ids_to_tokens(ranked[:2])
        assert words[0].cosine == pytest.approx(float(cosines[ranked[0]]), rel=1e-4)


def test_an_example_is_its_own_nearest(fitted: MetaPromptClassifier) -> None:
    for text, label in zip(TEXTS, LABELS, strict=True):
        nearest = fitted.explain(text, examples=2).nearest_examples
        assert (nearest[0].text, nearest[0].label) == (text, label)
        assert nearest[0].cosine == pytest.approx(1.0, abs=1e-4)
        assert nearest[0].cosine >= nearest[1].cosine
    assert len(fitted.explain(TEXTS[0], examples=100).nearest_examples) == len(TEXTS)
    assert fitted.explain(TEXTS[0], words=0, examples=0).nearest_examples == ()


def test_an_explanation_is_ready_for_json(unfitted: MetaPromptClassifier) -> None:
    for labels in (LABELS, np.array([len(name) for name in LABELS])):
        explanation = unfitted.fit(TEXTS, labels).explain("sun \U0001f31e")
        assert json.loads(json.dumps(explanation.as_dict())) == explanation.as_dict()
        assert explanation.as_dict()["classes"][0]["label"] == explanation.label


# -- as an object -----------------------------------------------------------------------------------------------------


def test_copies_predict_the_same_and_go_to_other_processes(fitted: MetaPromptClassifier) -> None:
    expected = fitted.predict_proba(QUESTIONS)
    for other in (copy.deepcopy(fitted), pickle.loads(pickle.dumps(fitted))):  # noqa: S301 - our own
        assert np.array_equal(other.predict_proba(QUESTIONS), expected)
    assert len(pickle.dumps(fitted)) < 100_000  # without the language model


def test_a_clone_has_the_settings_and_has_learned_nothing(fitted: MetaPromptClassifier) -> None:
    other = clone(fitted.set_params(inner_steps=2))
    assert other.get_params() == fitted.get_params()
    assert not hasattr(other, "classes_")
    assert len(other.fit(TEXTS, LABELS).task_.adapted.inner_losses) == 2


def test_settings_that_change_between_fits_are_heeded(fitted: MetaPromptClassifier) -> None:
    assert len(fitted.set_params(inner_steps=1).fit(TEXTS, LABELS).task_.adapted.inner_losses) == 1


@pytest.mark.real_encoder
def test_by_itself_it_is_prompt_tuning_on_the_packaged_encoder() -> None:
    classifier = MetaPromptClassifier().fit(
        ["will it rain tomorrow", "how cold is it outside", "play some jazz", "next song please"],
        ["weather", "weather", "music", "music"],
    )
    assert list(classifier.predict(["is it going to snow", "turn this track up"])) == ["weather", "music"]
