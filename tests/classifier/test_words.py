"""Classes known by their words: names as examples, and no example at all."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from openprompt_meta import MetaPromptClassifier
from openprompt_meta.errors import DataError
from openprompt_meta.runs.run import Run
from tests.helpers.few_texts import LABELS, TEXTS
from tests.helpers.small_runs import small_config, write_data

WORDS = {"weather": ["rain", "storm"], "sport": ["game", "goal"], "food": ["soup"]}


@pytest.fixture(scope="module")
def run(tiny_mlm_folder: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("names")
    config = small_config(tiny_mlm_folder("bert"), write_data(folder / "data")).with_values(
        {"rep_verbalizer.name_weight": 2.0, "prompt_pool_template.features": "mean", "meta.iterations": 2}
    )
    assert Run(config, folder / "run", show_progress=False).train() is not None
    return folder / "run"


def test_without_an_example_a_text_is_compared_with_the_words(run: Path) -> None:
    classifier = MetaPromptClassifier.from_run(run).fit([], [], label_words=WORDS, classes=list(WORDS))
    assert list(classifier.classes_) == sorted(WORDS)
    probabilities = classifier.predict_proba(TEXTS)
    # The same as one example a class whose text is the words, compared by the same pool without a step.
    names = [", ".join(WORDS[name]) for name in sorted(WORDS)]
    words = MetaPromptClassifier.from_run(run, inner_steps=0).fit(names, sorted(WORDS), label_words=WORDS)
    features = words.task_.adapted.features
    asked = MetaPromptClassifier.from_run(run, inner_steps=0).fit([*TEXTS, "one more"], [*LABELS, LABELS[0]])
    texts = asked.task_.adapted.features[: len(TEXTS)]
    expected = (10 * F.normalize(texts, dim=-1) @ F.normalize(features, dim=-1).T).softmax(dim=-1)
    assert torch.allclose(torch.from_numpy(probabilities), expected, atol=1e-5)


def test_a_class_may_lack_examples_and_get_them_later(run: Path) -> None:
    classifier = MetaPromptClassifier.from_run(run)
    classifier.fit(TEXTS, LABELS, classes=[*sorted(set(LABELS)), "opera"])
    assert "opera" in classifier.classes_
    assert classifier.task_.counts[list(classifier.classes_).index("opera")] == 0
    classifier.partial_fit(["an aria in the evening"], ["opera"])
    assert classifier.task_.counts[list(classifier.classes_).index("opera")] == 1
    only = MetaPromptClassifier.from_run(run).fit([], [], classes=["weather", "opera"])
    only.partial_fit(["rain"], ["weather"])
    assert list(only.classes_) == ["opera", "weather"]


def test_a_classifier_without_examples_is_saved_and_loaded(run: Path, tmp_path: Path) -> None:
    classifier = MetaPromptClassifier.from_run(run).fit([], [], label_words=WORDS, classes=list(WORDS))
    classifier.save_pretrained(tmp_path / "zero")
    loaded = MetaPromptClassifier.from_pretrained(tmp_path / "zero")
    assert (loaded.predict_proba(TEXTS) == classifier.predict_proba(TEXTS)).all()
    assert loaded.explain(TEXTS[0]).nearest_examples == ()


def test_words_given_change_what_a_class_is(run: Path) -> None:
    one = MetaPromptClassifier.from_run(run).fit(TEXTS, LABELS)
    words = {label: ["thunder"] for label in set(LABELS)} | {LABELS[0]: ["a goal in the rain"]}
    two = MetaPromptClassifier.from_run(run).fit(TEXTS, LABELS, label_words=words)
    assert not (one.predict_proba(TEXTS) == two.predict_proba(TEXTS)).all()


def test_classes_without_examples_need_a_verbalizer_that_reads_words(tiny_run: Path) -> None:
    classifier = MetaPromptClassifier.from_run(tiny_run)
    with pytest.raises(DataError, match=r"There is no example of \['opera'\]"):
        classifier.fit(TEXTS, LABELS, classes=[*set(LABELS), "opera"])
    with pytest.raises(DataError, match="are not among the classes"):
        classifier.fit(TEXTS, LABELS, classes=["opera", "weather"])
