"""The classifier as a scikit-learn estimator: its checks, its tools."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from joblib import parallel_config
from sklearn.base import clone, is_classifier
from sklearn.exceptions import SkipTestWarning
from sklearn.model_selection import GridSearchCV, StratifiedKFold, cross_val_predict, cross_val_score
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import check_estimator
from sklearn.utils.validation import check_is_fitted, validate_data

from openprompt_meta import MetaPromptClassifier
from tests.helpers.few_texts import LABELS, QUESTIONS, TEXTS
from tests.helpers.tiny_models import WORDS

MANY = [f"{word} on day {i}" for word in ("rain", "goal") for i in range(6)]
THEIR = ["weather"] * 6 + ["sport"] * 6


class OfNumbers(MetaPromptClassifier):
    """The classifier on tables of numbers, each row told in words, so that scikit-learn's checks can be run on it.

    Nothing but the input differs: every call ends in the classifier's own.
    """

    def __init__(self, base_model: Any = None, inner_steps: int = 0, adapt_examples: int = 8) -> None:
        super().__init__(base_model=base_model, inner_steps=inner_steps, adapt_examples=adapt_examples)

    def fit(self, X: Any, y: Any) -> Any:  # noqa: N803 - scikit-learn's names
        X, y = validate_data(self, X, y)  # noqa: N806
        return super().fit(told(X), y)

    def partial_fit(self, X: Any, y: Any, classes: Any = None) -> Any:  # noqa: N803
        X, y = validate_data(self, X, y, reset=not hasattr(self, "n_features_in_"))  # noqa: N806
        return super().partial_fit(told(X), y, classes)

    def predict(self, X: Any) -> Any:  # noqa: N803
        check_is_fitted(self)
        return super().predict(told(validate_data(self, X, reset=False)))

    def predict_proba(self, X: Any) -> Any:  # noqa: N803
        check_is_fitted(self)
        return super().predict_proba(told(validate_data(self, X, reset=False)))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = True
        tags.input_tags.one_d_array = False
        tags.input_tags.string = False
        tags.classifier_tags.poor_score = True  # a tiny model with random weights, told numbers in words
        return tags


def told(table: Any) -> list[str]:
    """Each number as two words, in steps of a thousandth."""
    numbers = np.rint(np.asarray(table, dtype=float) * 1000).astype(int)
    base = len(WORDS)
    return [" ".join(f"{WORDS[n // base % base]} {WORDS[n % base]}" for n in row) for row in numbers]


def test_as_it_is_scikit_learn_knows_that_it_takes_texts(unfitted: MetaPromptClassifier) -> None:
    assert is_classifier(unfitted)
    with pytest.warns(SkipTestWarning, match="requires input"):
        (result,) = check_estimator(unfitted)
    assert (result["check_name"], result["status"]) == ("check_estimator_cloneable", "passed")


EXPECTED: dict[str, str] = {}


def test_scikit_learns_checks_pass_once_numbers_are_told_in_words(tiny_mlm_folder: Callable[[str], Path]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = check_estimator(
            OfNumbers(base_model=tiny_mlm_folder("bert")), expected_failed_checks=EXPECTED, on_fail=None
        )
    failed = {result["check_name"]: result["exception"] for result in results if result["status"] == "failed"}
    assert failed == {}
    passed = {result["check_name"] for result in results if result["status"] == "passed"}
    assert len(passed) >= 40
    assert {result["check_name"] for result in results if result["status"] == "xfail"} == set(EXPECTED)


def test_cross_validation_scores_each_fold_by_a_classifier_of_its_own(unfitted: MetaPromptClassifier) -> None:
    folds = StratifiedKFold(3)
    scores = cross_val_score(unfitted, MANY, THEIR, cv=folds, error_score="raise")
    expected = []
    for train, test in folds.split(MANY, THEIR):
        own = clone(unfitted).fit([MANY[i] for i in train], [THEIR[i] for i in train])
        expected.append(own.score([MANY[i] for i in test], [THEIR[i] for i in test]))
    assert scores.tolist() == expected
    assert not hasattr(unfitted, "classes_")
    assert cross_val_predict(unfitted, MANY, THEIR, cv=folds, method="predict_proba").shape == (12, 2)


def test_it_stands_at_the_end_of_a_pipeline(unfitted: MetaPromptClassifier, fitted: MetaPromptClassifier) -> None:
    lower = FunctionTransformer(lambda texts: [text.lower() for text in texts])
    pipeline = Pipeline([("lower", lower), ("classifier", clone(unfitted))])
    pipeline.fit([text.upper() for text in TEXTS], LABELS)
    assert np.array_equal(pipeline.predict_proba(QUESTIONS), fitted.predict_proba(QUESTIONS))
    assert list(pipeline.classes_) == list(fitted.classes_)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_grid_search_finds_settings_and_fits_with_them(unfitted: MetaPromptClassifier, workers: int) -> None:
    search = GridSearchCV(unfitted, {"inner_steps": [0, 2], "inner_lr": [0.1]}, cv=2, n_jobs=workers)
    with parallel_config(backend="threading"):
        search.fit(MANY, THEIR)
    assert search.best_params_["inner_steps"] in (0, 2)
    assert len(search.best_estimator_.task_.adapted.inner_losses) == search.best_params_["inner_steps"]
    assert set(search.predict(QUESTIONS)) <= {"weather", "sport"}
