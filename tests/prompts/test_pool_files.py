"""Saving and loading a PromptPoolTemplate: JSON and safetensors, checked before use."""

from __future__ import annotations

import json

import pytest
import safetensors.torch
import torch

from openprompt_meta.errors import ConfigError, TemplateError
from openprompt_meta.prompts.pool_template import PromptPoolTemplate
from tests.helpers.prompts import PAPER_LAYOUT, batch_of, hidden_at_mask, pool_template
from tests.helpers.tiny_models import FAMILIES, LABEL_WORDS

pytestmark = pytest.mark.prompts


@pytest.fixture
def bert(tiny):
    return tiny("bert")


@pytest.fixture
def saved(bert, tmp_path):
    pool_template(bert, top_n=2).save_pretrained(tmp_path / "pool")
    return tmp_path / "pool"


def load(mlm, folder, **overrides) -> PromptPoolTemplate:
    return PromptPoolTemplate.from_pretrained(folder, mlm.model, mlm.tokenizer, **overrides)


def edit(folder, **changes) -> None:
    path = folder / "prompt_pool.json"
    config = {**json.loads(path.read_text()), **changes}
    path.write_text(json.dumps({key: value for key, value in config.items() if value != "drop"}))


@pytest.mark.parametrize("family", FAMILIES)
def test_a_saved_template_comes_back_bit_by_bit(tiny, family, tmp_path):
    mlm = tiny(family)
    template = pool_template(mlm, top_n=2, label_words=LABEL_WORDS)
    template.save_pretrained(tmp_path / "deep" / "folder")
    loaded = load(mlm, tmp_path / "deep" / "folder")
    assert loaded.template_text == PAPER_LAYOUT
    assert loaded.pool.top_n == 2
    assert loaded.state_dict().keys() == template.state_dict().keys()
    for name, value in template.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], value)
    assert all(parameter.requires_grad for parameter in loaded.parameters())
    batch = batch_of(mlm, template)
    assert torch.equal(hidden_at_mask(mlm, loaded, batch), hidden_at_mask(mlm, template, batch))
    assert torch.equal(batch_of(mlm, loaded)["input_ids"], batch["input_ids"])


def test_a_pool_in_double_precision_stays_in_double_precision(bert, tmp_path):
    template = pool_template(bert)
    template.pool.double()
    with torch.no_grad():
        template.pool.prompts.add_(1e-12)
    template.save_pretrained(tmp_path)
    loaded = load(bert, tmp_path).pool.prompts
    assert loaded.dtype == torch.float64
    assert torch.equal(loaded, template.pool.prompts)


def test_a_template_without_text_comes_back_without_text(bert, tmp_path):
    pool_template(bert, None).save_pretrained(tmp_path)
    assert load(bert, tmp_path).text is None


def test_the_folder_holds_json_and_safetensors_and_nothing_of_the_model(bert, saved):
    assert sorted(path.name for path in saved.iterdir()) == ["prompt_pool.json", "prompt_pool.safetensors"]
    tensors = safetensors.torch.load_file(saved / "prompt_pool.safetensors")
    assert sum(tensor.numel() for tensor in tensors.values()) == 4 * (32 + 3 * 32)


def test_saving_again_replaces_what_was_saved(bert, saved):
    template = pool_template(bert, seed=99)
    template.save_pretrained(saved)
    assert torch.equal(load(bert, saved).pool.keys, template.pool.keys)


def test_other_arguments_may_be_given_anew(bert, saved):
    text = '{"placeholder": "text_a"} {"mask"}'
    loaded = load(bert, saved, text=text, query_copy=True)
    assert loaded.template_text == text
    assert loaded.query_function.frozen_copy


def test_what_was_saved_before_there_were_prefixes_is_read_as_in_the_paper(bert, saved):
    edit(saved, query="drop", as_prefix="drop", prefix_strength="drop")
    loaded = load(bert, saved)
    assert (loaded.query, loaded.as_prefix, loaded.prefix_strength) == ("features", False, 1.0)


def test_another_query_may_be_asked_for_if_it_is_as_long(tiny, bert, saved, tmp_path):
    assert load(bert, saved, query="embeddings").query == "embeddings"
    electra = tiny("electra")  # whose embeddings are narrower than its layers
    pool_template(electra).save_pretrained(tmp_path / "electra")
    with pytest.raises(TemplateError, match="key_dim = 32; this model has 16"):
        load(electra, tmp_path / "electra", query="embeddings")


def test_a_model_of_other_sizes_is_refused_with_both_sizes(tiny, saved):
    with pytest.raises(TemplateError, match=r"value_dim = 32; this model has 16. Load the model it was learned for"):
        load(tiny("electra"), saved)
    edit(saved, key_dim=64)
    with pytest.raises(TemplateError, match="key_dim = 64; this model has 32"):
        load(tiny("bert"), saved)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"format": "peft"}, "does not describe a PromptPoolTemplate"),
        ({"format": "drop"}, "does not describe a PromptPoolTemplate"),
        ({"format_version": 2}, "format version 2, this package reads 1. Update openprompt_meta"),
        ({"num_prompts": "drop"}, "lacks num_prompts"),
        ({"num_prompts": 5}, r"holds tensors .* asks for"),
        ({"num_prompts": "4"}, "num_prompts must be a whole number"),
        ({"reads_twice": True}, "has reads_twice, which this package does not know. Use the version that saved it"),
        ({"as_prefix": 1}, "as_prefix should be true or false, found 1"),
        ({"query": 3}, "query must be one of"),
        ({"prefix_strength": "0.4"}, "prefix_strength must be above 0"),
        ({"text": "{print('x')} {'mask'}"}, "never run code"),
    ],
)
def test_a_description_that_does_not_fit_is_refused(bert, saved, changes, says):
    edit(saved, **changes)
    with pytest.raises(TemplateError, match=says):
        load(bert, saved)


@pytest.mark.parametrize("content", ["", "{", "[]", "null", b"\xff\xfe\x00"])
def test_a_description_that_is_no_json_object_is_refused(bert, saved, content):
    (saved / "prompt_pool.json").write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(TemplateError, match=r"prompt_pool\.json"):
        load(bert, saved)


@pytest.mark.parametrize("kept", [0, 5, 100, -1])
def test_truncated_weights_are_refused(bert, saved, kept):
    path = saved / "prompt_pool.safetensors"
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(TemplateError, match="cannot be read as safetensors"):
        load(bert, saved)


def test_weights_of_something_else_are_refused(bert, saved):
    safetensors.torch.save_file({"keys": torch.zeros(4, 32)}, saved / "prompt_pool.safetensors")
    with pytest.raises(TemplateError, match="holds tensors"):
        load(bert, saved)


@pytest.mark.parametrize("name", ["prompt_pool.json", "prompt_pool.safetensors"])
def test_a_missing_file_is_named(bert, saved, name):
    (saved / name).unlink()
    with pytest.raises(TemplateError, match=name):
        load(bert, saved)


def test_a_missing_folder_is_named(bert, tmp_path):
    with pytest.raises(TemplateError, match="nowhere holds no saved PromptPoolTemplate"):
        load(bert, tmp_path / "nowhere")


def test_an_unknown_key_in_a_yaml_is_an_error_with_the_nearest_known_one(bert):
    from yacs.config import CfgNode

    config = CfgNode({"text": PAPER_LAYOUT, "num_promts": 4, "colour": "red"})
    with pytest.raises(ConfigError) as caught:
        PromptPoolTemplate.from_config(config, model=bert.model, tokenizer=bert.tokenizer)
    for part in ("'num_promts'", "Did you mean 'num_prompts'?", "'colour'", "It takes: text, num_prompts"):
        assert part in str(caught.value)


def test_a_yaml_section_makes_the_template_it_describes(bert, tmp_path):
    from yacs.config import CfgNode

    (tmp_path / "text.txt").write_text(PAPER_LAYOUT + "\n")
    config = CfgNode({"text": None, "file_path": str(tmp_path / "text.txt"), "choice": 0, "prompt_length": 3})
    template = PromptPoolTemplate.from_config(config, model=bert.model, tokenizer=bert.tokenizer)
    assert template.template_text == PAPER_LAYOUT
    assert template.pool.prompt_length == 3
