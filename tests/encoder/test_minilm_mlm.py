"""`minilm-mlm`: a genuine masked language model, the same every time, that says what its card says."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch
from transformers import BertForMaskedLM

from openprompt_meta import ManualVerbalizer
from openprompt_meta.encoder import minilm as minilm_mlm
from openprompt_meta.encoder.loading import LoadedMLM, load_mlm
from openprompt_meta.errors import ModelError
from openprompt_meta.prompts.pooling import has_vocabulary_head
from openprompt_meta.tensor_files import read_tensors
from tools.minilm_mlm.card import model_card
from tools.minilm_mlm.judging import SENTENCES, predictions

pytestmark = [pytest.mark.prompts, pytest.mark.real_encoder]

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def loaded() -> LoadedMLM:
    return load_mlm("minilm-mlm")


def test_it_is_a_masked_language_model_with_a_head_tied_to_its_embeddings(loaded: LoadedMLM) -> None:
    assert type(loaded.model) is BertForMaskedLM
    assert has_vocabulary_head(loaded.model)
    assert loaded.model.config._name_or_path == "minilm-mlm"
    assert loaded.model.get_output_embeddings().weight is loaded.model.get_input_embeddings().weight
    assert not loaded.model.training


def test_every_load_gives_the_same_bits_on_any_number_of_threads(loaded: LoadedMLM) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2 if before == 1 else 1)
    try:
        again = load_mlm("minilm-mlm").model.state_dict()
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(value, again[name]) for name, value in loaded.model.state_dict().items())


def test_a_weight_is_the_encoders_plus_the_product_of_two_factors(loaded: LoadedMLM) -> None:
    """By a sum over the rank in Python's own numbers, at a few places of a few layers."""
    base = load_mlm("minilm").model.state_dict()
    difference, _ = read_tensors(minilm_mlm.SHIPPED)
    merged = loaded.model.state_dict()
    for layer, name in ((0, "attention.self.query"), (3, "intermediate.dense"), (5, "output.dense")):
        path = f"encoder.layer.{layer}.{name}.weight"
        up, down = difference[f"bert.{path}.up"].tolist(), difference[f"bert.{path}.down"].tolist()
        for row, column in ((0, 0), (17, 201), (383, 5)):
            expected = base[path][row, column].item() + math.fsum(
                a * b for a, b in zip(up[row], (line[column] for line in down), strict=True)
            )
            assert merged[f"bert.{path}"][row, column].item() == pytest.approx(expected, rel=1e-6)


def test_it_ships_in_less_than_six_megabytes_of_half_precision() -> None:
    difference, _ = read_tensors(minilm_mlm.SHIPPED)
    assert minilm_mlm.SHIPPED.stat().st_size < 6_000_000
    assert {value.dtype for value in difference.values()} == {torch.float16}


def test_the_words_it_predicts_are_those_on_record(loaded: LoadedMLM) -> None:
    made = json.loads(minilm_mlm.MADE.read_text(encoding="utf-8"))
    assert list(made["predictions"]) == list(SENTENCES)
    found = predictions(loaded.model, loaded.tokenizer)
    assert {text: words[0] for text, words in found.items()} == {
        text: words[0] for text, words in made["predictions"].items()
    }


def test_its_card_is_up_to_date() -> None:
    made = json.loads(minilm_mlm.MADE.read_text(encoding="utf-8"))
    card = model_card(made, minilm_mlm.SHIPPED.stat().st_size)
    page = (ROOT / "docs/minilm-mlm.md").read_text(encoding="utf-8")
    assert page == card, "run: python -m tools.minilm_mlm.card > docs/minilm-mlm.md"


def test_hand_crafted_words_are_taken(loaded: LoadedMLM) -> None:
    words = {"weather": ["rain"], "sport": ["game"]}
    verbalizer = ManualVerbalizer(loaded.tokenizer, list(words), label_words=words, model=loaded.model)
    assert verbalizer.needs_vocabulary_head


def test_attention_is_the_one_that_was_asked_for() -> None:
    assert load_mlm("minilm-mlm", attn_implementation="eager").model.config._attn_implementation == "eager"


def test_a_damaged_difference_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "difference.safetensors"
    content = bytearray(minilm_mlm.SHIPPED.read_bytes())
    content[-100] ^= 1
    path.write_bytes(content)
    encoder = load_mlm("minilm").model
    with pytest.raises(ModelError, match=r"minilm-mlm cannot be loaded.*checksum"):
        minilm_mlm.merged_model(encoder, path)
    with pytest.raises(ModelError, match="cannot be loaded"):
        minilm_mlm.merged_model(encoder, tmp_path / "nowhere")


def test_a_difference_of_another_model_is_refused() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(2, 2))
    with pytest.raises(ModelError, match="not of this model"):
        minilm_mlm.add_difference(model, {"1.weight": torch.zeros(2, 2)})
    with pytest.raises(ModelError, match="not of this model"):
        minilm_mlm.add_difference(model, {"0.weight.up": torch.zeros(2, 1), "0.weight.down": torch.zeros(1, 3)})
