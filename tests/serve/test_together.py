"""Predictions that wait for each other: everyone gets their own answer."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from openprompt_meta.serve.tasks import Together


class Lengths:
    """Predicts the length of each text, remembers its batches, and fails on the text 'bad'."""

    def __init__(self) -> None:
        self.batches: list[list[str]] = []

    def __call__(self, texts: list[str]) -> list[list[float]]:
        self.batches.append(texts)
        if "bad" in texts:
            raise ValueError("a bad text")
        return [[float(len(text))] for text in texts]


def test_what_waits_goes_together_and_everyone_gets_their_own() -> None:
    predict = Lengths()
    together = Together(predict, most=4)
    asked = [["a"], ["bb", "ccc"], ["d"], ["eeee"], ["ffff", "g"]]
    answers = [together.ask(texts) for texts in asked]
    for _ in asked:
        together.work()
    assert [answer.result(0) for answer in answers] == [[[float(len(t))] for t in texts] for texts in asked]
    assert predict.batches == [["a", "bb", "ccc", "d"], ["eeee", "ffff", "g"]]


def test_one_large_request_goes_by_itself() -> None:
    predict = Lengths()
    together = Together(predict, most=2)
    answers = [together.ask(["a"]), together.ask(["b"] * 5), together.ask(["c"])]
    for _ in answers:
        together.work()
    assert predict.batches == [["a"], ["b"] * 5, ["c"]]
    assert [len(answer.result(0)) for answer in answers] == [1, 5, 1]


def test_a_request_that_fails_does_not_spoil_the_others() -> None:
    together = Together(Lengths(), most=8)
    good, bad, other = together.ask(["a"]), together.ask(["bad"]), together.ask(["cc"])
    together.work()
    assert (good.result(0), other.result(0)) == ([[1.0]], [[2.0]])
    with pytest.raises(ValueError, match="a bad text"):
        bad.result(0)


def test_a_request_that_was_given_up_is_left_out() -> None:
    predict = Lengths()
    together = Together(predict, most=8)
    first, given_up, last = together.ask(["a"]), together.ask(["b"]), together.ask(["c"])
    assert given_up.cancel()
    together.work()
    assert predict.batches == [["a", "c"]]
    assert (first.result(0), last.result(0)) == ([[1.0]], [[1.0]])


def test_many_threads_lose_and_mix_up_nothing() -> None:
    together = Together(Lengths(), most=5)
    begin = threading.Barrier(8)

    def ask_often(thread: int) -> bool:
        begin.wait(30)
        for i in range(200):
            texts = ["x" * (thread + 1)] * (1 + i % 3)
            answer = together.ask(texts)
            together.work()
            if answer.result(30) != [[float(thread + 1)]] * len(texts):
                return False
        return True

    with ThreadPoolExecutor(8) as threads:
        assert all(threads.map(ask_often, range(8)))
