"""Folders of models by a stranger: no code is run, nothing is asked or fetched, damage is one sentence."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch

from openprompt_meta.encoder.loading import fingerprint, load_mlm
from openprompt_meta.errors import ModelError


@pytest.fixture
def folder(tiny_mlm_folder: Callable[[str], Path], tmp_path: Path) -> Path:
    """A tiny BERT, the test's own to change."""
    return Path(shutil.copytree(tiny_mlm_folder("bert"), tmp_path / "model"))


def edit(file: Path, **changes: Any) -> None:
    file.write_text(json.dumps({**json.loads(file.read_text("utf-8")), **changes}), "utf-8")


# -- code -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def questions(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was asked on standard input, all of it answered with yes."""
    asked: list[str] = []

    def answer(question: str = "") -> str:
        asked.append(question)
        return "y"

    monkeypatch.setattr("builtins.input", answer)
    return asked


def add_code(folder: Path, marker: Path, file: str, **auto_map: Any) -> None:
    code = f"from pathlib import Path\nPath({str(marker)!r}).touch()\n"
    code += "from transformers import BertConfig as Mine, BertForMaskedLM as Model, BertTokenizerFast as Words\n"
    (folder / "mine.py").write_text(code, "utf-8")
    edit(folder / file, auto_map=auto_map)


def test_code_for_the_model_is_never_run_and_nobody_is_asked(
    folder: Path, tmp_path: Path, questions: list[str]
) -> None:
    marker = tmp_path / "ran"
    add_code(folder, marker, "config.json", AutoConfig="mine.Mine", AutoModelForMaskedLM="mine.Model")
    edit(folder / "config.json", model_type="of_mine")
    with pytest.raises(ModelError, match="it brings code of its own to be run, and none ever is"):
        load_mlm(folder)
    assert questions == []
    assert not marker.exists()


def test_code_for_the_tokenizer_is_never_run_and_nobody_is_asked(
    folder: Path, tmp_path: Path, questions: list[str]
) -> None:
    marker = tmp_path / "ran"
    add_code(folder, marker, "tokenizer_config.json", AutoTokenizer=["mine.Words", "mine.Words"])
    edit(folder / "tokenizer_config.json", tokenizer_class="OfMine")
    with pytest.raises(ModelError, match="it brings code of its own to be run"):
        load_mlm(folder)
    assert questions == []
    assert not marker.exists()


def test_code_beside_a_model_that_transformers_knows_is_left_alone(
    folder: Path, tmp_path: Path, questions: list[str]
) -> None:
    marker = tmp_path / "ran"
    expected = fingerprint(load_mlm(folder).model)
    add_code(folder, marker, "config.json", AutoConfig="mine.Mine", AutoModelForMaskedLM="mine.Model")
    assert fingerprint(load_mlm(folder).model) == expected
    assert questions == []
    assert not marker.exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"attn_implementation": "somebody/kernel"}, "'attn_implementation' is 'somebody/kernel'"),
        ({"_attn_implementation": "somebody/kernel"}, "would need code from elsewhere"),
        ({"quantization_config": {"quant_method": "mxfp4"}}, "'quantization_config' is"),
    ],
)
def test_settings_that_fetch_code_are_refused(folder: Path, change: dict[str, Any], message: str) -> None:
    edit(folder / "config.json", **change)
    with pytest.raises(ModelError, match=message):
        load_mlm(folder)


def test_an_adapter_which_names_another_model_is_refused(folder: Path) -> None:
    (folder / "adapter_config.json").write_text('{"base_model_name_or_path": "somebody/model"}')
    with pytest.raises(ModelError, match="holds an adapter, which names another model"):
        load_mlm(folder)


# -- pickles ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def pickled(folder: Path) -> Path:
    weights = safetensors.torch.load_file(folder / "model.safetensors")
    torch.save(weights, folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    return folder


def test_a_pickle_is_refused_unless_it_is_asked_for(pickled: Path, tiny_mlm_folder: Callable[[str], Path]) -> None:
    with pytest.raises(ModelError, match=r"weights as a pickle only.*save_pretrained.*plm\.allow_pickle: true"):
        load_mlm(pickled)
    expected = fingerprint(load_mlm(tiny_mlm_folder("bert")).model)
    assert fingerprint(load_mlm(pickled, allow_pickle=True).model) == expected


def test_safetensors_are_taken_where_there_are_both(folder: Path, tiny_mlm_folder: Callable[[str], Path]) -> None:
    (folder / "pytorch_model.bin").write_bytes(b"no pickle at all")
    expected = fingerprint(load_mlm(tiny_mlm_folder("bert")).model)
    assert fingerprint(load_mlm(folder, allow_pickle=True).model) == expected


@pytest.mark.parametrize("shard", ["pytorch_model.bin", "../other/model.safetensors", 3])
def test_an_index_may_name_safetensors_beside_it_and_nothing_else(pickled: Path, shard: Any) -> None:
    index = {"metadata": {"total_size": 1}, "weight_map": {"bert.embeddings.word_embeddings.weight": shard}}
    (pickled / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(ModelError, match="names other files as weights than safetensors beside it"):
        load_mlm(pickled)


# -- addresses --------------------------------------------------------------------------------------------------------


@pytest.fixture
def web() -> Iterator[tuple[str, list[str]]]:
    """The address of a server, and what it was asked for."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: Any) -> None:
            """Nothing on the screen."""

        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_error(404)

        do_HEAD = do_GET  # noqa: N815 - the library's name

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}", asked
    server.shutdown()
    thread.join()
    server.server_close()


def test_an_address_is_no_name_of_a_model_and_is_never_fetched(
    web: tuple[str, list[str]], hub_mode: Callable[[bool], None]
) -> None:
    address, asked = web
    hub_mode(False)
    for name in (f"{address}/model", f"{address}/a/resolve/main/config.json", address):
        with pytest.raises(ModelError, match="is not a model: expected minilm"):
            load_mlm(name)
    assert asked == []


@pytest.mark.parametrize("name", ["../up", "/nowhere/else", "a/b/c", "", "a\0b", "x" * 100_000, "a b", "-x/y"])
def test_what_can_be_no_name_is_refused_in_a_few_words(name: str, hub_mode: Callable[[bool], None]) -> None:
    hub_mode(False)
    with pytest.raises(ModelError) as refused:
        load_mlm(name)
    assert len(str(refused.value)) < 500


# -- damage -----------------------------------------------------------------------------------------------------------

DAMAGES: dict[str, dict[str, Any]] = {
    "a width of thousands of millions": {"hidden_size": 10**12, "num_attention_heads": 1},
    "a width that fits no memory of a test": {"hidden_size": 200_000, "intermediate_size": 200_000},
    "a negative width": {"hidden_size": -32},
    "another width than the weights": {"hidden_size": 64},
    "no heads": {"num_attention_heads": 0},
    "an unknown activation": {"hidden_act": "magic"},
    "layers without end": {"num_hidden_layers": 10**9},
    "labels without end": {"num_labels": 10**9},
    "a number of 400 digits": {"num_hidden_layers": 10**400},
    "a width of 400 digits": {"hidden_size": 10**400},
    "a vocabulary without end": {"vocab_size": 10**12},
    "positions without end": {"max_position_embeddings": 10**11},
    "a width in words": {"hidden_size": "wide"},
    "no kind of model": {"model_type": None},
    "a list in place of a number": {"num_hidden_layers": [1, 2]},
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_description_that_cannot_be_is_one_sentence(folder: Path, damage: str) -> None:
    edit(folder / "config.json", **DAMAGES[damage])
    with pytest.raises(ModelError) as refused:
        load_mlm(folder)
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 1000


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "tokenizer.json", "tokenizer_config.json"])
def test_a_file_that_was_cut_is_one_sentence(folder: Path, name: str) -> None:
    whole = (folder / name).read_bytes()
    for end in (0, 1, 9, len(whole) // 2, len(whole) - 3):
        (folder / name).write_bytes(whole[:end])
        with pytest.raises(ModelError) as refused:
            load_mlm(folder)
        assert "\n" not in str(refused.value)


def test_a_description_that_is_too_large_is_not_read(folder: Path) -> None:
    with (folder / "config.json").open("wb") as file:
        file.truncate(12_000_000_000)  # of nothing: it takes no room on the disk
    with pytest.raises(ModelError, match="larger than 50,000,000 bytes"):
        load_mlm(folder)
