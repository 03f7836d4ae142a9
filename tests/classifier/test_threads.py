"""Threads that share a classifier: the same bits as one after the other."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from openprompt_meta import MetaPromptClassifier
from tests.helpers.few_texts import LABELS, QUESTIONS, TEXTS

WORKERS = 8


def batches() -> list[list[str]]:
    return [[f"{text} {i}" for text in QUESTIONS[: 1 + i % 5]] * (1 + i % 3) for i in range(40)]


def together(count: int, work: Callable[[int], object]) -> list[object]:
    """Results of ``work(0) …`` from threads that all start at once."""
    start = threading.Barrier(WORKERS)

    def own(first: int) -> list[tuple[int, object]]:
        start.wait()
        return [(i, work(i)) for i in range(first, count, WORKERS)]

    with ThreadPoolExecutor(WORKERS) as pool:
        found = dict(pair for part in pool.map(own, range(WORKERS)) for pair in part)
    return [found[i] for i in range(count)]


@pytest.mark.parametrize("mix_lambda", [None, 0.5])
def test_threads_predict_the_same_bits_as_one(
    tiny_mlm_folder: Callable[[str], Path], mix_lambda: float | None
) -> None:
    classifier = MetaPromptClassifier(base_model=tiny_mlm_folder("bert"), inner_steps=1, mix_lambda=mix_lambda)
    classifier.fit(TEXTS, LABELS)
    work = batches()
    expected = [classifier.predict_proba(texts) for texts in work]
    found = together(len(work), lambda i: classifier.predict_proba(work[i]))
    assert all(np.array_equal(one, other) for one, other in zip(found, expected, strict=True))


def test_classifiers_on_one_model_do_not_meet_in_it(tiny_run: Path) -> None:
    """Each thread has another classifier: if pools or label embeddings were swapped in and out, they would mix."""
    words = ["rain", "goal", "soup", "flight", "song", "law", "coin", "movie"]
    tasks = [([words[i], words[i - 1], f"the {words[i]}"], ["x", "y", "x"]) for i in range(WORKERS)]
    classifiers = [MetaPromptClassifier.from_run(tiny_run).fit(*task) for task in tasks]
    expected = [classifier.predict_proba(QUESTIONS) for classifier in classifiers]
    assert len({array.tobytes() for array in expected}) == WORKERS
    found = together(WORKERS * 10, lambda i: classifiers[i % WORKERS].predict_proba(QUESTIONS))
    assert all(np.array_equal(found[i], expected[i % WORKERS]) for i in range(len(found)))


def test_fits_at_the_same_time_learn_what_they_learn_alone(tiny_run: Path) -> None:
    def fit(i: int) -> np.ndarray:
        texts = [*TEXTS[: 3 + i % 3], f"a song of day {i}"]
        return MetaPromptClassifier(tiny_run).fit(texts, [*LABELS[: 3 + i % 3], "music"]).predict_proba(QUESTIONS)

    expected = [fit(i) for i in range(WORKERS)]
    assert all(np.array_equal(a, b) for a, b in zip(together(WORKERS, fit), expected, strict=True))


def test_a_prediction_during_a_fit_is_wholly_of_the_one_or_the_other(unfitted: MetaPromptClassifier) -> None:
    """Two fits of different numbers of classes take turns; a mixture of the two would have the wrong shape or bits."""
    two = [TEXTS[:3], LABELS[:3]]
    before = unfitted.fit(*two).predict_proba(QUESTIONS)
    after = unfitted.fit(TEXTS, LABELS).predict_proba(QUESTIONS)
    ended = threading.Event()

    def keep_fitting() -> None:
        try:
            for i in range(6):
                unfitted.fit(*(two if i % 2 else (TEXTS, LABELS)))
        finally:
            ended.set()

    fitter = threading.Thread(target=keep_fitting)
    fitter.start()
    found = []
    while not ended.is_set():
        found.append(unfitted.predict_proba(QUESTIONS))
        assert unfitted.explain("sun").label in LABELS
    fitter.join()
    assert found
    assert all(any(np.array_equal(own, one) for one in (before, after)) for own in found)


def test_one_loading_serves_all_threads(fitted: MetaPromptClassifier) -> None:
    import pickle

    expected = fitted.predict_proba(QUESTIONS)
    copy: MetaPromptClassifier = pickle.loads(pickle.dumps(fitted))  # noqa: S301 - our own
    found = together(WORKERS, lambda i: (copy.predict_proba(QUESTIONS), copy._live))
    assert all(np.array_equal(probabilities, expected) for probabilities, _ in found)
    assert len({id(live) for _, live in found}) == 1
