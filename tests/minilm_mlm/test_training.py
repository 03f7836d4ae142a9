"""Training learns, resumes to the same bits, and what it ships is what it learned."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from openprompt_meta.encoder.minilm import add_difference, with_head
from openprompt_meta.errors import CheckpointError
from tests.helpers.small_text import Small
from tools.minilm_mlm.judging import judge, predictions, scores
from tools.minilm_mlm.low_rank import difference_of, learned_tensors, learner_from
from tools.minilm_mlm.masking import Masking
from tools.minilm_mlm.settings import FitSettings
from tools.minilm_mlm.training import Fitting, learning_rate_at

SETTINGS = FitSettings(
    rank=4,
    steps=12,
    tokens_per_step=128,
    lengths=[16, 8],
    warmup=2,
    judge_every=6,
    judge_tokens=256,
    learning_rate=0.01,
)


def fitting(small: Small, folder: Path, settings: FitSettings = SETTINGS, stop_at: int = 10**9) -> Fitting:
    made = Fitting(
        learner_from(small.encoder, settings.rank, settings.seed),
        small.tokenizer,
        small.corpus,
        settings,
        folder,
        show_progress=False,
    )
    made.stop = lambda: made.step >= stop_at
    return made


def learned(of: Fitting) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in of.learned.items()}


def test_before_training_it_is_the_encoder_itself(small: Small) -> None:
    model = learner_from(small.encoder, rank=4, seed=0)
    ids = torch.tensor([[5, 6, 7, 8]])
    with torch.no_grad():
        assert torch.equal(model.bert(ids).last_hidden_state, small.encoder(ids).last_hidden_state)


def test_weights_and_embeddings_are_frozen_and_every_linear_layer_has_its_update(small: Small) -> None:
    names = set(learned_tensors(learner_from(small.encoder, rank=4, seed=0)))
    linear = [name for name, module in small.encoder.encoder.named_modules() if isinstance(module, torch.nn.Linear)]
    for layer in linear:
        for factor in ("up", "down"):
            assert f"bert.encoder.{layer}.parametrizations.weight.0.{factor}" in names
    assert not any(name.endswith("original") or "embeddings" in name or "decoder.weight" in name for name in names)
    assert {"cls.predictions.transform.dense.weight", "cls.predictions.bias"} <= names


def test_it_learns_to_tell_a_hidden_word_from_its_neighbours(small: Small, tmp_path: Path) -> None:
    settings = SETTINGS.model_copy(update={"steps": 400, "learning_rate": 0.03, "clip": 10.0, "judge_every": 1000})
    made = fitting(small, tmp_path, settings)
    before = judge(made.model, small.corpus.held_out, small.tokenizer, 512)
    before_weights = {name: value.clone() for name, value in small.encoder.state_dict().items()}
    assert made.run()
    after = judge(made.model, small.corpus.held_out, small.tokenizer, 512)
    assert after.accuracy > before.accuracy + 0.25
    assert after.loss < before.loss - 1.5
    assert all(torch.equal(value, before_weights[name]) for name, value in small.encoder.state_dict().items())


def test_an_interrupted_run_comes_to_the_same_bits(small: Small, tmp_path: Path) -> None:
    straight = fitting(small, tmp_path / "straight")
    assert straight.run()
    assert not fitting(small, tmp_path / "broken", stop_at=5).run()
    with (tmp_path / "broken/log.jsonl").open("a", encoding="utf-8") as log:  # as of a run that was killed later on
        log.write('{"step": 6, "accuracy": 2}\n')
    resumed = fitting(small, tmp_path / "broken")
    assert resumed.run()
    assert resumed.step == straight.step == 12
    expected = learned(straight)
    assert all(torch.equal(value, expected[name]) for name, value in learned(resumed).items())
    assert resumed.log.read_text() == straight.log.read_text()
    states = [of.optimizer.state_dict()["state"] for of in (straight, resumed)]
    assert all(torch.equal(states[0][i][key], states[1][i][key]) for i in states[0] for key in states[0][i])


def test_a_checkpoint_of_other_settings_or_a_damaged_one_is_refused(small: Small, tmp_path: Path) -> None:
    made = fitting(small, tmp_path, stop_at=1)
    made.run()
    with pytest.raises(CheckpointError, match="other settings"):
        fitting(small, tmp_path, SETTINGS.model_copy(update={"mask_rate": 0.5})).run()
    made.checkpoint.write_bytes(made.checkpoint.read_bytes()[:-9])
    with pytest.raises(CheckpointError, match="cannot be read"):
        fitting(small, tmp_path).run()


def test_the_difference_added_to_the_encoder_is_the_trained_model(small: Small, tmp_path: Path) -> None:
    made = fitting(small, tmp_path)
    made.run()
    merged = with_head(small.encoder)
    add_difference(merged, difference_of(made.model, small.encoder, torch.float32))
    puzzle = Masking.of(small.corpus.held_out, 0.15, small.tokenizer).draw(1, 1, 4, 16)
    with torch.no_grad():
        assert torch.allclose(scores(merged, puzzle), scores(made.model, puzzle), atol=1e-4)
    halves = difference_of(made.model, small.encoder)
    assert {value.dtype for value in halves.values()} == {torch.float16}


def test_scores_are_those_of_the_whole_model(small: Small) -> None:
    model = with_head(small.encoder)
    puzzle = Masking.of(small.corpus.held_out, 0.3, small.tokenizer).draw(0, 0, 3, 16)
    with torch.no_grad():
        whole = model(puzzle.input_ids).logits
        found = scores(model, puzzle)
    for row in range(3):
        assert torch.allclose(found[row], whole[row, puzzle.positions[row]], atol=1e-5)


def test_predictions_are_words_for_each_sentence(small: Small) -> None:
    found = predictions(with_head(small.encoder), small.tokenizer, ("a [MASK] .",), top=3)
    assert list(found) == ["a [MASK] ."]
    assert len(found["a [MASK] ."]) == 3


def test_the_learning_rate_rises_and_falls_in_a_line() -> None:
    settings = FitSettings(steps=10, warmup=2, learning_rate=1.0)
    rates = [learning_rate_at(step, settings) for step in range(10)]
    assert rates == pytest.approx([0.5, 1.0, 1.0, 0.875, 0.75, 0.625, 0.5, 0.375, 0.25, 0.125])
