"""OpenPrompt's own tables and loaders find what this package adds."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from openprompt.data_utils import PROCESSORS, load_dataset
from openprompt.plms import load_plm, load_plm_from_config
from openprompt.prompts import TEMPLATE_CLASS, VERBALIZER_CLASS, load_template, load_verbalizer
from yacs.config import CfgNode

import openprompt_meta
from openprompt_meta.encoder.loading import LoadedMLM
from openprompt_meta.errors import ConfigError

pytestmark = pytest.mark.prompts

REPOSITORY = Path(__file__).resolve().parents[2]
OURS = {
    "prompt_pool_template": openprompt_meta.PromptPoolTemplate,
    "rep_verbalizer": openprompt_meta.RepVerbalizer,
    "adaptive_verbalizer": openprompt_meta.AdaptiveVerbalizer,
    "warp_verbalizer": openprompt_meta.WarpVerbalizer,
    "dart_verbalizer": openprompt_meta.DartVerbalizer,
    "proto_verbalizer": openprompt_meta.ProtoVerbalizer,
    "manual_verbalizer": openprompt_meta.ManualVerbalizer,
}
TEXT = '{"placeholder": "text_a"} {"pool"} topic is {"mask"}.'


def test_our_classes_are_in_openprompts_tables() -> None:
    tables = {**TEMPLATE_CLASS, **VERBALIZER_CLASS}
    assert {name: tables[name] for name in OURS} == OURS


def test_openprompts_other_classes_are_still_its_own() -> None:
    for name in ("soft_verbalizer", "automatic_verbalizer", "knowledgeable_verbalizer", "one2one_verbalizer"):
        assert VERBALIZER_CLASS[name].__module__.startswith("openprompt.")
    for name in ("manual_template", "soft_template", "mixed_template"):
        assert TEMPLATE_CLASS[name].__module__.startswith("openprompt.")


def test_load_template_reads_our_section(tiny: Callable[[str], LoadedMLM]) -> None:
    plm, tokenizer, plm_config, _ = tiny("bert")
    section = {"parent_config": "template", "text": TEXT, "num_prompts": 5, "prompt_length": 3, "optimize": None}
    config = CfgNode({"template": "prompt_pool_template", "prompt_pool_template": section})
    template = load_template(config, model=plm, tokenizer=tokenizer, plm_config=plm_config)
    assert isinstance(template, openprompt_meta.PromptPoolTemplate)
    assert (template.pool.num_prompts, template.pool.prompt_length) == (5, 3)


@pytest.mark.parametrize("name", [name for name in OURS if name.endswith("verbalizer")])
def test_load_verbalizer_reads_our_sections(name: str, tiny: Callable[[str], LoadedMLM]) -> None:
    plm, tokenizer, plm_config, _ = tiny("bert")
    words = {"weather": ["rain"], "sport": ["game"]}
    section = {"parent_config": "verbalizer", "label_words": words}
    config = CfgNode({"verbalizer": name, name: section})
    verbalizer = load_verbalizer(config, model=plm, tokenizer=tokenizer, plm_config=plm_config, classes=list(words))
    assert type(verbalizer) is OURS[name]
    assert verbalizer.num_classes == 2


def test_a_key_that_nobody_knows_is_refused_and_not_dropped(tiny: Callable[[str], LoadedMLM]) -> None:
    plm, tokenizer, _, _ = tiny("bert")
    config = CfgNode({"verbalizer": "rep_verbalizer", "rep_verbalizer": {"temperatur": 3.0}})
    with pytest.raises(ConfigError, match=r"'temperatur'\. Did you mean 'temperature'\?"):
        load_verbalizer(config, model=plm, tokenizer=tokenizer, classes=["a", "b"])


def test_load_plm_finds_any_masked_language_model(tiny_mlm_folder: Callable[[str], Path]) -> None:
    folder = str(tiny_mlm_folder("mpnet"))  # not on OpenPrompt's own list
    plm, tokenizer, plm_config, wrapper = load_plm("mlm", folder)
    assert type(plm).__name__ == "MPNetForMaskedLM"
    assert plm_config.model_type == "mpnet"
    assert wrapper(tokenizer=tokenizer, max_seq_length=8).mask_token == tokenizer.mask_token
    config = CfgNode({"plm": {"model_name": "mlm", "model_path": folder, "specials_to_add": ["<pad>"]}})
    assert type(load_plm_from_config(config)[0]) is type(plm)


@pytest.mark.parametrize("part", ["config", "tokenizer"])
def test_configuration_and_tokenizer_come_without_the_weights(
    part: str, tiny_mlm_folder: Callable[[str], Path], tmp_path: Path
) -> None:
    from openprompt.plms import get_model_class

    for file in tiny_mlm_folder("bert").iterdir():
        if file.suffix != ".safetensors":
            (tmp_path / file.name).write_bytes(file.read_bytes())
    assert getattr(get_model_class("mlm"), part).from_pretrained(str(tmp_path)) is not None


@pytest.mark.real_encoder
def test_load_plm_finds_the_packaged_encoder() -> None:
    plm, tokenizer, plm_config, _ = load_plm("mlm", "minilm")
    assert plm_config.hidden_size == plm.config.hidden_size == 384
    assert tokenizer.mask_token_id is not None


def test_load_dataset_finds_the_demo_set() -> None:
    assert "jsonl_folder" in PROCESSORS
    config = CfgNode({"dataset": {"name": "demo_intents", "path": None}})
    train, valid, test, processor = load_dataset(config)
    assert len(processor.labels) == 36
    assert len(train) == len(valid) == 36 * 5
    assert len(test) == 36 * 26


@pytest.mark.parametrize(
    "first", ["openprompt.prompts", "openprompt_meta.encoder.loading", "openprompt_meta.openprompt_runs"]
)
def test_the_names_are_there_whatever_is_imported_first(first: str) -> None:
    code = (
        f"import openprompt_meta, {first}\n"
        "from openprompt.prompts import TEMPLATE_CLASS, VERBALIZER_CLASS\n"
        "from openprompt.plms import _MODEL_CLASSES\n"
        "from openprompt.data_utils import PROCESSORS\n"
        "assert 'prompt_pool_template' in TEMPLATE_CLASS and 'rep_verbalizer' in VERBALIZER_CLASS\n"
        "assert 'mlm' in _MODEL_CLASSES and 'demo_intents' in PROCESSORS"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
