"""What people hand over by mistake: each refused with what it is, and what was expected."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from openprompt_meta import MetaPromptClassifier
from openprompt_meta.errors import DataError, OpenPromptMetaError
from tests.helpers.few_texts import LABELS, QUESTIONS, TEXTS

TWO = ["a", "b"]


@pytest.mark.parametrize(
    ("texts", "labels", "message"),
    [
        ([], [], "The list of texts is empty"),
        (["rain", "storm"], ["a", "a"], "All examples are of one class, 'a'"),
        (["rain", None], TWO, "Text 1 is None.*leave the row out"),
        (["rain", float("nan")], TWO, r"Text 1 is nan \(float\).*It is missing"),
        ([np.nan, "rain"], TWO, "Text 0 is nan"),
        (["rain", b"goal"], TWO, r"Text 1 is b'goal' \(bytes\).*decode\('utf-8'\)"),
        (["rain", 5], TWO, r"Text 1 is 5 \(int\)"),
        (["rain", ["goal"]], TWO, r"Text 1 is \['goal'\] \(list\)"),
        (["rain", " \n\t"], TWO, "Text 1 is empty"),
        (["rain", "half \ud83d"], TWO, "Text 1 holds half of a surrogate pair"),
        ("rain", ["a"], "Texts are given as one str, 'rain'.*brackets"),
        (b"rain", ["a"], "Texts are given as one bytes"),
        ({"rain": "a", "goal": "b"}, TWO, "Texts are given as a dict"),
        ({"rain", "goal"}, TWO, "Texts are given as a set"),
        (7, TWO, r"Texts are 7 \(int\)"),
        (None, TWO, "Texts are None"),
        (np.array([["rain", "goal"], ["a", "b"]]), TWO, r"Texts are an array of shape \(2, 2\)"),
        (np.array([1.0, 2.0]), TWO, "Text 0 is"),
        (["rain", "goal"], ["a", 1], r"Labels are of mixed type: label 0 is 'a' \(str\), label 1 is 1 \(int\)"),
        (["rain", "goal"], [True, 1], r"mixed type: label 0 is True \(bool\), label 1 is 1 \(int\)"),
        (["rain", "goal"], ["a", None], "label 1 is None"),
        (["rain", "goal"], ["a", float("nan")], "label 1 is nan.*It is missing"),
        (["rain", "goal"], [0.5, 1.5], r"Unknown label type: label 0 is 0.5 \(float\)"),
        (["rain", "goal"], ["a", ""], "Label 1 is an empty string"),
        (["rain", "goal"], ["a", "\udc00"], "Label 1 holds half of a surrogate pair"),
        (["rain", "goal"], "ab", "Labels are given as one str, 'ab'"),
        (["rain", "goal"], None, "labels are needed"),
        (["rain", "goal", "soup"], TWO, "There are 3 texts and 2 labels"),
        (["rain", "goal", "Rain ", "sun"], [*TWO, "b", "a"], "The text 'rain' is labelled 'a' and 'b'. Keep one"),
        (["rain", "goal", "rain", "goal"], ["a", "b", "b", "a"], "labelled 'a' and 'b'. So are 1 more"),
    ],
)
def test_what_cannot_be_learned_from_is_refused(
    unfitted: MetaPromptClassifier, texts: Any, labels: Any, message: str
) -> None:
    for learn in (unfitted.fit, unfitted.partial_fit):
        if learn == unfitted.partial_fit and "one class" in message:
            continue
        with pytest.raises(DataError, match=message):
            learn(texts, labels)
        assert not hasattr(unfitted, "classes_")


@pytest.mark.parametrize("texts", [[], "rain", ["rain", None], [b"rain"], [3], ["\ud800"], None, [["rain"]]])
def test_what_cannot_be_predicted_is_refused(fitted: MetaPromptClassifier, texts: Any) -> None:
    for predict in (fitted.predict, fitted.predict_proba):
        with pytest.raises(DataError):
            predict(texts)


@pytest.mark.parametrize("text", [None, b"rain", 3, ["rain"], "\ud800"])
def test_what_cannot_be_explained_is_refused(fitted: MetaPromptClassifier, text: Any) -> None:
    with pytest.raises(DataError, match="Text 0"):
        fitted.explain(text)


def test_an_example_added_later_may_not_contradict_an_earlier_one(fitted: MetaPromptClassifier) -> None:
    with pytest.raises(DataError, match="'food' and 'weather'"):
        fitted.partial_fit([TEXTS[0].upper()], ["food"])


def test_labels_added_later_are_of_the_same_type(fitted: MetaPromptClassifier) -> None:
    with pytest.raises(DataError, match="mixed type"):
        fitted.partial_fit(["a song"], [4])


def test_the_same_example_twice_is_no_contradiction(unfitted: MetaPromptClassifier) -> None:
    assert unfitted.fit([*TEXTS, TEXTS[0]], [*LABELS, LABELS[0]]).task_.counts == [1, 3, 3]


def test_anything_with_an_order_will_do(unfitted: MetaPromptClassifier) -> None:
    expected = unfitted.fit(TEXTS, LABELS).predict_proba(QUESTIONS)
    frame = pd.DataFrame({"text": TEXTS, "label": LABELS})
    for texts, labels in [
        (list(TEXTS), list(LABELS)),
        (np.array(TEXTS), np.array(LABELS)),
        (np.array(TEXTS, dtype=object)[:, None], np.array(LABELS, dtype=object)),
        (frame["text"], frame["label"]),
        (frame[["text"]], frame["label"].astype("category")),
        (iter(TEXTS), iter(LABELS)),
    ]:
        assert np.array_equal(unfitted.fit(texts, labels).predict_proba(QUESTIONS), expected)
    for questions in (np.array(QUESTIONS), pd.Series(QUESTIONS), (text for text in QUESTIONS)):
        assert np.array_equal(unfitted.predict_proba(questions), expected)


@pytest.mark.parametrize(
    "text", ["", " ", "\x00", "[MASK]", "<mask>", "[PAD][SEP]", '{"mask"}', "\u202e\u200b", "🌧" * 400, "a\nb\r\nc"]
)
def test_odd_texts_are_classified_like_any_other(fitted: MetaPromptClassifier, text: str) -> None:
    probabilities = fitted.predict_proba([text, "rain"])
    assert np.isfinite(probabilities).all()
    np.testing.assert_allclose(probabilities[1], fitted.predict_proba(["rain"])[0], rtol=1e-4)
    assert fitted.explain(text).text == text


def test_every_refusal_is_of_one_family_and_a_value_error() -> None:
    assert issubclass(DataError, OpenPromptMetaError)
    assert issubclass(DataError, ValueError)
