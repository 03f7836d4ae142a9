"""The numbers behind the figures, against loops that compute them another way."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from statistics import NormalDist, fmean, stdev

import numpy as np
import pytest
import safetensors.torch
import torch
from torch.nn import functional as F

from openprompt_meta.components import figures
from openprompt_meta.config.loading import load_config, shipped_yamls
from openprompt_meta.data.episodes import EpisodeSampler
from openprompt_meta.errors import RunError
from openprompt_meta.report.figures.comparison import Baselines
from openprompt_meta.report.figures.costs import HeldForBackward
from openprompt_meta.report.figures.label_map import label_distance
from openprompt_meta.report.figures.learning_curves import moving_mean
from openprompt_meta.report.figures.predictions import (
    Confusion,
    RunPredictions,
    TaskPredictions,
    calibrate,
    predictions_of,
)
from openprompt_meta.report.finished_run import FinishedRun, open_runs
from openprompt_meta.report.numbers_cache import NumbersCache
from openprompt_meta.report.page import differences_from_paper, summarise_run

pytestmark = pytest.mark.meta


def numbers(name: str, runs: list[FinishedRun], cache: NumbersCache):
    return figures()[name].from_runs(runs, cache)


def pool_tensors(run: FinishedRun) -> dict[str, np.ndarray]:
    file = run.folder.path / "seed-0" / "checkpoints" / "best.safetensors"
    return {
        name.removeprefix("pool."): value.double().numpy()
        for name, value in safetensors.torch.load_file(file).items()
        if name.startswith("pool.")
    }


def softmax(scores: np.ndarray) -> np.ndarray:
    powers = np.exp(scores - scores.max())
    return powers / powers.sum()


def made_up(tasks: list[TaskPredictions], monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the figures see these evaluated tasks."""
    name = "openprompt_meta.report.figures.predictions.predictions_of"
    monkeypatch.setattr(name, lambda run, cache: RunPredictions(0, tasks))


# -- predictions ------------------------------------------------------------------------------------------------------


def test_predicting_again_gives_the_accuracies_of_the_test(plain: FinishedRun, cache: NumbersCache) -> None:
    predicted = predictions_of(plain, cache)
    assert [fmean(task.hits) for task in predicted.tasks] == pytest.approx(plain.accuracies[0][:3])
    for task in predicted.tasks:
        assert np.array(task.probabilities).sum(axis=1) == pytest.approx(1.0)


def test_confusions_are_counted_only_where_both_classes_were_on_offer(
    plain: FinishedRun, cache: NumbersCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks = [
        TaskPredictions(0, ["a", "b"], [0, 0, 1, 1], [[0.9, 0.1], [0.4, 0.6], [0.2, 0.8], [0.7, 0.3]]),
        TaskPredictions(1, ["c", "a"], [0, 1], [[0.6, 0.4], [0.9, 0.1]]),
    ]
    made_up(tasks, monkeypatch)
    found: Confusion = numbers("confusion", [plain], cache)
    assert found.classes == ["a", "b", "c"]
    # a: three texts, two of them with b on offer (one taken for it), one with c on offer (taken for it).
    assert found.rates[0] == pytest.approx([1 / 3, 1 / 2, 1.0])
    assert found.rates[1] == pytest.approx([1 / 2, 1 / 2, 0.0])
    assert found.rates[2] == pytest.approx([0.0, 0.0, 1.0])
    assert found.worst[0] == (1.0, "a", "c")


def test_recalls_of_a_class_are_those_of_the_tasks_that_have_it(
    plain: FinishedRun, cache: NumbersCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    made_up(
        [
            TaskPredictions(0, ["a", "b"], [0, 0, 1, 1], [[0.9, 0.1], [0.4, 0.6], [0.2, 0.8], [0.3, 0.7]]),
            TaskPredictions(1, ["c", "a"], [0, 1], [[0.6, 0.4], [0.9, 0.1]]),
        ],
        monkeypatch,
    )
    found = numbers("classes", [plain], cache)
    assert dict(zip(found.classes, found.recalls, strict=True)) == {"a": [0.5, 0.0], "b": [1.0], "c": [1.0]}
    assert found.classes[0] == "a"  # the hardest first


def test_the_calibration_error_is_the_mean_gap_over_texts() -> None:
    generator = np.random.default_rng(0)
    confidences = generator.uniform(0.2, 1.0, 200)
    hits = generator.random(200) < confidences**2
    found = calibrate(confidences.tolist(), hits.tolist())
    gaps = []
    for low in np.arange(10) / 10:
        inside = (confidences > low) & (confidences <= low + 0.1)
        gaps += [abs(hits[inside].mean() - confidences[inside].mean())] * int(inside.sum()) if inside.any() else []
    assert found.error == pytest.approx(np.mean(gaps))
    assert sum(found.counts) == 200


def test_certainty_and_its_opposite_have_a_bin() -> None:
    found = calibrate([1.0, 0.0], [True, False])
    assert (found.counts[-1], found.counts[0], found.error) == (1, 1, 0.0)


# -- what is read from the folder ------------------------------------------------------------------------------------


def test_curves_are_the_metrics_and_the_star_is_the_tested_checkpoint(plain: FinishedRun, cache: NumbersCache) -> None:
    (curve,) = numbers("training", [plain], cache).curves
    lines = (plain.folder.path / "seed-0" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    records = [json.loads(line) for line in lines]
    assert curve.losses == [record["loss"] for record in records if record["kind"] == "step"]
    validations = {r["iteration"]: r["accuracy"] for r in records if r["kind"] == "validation"}
    assert dict(zip(curve.validated, curve.validation_accuracies, strict=True)) == validations
    assert validations[curve.best_iteration] == max(validations.values())


def test_a_moving_mean_is_over_the_last_values() -> None:
    assert moving_mean([1.0, 2.0, 3.0, 6.0], 2) == [1.0, 1.5, 2.5, 4.5]


def test_all_tasks_of_all_seeds_are_in_the_histogram(runs_folder: Path, cache: NumbersCache) -> None:
    run = FinishedRun(runs_folder / "warp")
    found = numbers("tasks", [run], cache)
    stored = {
        seed: json.loads((runs_folder / "warp" / f"seed-{seed}" / "test.json").read_text())["accuracies"]
        for seed in (0, 1)
    }
    assert found.by_seed == stored
    assert stored[0][found.hardest[0]] == min(stored[0])


def test_paired_differences_are_task_by_task_over_common_seeds(runs_folder: Path, cache: NumbersCache) -> None:
    runs = open_runs([runs_folder / "plain", runs_folder / "warp"])
    (pair,) = numbers("paired", runs, cache).pairs
    tests = [json.loads((runs_folder / name / "seed-0" / "test.json").read_text()) for name in ("plain", "warp")]
    differences = [b - a for a, b in zip(tests[0]["accuracies"], tests[1]["accuracies"], strict=True)]
    assert pair.differences == pytest.approx(differences)
    half = NormalDist().inv_cdf(0.975) * stdev(differences) / math.sqrt(len(differences))
    assert (pair.summary.mean, pair.summary.interval) == pytest.approx((fmean(differences), half))
    assert sum(pair.wins) == len(differences)


def test_runs_on_other_tasks_are_not_paired(
    runs_folder: Path, cache: NumbersCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = open_runs([runs_folder / "plain", runs_folder / "warp"])
    monkeypatch.setattr(type(runs[1]), "seeds", property(lambda run: [0] if run is runs[0] else [7]))
    with pytest.raises(RunError, match="different tasks: their seeds are"):
        numbers("paired", runs, cache)
    assert not figures()["paired"].fits(runs)


@pytest.mark.parametrize(("name", "values"), [("num-prompts", [2, 3]), ("prompt-length", [2, 4])])
def test_curves_against_the_pool_hold_each_runs_result(
    runs_folder: Path, cache: NumbersCache, name: str, values: list[int]
) -> None:
    runs = open_runs([runs_folder / "plain", runs_folder / "pool"])
    (curve,) = numbers(name, runs, cache).curves
    by_value = dict(zip(curve.values, curve.means, strict=True))
    assert curve.values == values
    stored = {
        run.label: json.loads((run.folder.path / "results.json").read_text())["test_accuracy"]["inductive"]["mean"]
        for run in runs
    }
    assert sorted(by_value.values()) == pytest.approx(sorted(stored.values()))
    with pytest.raises(RunError, match="a curve needs runs that differ"):
        figures()[name].measure(runs[:1], cache)


def test_bars_are_named_by_what_sets_runs_on_the_same_tasks_apart(runs_folder: Path, cache: NumbersCache) -> None:
    runs = open_runs([runs_folder / "plain", runs_folder / "warp"])
    bars = numbers("tuning", runs, cache).bars
    assert [bar.name for bar in bars] == ["verbalizer=rep_verbalizer", "verbalizer=warp_verbalizer"]
    assert {bar.group for bar in bars} == {"small, 3-way 2-shot"}
    assert bars[0].mean == pytest.approx(fmean(runs[0].accuracies[0]))


# -- what is computed again ------------------------------------------------------------------------------------------


def test_attention_is_the_papers_double_mean_over_adapted_keys(plain: FinishedRun, cache: NumbersCache) -> None:
    found = numbers("attention", [plain], cache)
    method = plain.method(0)
    source = method.sources["train"]
    sums: dict[str, list[np.ndarray]] = {}
    for index in range(3):
        episode, task = source.episodes[index], source[index]
        # The inner loop by hand: gradient steps on the support loss of a copy of the pool.
        pool = method.learner.meta_parameters
        state = {name: value.detach().clone() for name, value in pool.state_dict().items()}
        for _ in range(plain.config.meta.inner_steps):
            opened = method.learner.inner_loop.open([task])
            (loss,) = opened.support_losses([pool])
            gradients = torch.autograd.grad(loss, list(pool.parameters()))
            with torch.no_grad():
                for parameter, gradient in zip(pool.parameters(), gradients, strict=True):
                    parameter -= plain.config.meta.inner_lr * gradient
        keys = pool.keys.detach().double().numpy()
        pool.load_state_dict(state)
        for number, name in enumerate(episode.classes):
            rows = []
            for text, label in zip(episode.support, episode.support_labels, strict=True):
                if label == number:
                    query = source.texts.queries([text])[0].double().numpy()
                    rows.append(softmax(keys @ query / math.sqrt(len(query))))
            sums.setdefault(name, []).append(np.mean(rows, axis=0))
    assert sorted(found.classes) == sorted(sums)
    for name, weights in zip(found.classes, found.weights, strict=True):
        assert weights == pytest.approx(np.mean(sums[name], axis=0), abs=1e-4)


def test_cosines_are_between_prompt_tokens_and_mean_embeddings_of_label_words(
    plain: FinishedRun, cache: NumbersCache
) -> None:
    found = numbers("cosine", [plain], cache)
    prompts = pool_tensors(plain)["prompts"]
    embedding = plain.loaded.model.get_input_embeddings().weight.detach().double().numpy()
    assert np.array(found.cosines).shape == (5, 3, 2)
    for y, name in enumerate(found.classes):
        ids = list(dict.fromkeys(plain.loaded.tokenizer(f" {name}", add_special_tokens=False)["input_ids"]))
        centre = sum(embedding[i] for i in ids) / len(ids)
        for i in range(3):
            for j in range(2):
                token = prompts[i, j]
                expected = token @ centre / math.sqrt(token @ token) / math.sqrt(centre @ centre)
                assert found.cosines[y][i][j] == pytest.approx(expected, abs=1e-6)


def test_nearest_tokens_have_the_largest_cosine_of_all_words(plain: FinishedRun, cache: NumbersCache) -> None:
    found = numbers("nearest-tokens", [plain], cache)
    prompts, tokenizer = pool_tensors(plain)["prompts"], plain.loaded.tokenizer
    embedding = plain.loaded.model.get_input_embeddings().weight.detach().double().numpy()
    for i in range(3):
        for j in range(2):
            best, nearest = -2.0, ""
            for word, number in tokenizer.get_vocab().items():
                if word in tokenizer.all_special_tokens:
                    continue
                vector, token = embedding[number], prompts[i, j]
                cosine = token @ vector / math.sqrt(token @ token) / math.sqrt(vector @ vector)
                if cosine > best:
                    best, nearest = cosine, word
            assert found.tokens[i][j] == nearest
            assert found.cosines[i][j] == pytest.approx(best, abs=1e-6)


def test_the_inner_loop_ends_where_the_test_does(plain: FinishedRun, cache: NumbersCache) -> None:
    found = numbers("inner-loop", [plain], cache)
    steps = plain.config.meta.inner_steps_eval
    assert [row[steps] for row in found.accuracies] == pytest.approx(plain.accuracies[0][:3])
    outcome = plain.method(0).learner.evaluate(plain.method(0).sources["test"][0], steps)
    assert found.support_losses[0][:steps] == pytest.approx(outcome.inner_losses, rel=1e-4)
    assert found.query_losses[0][steps] == pytest.approx(outcome.loss, rel=1e-4)


def test_watching_the_inner_loop_does_not_change_it(runs_folder: Path, cache: NumbersCache) -> None:
    # WARP's label embeddings are learned on the way: a look at them must not be a step of theirs.
    run = FinishedRun(runs_folder / "warp")
    found = numbers("inner-loop", [run], cache)
    steps = run.config.meta.inner_steps_eval
    assert [row[steps] for row in found.accuracies] == pytest.approx(run.accuracies[0][:3])


def test_more_shots_are_those_of_the_test_and_fewer_are_evaluated(plain: FinishedRun, cache: NumbersCache) -> None:
    (curve,) = numbers("shots", [plain], cache).curves
    assert curve.shots == [1, 2]
    assert curve.accuracies[1] == plain.accuracies[0][:3]
    method = plain.method(0, shots=1)
    found = [method.learner.evaluate(method.sources["test"][i], method.eval_steps).accuracy for i in range(3)]
    assert curve.accuracies[0] == pytest.approx(found)


def test_baselines_are_class_means_by_cosine_on_the_same_tasks(plain: FinishedRun, cache: NumbersCache) -> None:
    found = numbers("baselines", [plain], cache)
    meta = plain.config.meta
    sampler = EpisodeSampler(plain.dataset.test, meta.way, meta.shot, meta.query, seed=0)
    expected = []
    for index in range(3):
        episode = sampler[index]
        texts = plain.dataset.test.texts
        vector = {}
        for position in (*episode.support, *episode.query):
            encoded = plain.loaded.tokenizer(texts[position], return_tensors="pt")
            with torch.no_grad():
                vector[position] = plain.loaded.model.base_model(**encoded).last_hidden_state[0].mean(dim=0)
        hits = 0
        for position, label in zip(episode.query, episode.query_labels, strict=True):
            scores = []
            for number in range(meta.way):
                own = [vector[p] for p, y in zip(episode.support, episode.support_labels, strict=True) if y == number]
                scores.append(F.cosine_similarity(vector[position], sum(own) / len(own), dim=0).item())
            hits += scores.index(max(scores)) == label
        expected.append(hits / len(episode.query))
    assert found.without_training["mean over tokens, class means"] == pytest.approx(expected)
    assert found.run == plain.accuracies[0][:3]


def test_a_label_map_measures_in_the_full_space(plain: FinishedRun, cache: NumbersCache) -> None:
    found = numbers("label-map", [plain], cache)
    assert [one.name for one in found.maps] == ["WARP", "ProtoVerb", "RepVerb"]
    own = found.maps[2]
    assert own.accuracy == pytest.approx(plain.accuracies[0][0])
    # The same from the pool of the checkpoint: RepVerb's label embeddings are the means of the support features.
    method = plain.method(0)
    task = method.sources["test"][0]
    with method.learner.adapting([task]) as adaptation:
        for _ in range(plain.config.meta.inner_steps_eval):
            adaptation.step()
        (pool,) = adaptation.pools
    features = [
        method.classifier.encode(method.classifier.prepare([b]), [pool])[0].features.detach().double()
        for b in (task.support, task.query)
    ]
    together, labels = torch.cat(features).numpy(), found.labels
    means = [
        np.mean([f for f, y in zip(features[0].numpy(), labels, strict=False) if y == number], axis=0)
        for number in range(3)
    ]
    distances = [
        1 - f @ means[y] / math.sqrt(f @ f) / math.sqrt(means[y] @ means[y])
        for f, y in zip(together, labels, strict=True)
    ]
    assert own.label_distance == pytest.approx(np.mean(distances), abs=1e-5)
    assert own.silhouette == pytest.approx(silhouette(together, labels), abs=1e-5)


def test_a_cell_of_a_table_is_called_by_its_method(runs_folder: Path, tmp_path: Path) -> None:
    cell = tmp_path / "0123456789abcdef"
    shutil.copytree(runs_folder / "warp", cell)
    runs = open_runs([cell, runs_folder / "plain"])
    assert [run.label for run in runs] == ["metaprompter, warp_verbalizer (0123)", "plain"]
    assert [run.file_label for run in runs] == ["metaprompter-warp_verbalizer-0123", "plain"]


def silhouette(features: np.ndarray, labels: list[int]) -> float:
    def distance(a: int, b: int) -> float:
        f, g = features[a], features[b]
        return 1 - float(f @ g / math.sqrt(f @ f) / math.sqrt(g @ g))

    values = []
    for text, label in enumerate(labels):
        means = {
            other: np.mean([distance(text, t) for t, y in enumerate(labels) if y == other and t != text])
            for other in set(labels)
        }
        own = means.pop(label)
        values.append((min(means.values()) - own) / max(own, min(means.values())))
    return float(np.mean(values))


def test_a_label_embedding_at_its_texts_has_no_distance() -> None:
    features = np.array([[1.0, 0.0], [0.0, 2.0]])
    assert label_distance(features, np.array([[3.0, 0.0], [0.0, 1.0]]), np.array([0, 1])) == pytest.approx(0.0)
    assert label_distance(features, np.array([[0.0, 1.0], [-1.0, 0.0]]), np.array([0, 1])) == pytest.approx(1.0)


def test_costs_add_up_the_log_and_count_every_weight(plain: FinishedRun, cache: NumbersCache) -> None:
    before = (plain.folder.path / "seed-0" / "checkpoints" / "best.safetensors").read_bytes()
    found = numbers("costs", [plain], cache)
    lines = (plain.folder.path / "seed-0" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    assert sum(found.run_seconds.values()) == pytest.approx(sum(json.loads(line)["seconds"] for line in lines))
    weights = sum(p.numel() * 4 for p in plain.loaded.model.parameters())
    assert found.bytes["input embedding"] + found.bytes["rest of the language model"] == weights
    pool = sum(value.size * 4 for value in pool_tensors(plain).values())
    assert found.bytes["pool and its optimiser"] == pytest.approx(3 * pool, abs=64)  # Adam has two moments
    assert found.bytes["kept for one backward pass"] > 0
    assert (plain.folder.path / "seed-0" / "checkpoints" / "best.safetensors").read_bytes() == before


def test_what_is_held_for_backward_is_counted_once_and_given_back() -> None:
    layer = torch.nn.Linear(4, 4, bias=False)
    inputs = torch.ones(8, 4, requires_grad=True)
    with HeldForBackward(layer) as held:
        out = layer(inputs)  # holds the inputs, 8 · 4 · 4 bytes; the weights do not count
        product = out * out  # holds its one factor twice, counts it once
        assert held.peak == 128 + 128
        product.sum().backward()
        del out, product
        (inputs * inputs).sum().backward()
    assert held.peak == 256


# -- the page's words -------------------------------------------------------------------------------------------------


def test_the_summary_says_how_good_against_what_and_how_sure(plain: FinishedRun, cache: NumbersCache) -> None:
    baselines = numbers("baselines", [plain], cache)
    summary = summarise_run(plain, baselines)
    assert summary.how_good.startswith(f"{100 * fmean(plain.accuracies[0]):.2f} ±")
    assert baselines.best in summary.against_what
    # Like with like: both figures of the headline are over the baseline's tasks.
    own, other = (100 * fmean(one) for one in (baselines.run, baselines.without_training[baselines.best]))
    assert f"on the same {len(baselines.run)} tasks" in summary.against_what
    assert f"this run has {own:.2f} ±" in summary.against_what
    assert f"{other:.2f} ±" in summary.against_what
    assert "chance is 33 %" in summary.against_what
    assert "test classes: 3 that were never trained on, 2 examples and 2 queries" in summary.on_what
    assert "what another seed would give is not known" in summary.how_sure


@pytest.mark.parametrize(("own", "says"), [(0.9, "better by 20.00"), (0.5, "worse by 20.00"), (0.7, "no difference")])
def test_the_summary_tells_the_sign_and_says_first_if_the_run_is_behind(
    plain: FinishedRun, own: float, says: str
) -> None:
    jitter = [0.01, -0.01] * 10
    theirs = [0.7 + noise for noise in jitter]
    summary = summarise_run(plain, Baselines(0, 1 / 3, [own + 2 * noise for noise in jitter], {"means": theirs}))
    assert says in summary.against_what
    assert bool(summary.behind) is (own < 0.7)
    assert ("means, which needs none, is better" in summary.behind) is (own < 0.7)
    noisy = summarise_run(plain, Baselines(0, 1 / 3, [own - 0.001, own + 0.001], {"means": [0.0, 1.0]}))
    assert "cannot be told from chance" in noisy.against_what
    assert noisy.behind == ""


def test_several_seeds_tell_their_deviation(runs_folder: Path) -> None:
    summary = summarise_run(FinishedRun(runs_folder / "warp"), None)
    assert "the trainings of 2 seeds differ by a deviation of" in summary.how_sure


def test_differences_from_the_paper_are_the_keys_that_differ_from_the_defaults(runs_folder: Path) -> None:
    runs = open_runs([runs_folder / "plain", runs_folder / "warp"])
    rows = {key: (paper, values) for key, paper, *values in differences_from_paper([run.config for run in runs])}
    assert rows["meta.way"] == ("5", ["3", "3"])
    assert rows["verbalizer"] == ("rep_verbalizer", ["rep_verbalizer", "warp_verbalizer"])
    assert "meta.inner_lr" not in rows
    assert "dataset.path" not in rows


@pytest.mark.parametrize("name", ["20news", "amazon", "huffpost", "hwu64", "liu54", "reuters"])
def test_a_run_as_in_the_paper_differs_in_nothing_whatever_the_data_set(name: str) -> None:
    for shot in (1, 5):
        config = load_config(shipped_yamls()[f"{name}/{shot}shot-bert"])
        assert differences_from_paper([config]) == []
        warp = config.with_values({"verbalizer": "warp_verbalizer"})
        assert ["verbalizer", "rep_verbalizer", "rep_verbalizer", "warp_verbalizer"] in differences_from_paper(
            [config, warp]
        )
