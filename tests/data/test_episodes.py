from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from openprompt_meta.data.dataset import Split
from openprompt_meta.data.episodes import (
    EpisodeSampler,
    VariedEpisodeSampler,
    seeded_chance,
    seeded_choice,
    seeded_sample,
)
from openprompt_meta.data.loading import load
from openprompt_meta.errors import DataError


def make_split(sizes: list[int], name: str = "train", interleave: bool = False) -> Split:
    rows = [(f"class {i}", f"text {i} {j}") for i, size in enumerate(sizes) for j in range(size)]
    if interleave:
        rows.sort(key=lambda row: row[1].split()[2])
    return Split(
        name,
        tuple(text for _, text in rows),
        tuple(label for label, _ in rows),
        tuple(f"class {i}" for i in range(len(sizes))),
    )


@given(
    sizes=st.lists(st.integers(6, 30), min_size=2, max_size=12),
    ways=st.integers(2, 12),
    shots=st.integers(1, 3),
    queries=st.integers(0, 3),
    seed=st.integers(0, 2**70),
    index=st.integers(0, 2**40),
    interleave=st.booleans(),
)
@settings(max_examples=150, deadline=None)
def test_an_episode_is_what_it_says(
    sizes: list[int], ways: int, shots: int, queries: int, seed: int, index: int, interleave: bool
) -> None:
    ways = min(ways, len(sizes))
    split = make_split(sizes, interleave=interleave)
    episode = EpisodeSampler(split, ways=ways, shots=shots, queries=queries, seed=seed)[index]
    assert len(set(episode.classes)) == len(episode.classes) == ways
    drawn = episode.support + episode.query
    assert len(set(drawn)) == len(drawn)
    assert Counter(episode.support_labels) == dict.fromkeys(range(ways), shots)
    assert Counter(episode.query_labels) == (dict.fromkeys(range(ways), queries) if queries else {})
    for position, label in zip(drawn, episode.support_labels + episode.query_labels, strict=True):
        assert split.labels[position] == episode.classes[label]


def test_an_episode_does_not_depend_on_what_was_drawn_before() -> None:
    sampler = EpisodeSampler(make_split([30] * 8), seed=7)
    forwards = [sampler[index] for index in range(20)]
    backwards = [sampler[index] for index in reversed(range(20))][::-1]
    assert forwards == backwards == list(sampler.take(20))
    assert list(sampler.take(3, start=5)) == forwards[5:8]


def test_seed_split_and_index_all_matter() -> None:
    episodes = {
        (seed, name, index): EpisodeSampler(make_split([30] * 10, name), seed=seed)[index].support
        for seed, name, index in itertools.product((0, 1, 10), ("train", "test"), (0, 1, 10, 100))
    }
    assert len(set(episodes.values())) == len(episodes)


def test_the_order_in_which_a_file_lists_its_classes_does_not_matter() -> None:
    split = make_split([30] * 8)
    turned = Split(split.name, split.texts, split.labels, split.classes[::-1])
    assert EpisodeSampler(split)[3] == EpisodeSampler(turned)[3]


def test_fewer_shots_see_the_same_queries_and_a_part_of_the_support() -> None:
    split = make_split([30] * 8)
    one, five = (EpisodeSampler(split, shots=shots, seed=2)[11] for shots in (1, 5))
    assert one.classes == five.classes
    assert one.query == five.query
    assert set(one.support) < set(five.support)


# Frozen on purpose: if this changes, every result drawn from a seed changes with it.
FROZEN = (("define_word", "tell_joke", "order_food"), (604, 609, 643, 623, 14, 6), (585, 583, 614, 629, 10, 15))


def test_a_known_episode_of_the_demo_set_stays_as_it_is() -> None:
    episode = EpisodeSampler(load("demo").train, ways=3, shots=2, queries=2, seed=42)[1000]
    assert (episode.classes, episode.support, episode.query) == FROZEN


def test_other_processes_with_another_hash_seed_draw_the_same() -> None:
    # Catches an order that comes from a set or from hash().
    code = (
        "import json; from openprompt_meta.data.episodes import EpisodeSampler;"
        "from openprompt_meta.data.loading import load; from openprompt_meta.data.classes import random_class_split;"
        "e = EpisodeSampler(load('demo').test, seed=5)[9];"
        "r = random_class_split({str(i) for i in range(40)}, (20, 10, 10), seed=1);"
        "print(json.dumps([e.classes, e.support, e.query, r.train]))"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for seed in ("0", "1", "4242")
    }
    assert len(outputs) == 1
    episode = EpisodeSampler(load("demo").test, seed=5)[9]
    assert json.loads(outputs.pop())[1] == list(episode.support)


def test_every_ordered_draw_is_equally_likely() -> None:
    # Oracle: all 4·3 ordered pairs by brute force; a modulo bias or a bad shuffle would show in the counts.
    rounds = 12_000
    counts = Counter(tuple(seeded_sample("abcd", 2, "uniform", i)) for i in range(rounds))
    pairs = list(itertools.permutations("abcd", 2))
    assert set(counts) == set(pairs)
    expected = rounds / len(pairs)
    chi_square = sum((counts[pair] - expected) ** 2 / expected for pair in pairs)
    assert chi_square < 31.3  # the 0.1 % point at 11 degrees of freedom


@given(st.integers(1, 40), st.data())
@settings(max_examples=60, deadline=None)
def test_a_draw_has_no_repeats_and_a_shorter_one_is_its_beginning(size: int, data: st.DataObject) -> None:
    count = data.draw(st.integers(0, size))
    items = list(range(size))
    drawn = seeded_sample(items, count, "key", 1)
    assert len(set(drawn)) == count
    assert set(drawn) <= set(items)
    assert drawn == seeded_sample(items, size, "key", 1)[:count]


def test_keys_that_only_look_alike_give_different_draws() -> None:
    # Catches keys that are glued together: seed 1, index 11 must not be seed 11, index 1.
    keys = [(1, 11), (11, 1), ("1", 11), (1, 1, 1), ("ab", "c"), ("a", "bc")]
    assert len({tuple(seeded_sample(range(1000), 5, *key)) for key in keys}) == len(keys)


def test_too_few_classes_is_refused_with_the_numbers() -> None:
    with pytest.raises(DataError, match=r"'valid' has 3 classes .* 5-way episodes need 5"):
        EpisodeSampler(make_split([30] * 3, "valid"), ways=5)


def test_too_few_texts_is_refused_with_the_classes_and_their_sizes() -> None:
    with pytest.raises(DataError, match=r"class 1 has 19, class 3 has 2; 5 shots and 15 queries need 20"):
        EpisodeSampler(make_split([20, 19, 25, 2, 40]))


def test_a_class_of_just_enough_texts_is_used_up() -> None:
    episode = EpisodeSampler(make_split([20] * 5))[0]
    assert sorted(episode.support + episode.query) == list(range(100))


@pytest.mark.parametrize(("name", "value"), [("ways", 1), ("shots", 0), ("queries", -1)])
def test_senseless_sizes_are_refused(name: str, value: int) -> None:
    with pytest.raises(DataError, match=f"{name} is {value}"):
        EpisodeSampler(make_split([30] * 8), **{name: value})


def test_negative_numbers_and_endless_loops_are_refused() -> None:
    sampler = EpisodeSampler(make_split([30] * 8))
    with pytest.raises(DataError, match="numbered from 0"):
        sampler[-1]
    with pytest.raises(TypeError):
        iter(sampler)  # type: ignore[call-overload]


# -- episodes of many sizes -------------------------------------------------------------------------------------------


@given(
    sizes=st.lists(st.integers(4, 40), min_size=2, max_size=25),
    ways=st.tuples(st.integers(2, 6), st.integers(0, 14)),
    shots=st.tuples(st.integers(0, 3), st.integers(0, 7)),
    texts=st.integers(1, 80),
    index=st.integers(0, 2**40),
)
@settings(max_examples=150, deadline=None)
def test_a_varied_episode_keeps_to_its_bounds(
    sizes: list[int], ways: tuple[int, int], shots: tuple[int, int], texts: int, index: int
) -> None:
    fewest, least = min(ways[0], len(sizes)), shots[0]
    split = make_split(sizes)
    sampler = VariedEpisodeSampler(split, (fewest, fewest + ways[1]), (least, least + shots[1]), texts)
    episode = sampler[index]
    assert fewest <= len(set(episode.classes)) == len(episode.classes) <= fewest + ways[1]
    assert len({*episode.support, *episode.query}) == len(episode.support) + len(episode.query)
    given_to = Counter(episode.support_labels)
    assert all(least <= given_to[label] <= least + shots[1] for label in range(len(episode.classes)))
    assert set(episode.query_labels) == set(range(len(episode.classes))), "every class is asked for"
    # The least that there can be is more than `texts` where there are many classes.
    assert len(episode.support) + len(episode.query) <= max(texts, len(episode.classes) * (max(least, 1) + 1))
    labels = (*episode.support_labels, *episode.query_labels)
    for position, label in zip((*episode.support, *episode.query), labels, strict=True):
        assert split.labels[position] == episode.classes[label]
    assert episode == sampler[index]


def test_small_tasks_are_as_frequent_as_large_ones_of_many_sizes() -> None:
    sampler = VariedEpisodeSampler(make_split([60] * 20), ways=(2, 20), shots=(0, 10), texts=400)
    episodes = [sampler[index] for index in range(2000)]
    ways = Counter(len(episode.classes) for episode in episodes)
    shots = Counter(len(episode.support) // len(episode.classes) for episode in episodes)
    shares = [1 / (size + 1) for size in range(2, 21)]
    for size, share in zip(range(2, 21), shares, strict=True):
        assert abs(ways[size] / 2000 - share / sum(shares)) < 0.03
    assert shots[0] > shots[1] > shots[4] > 0
    assert min(shots) == 0
    assert max(shots) == 10


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ways": (3, 2)}, "ways lie between 3 and 2"),
        ({"ways": (1, 4)}, "expected two rising numbers from 2"),
        ({"shots": (-1, 4)}, "expected two rising numbers from 0"),
        ({"ways": (5, 9)}, "has 3 classes"),
        ({"ways": (2, 9), "shots": (6, 9)}, "6 shots and a query need 7 a class"),
    ],
)
def test_bounds_that_cannot_be_kept_are_refused(options: dict[str, tuple[int, int]], message: str) -> None:
    with pytest.raises(DataError, match=message):
        VariedEpisodeSampler(make_split([6, 6, 6]), **options)  # type: ignore[arg-type]


def test_an_episode_of_a_mixture_has_classes_of_one_data_set() -> None:
    split = make_split([8] * 9)
    domains = (split.classes[:3], split.classes[3:5], split.classes[5:])
    mixed = replace(split, domains=domains, shares=(1, 2, 5))
    for sampler in (EpisodeSampler(mixed, ways=2, shots=1, queries=1), VariedEpisodeSampler(mixed, ways=(2, 20))):
        found = Counter(
            next(i for i, domain in enumerate(domains) if set(episode.classes) <= set(domain))
            for episode in sampler.take(800)
        )
        assert [round(found[i] / 100) for i in range(3)] == [1, 2, 5]


def test_a_choice_is_as_likely_as_its_weight() -> None:
    found = Counter(seeded_choice("abc", (1, 0, 3), "key", i) for i in range(4000))
    assert found["b"] == 0
    assert abs(found["a"] / 4000 - 0.25) < 0.02


def test_a_chance_is_as_likely_as_its_share() -> None:
    assert all(seeded_chance(1.0, "key", i) for i in range(50))
    assert not any(seeded_chance(0.0, "key", i) for i in range(50))
    assert abs(sum(seeded_chance(0.7, "key", i) for i in range(4000)) / 4000 - 0.7) < 0.025
