"""Loading by folder or name: every family works through a forward and a backward; the rest is refused in words."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import transformers
from openprompt import PromptDataLoader, PromptForClassification
from openprompt.data_utils import InputExample

from openprompt_meta import PromptPoolTemplate, RepVerbalizer
from openprompt_meta.encoder.loading import LoadedMLM, load_mlm
from openprompt_meta.errors import ModelError
from openprompt_meta.prompts.pooling import has_vocabulary_head
from tests.helpers.tiny_models import FAMILIES

pytestmark = pytest.mark.prompts

EXAMPLES = [
    InputExample(guid="0", text_a="rain and storm in the city", label=0),
    InputExample(guid="1", text_a="the team play a good game", label=1),
    InputExample(guid="2", text_a="wind", label=0),
    InputExample(guid="3", text_a="a player and a goal", label=1),
]


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_learns_a_pool_through_the_stock_model(
    family: str, tiny_mlm_folder: Callable[[str], Path]
) -> None:
    plm, tokenizer, config, wrapper = load_mlm(tiny_mlm_folder(family))
    assert config.model_type == family
    assert has_vocabulary_head(plm)
    template = PromptPoolTemplate(
        plm, tokenizer, text='{"placeholder": "text_a"} {"pool"} topic is {"mask"}.', prompt_length=3, seed=0
    )
    model = PromptForClassification(
        plm, template, RepVerbalizer(tokenizer, plm, num_classes=2), freeze_plm=True, plm_eval_mode=True
    )
    loader = PromptDataLoader(
        EXAMPLES, template, tokenizer=tokenizer, tokenizer_wrapper_class=wrapper, max_seq_length=24, batch_size=4
    )
    (batch,) = loader
    model.train()
    scores = model(batch)
    torch.nn.functional.nll_loss(scores, batch["label"]).backward()

    assert torch.allclose(scores.exp().sum(dim=-1), torch.ones(4))
    for parameter in template.pool.parameters():
        assert parameter.grad is not None
        assert torch.isfinite(parameter.grad).all()
        assert parameter.grad.abs().max() > 0
    assert all(parameter.grad is None for parameter in plm.parameters())


def test_the_parts_are_in_openprompts_order(tiny: Callable[[str], LoadedMLM]) -> None:
    model, tokenizer, config, wrapper = tiny("bert")
    assert isinstance(model, transformers.BertForMaskedLM)
    assert tokenizer.mask_token == "[MASK]"  # noqa: S105
    assert config is model.config
    assert wrapper.__name__ == "MaskedLMTokenizerWrapper"


def test_eager_attention_can_be_asked_for(tiny_mlm_folder: Callable[[str], Path]) -> None:
    model = load_mlm(tiny_mlm_folder("bert"), attn_implementation="eager").model
    assert model.config._attn_implementation == "eager"


# -- refusals ---------------------------------------------------------------------------------------------------------


def _write_config(folder: Path, config: transformers.PretrainedConfig) -> Path:
    folder.mkdir(exist_ok=True)
    config.save_pretrained(folder)
    return folder


def test_a_causal_model_is_refused_before_its_weights_are_looked_for(tmp_path: Path) -> None:
    folder = _write_config(tmp_path, transformers.GPT2Config(n_layer=1, n_head=1, n_embd=8, vocab_size=20))
    with pytest.raises(ModelError, match=r"'gpt2' model, which transformers cannot use as a masked language model"):
        load_mlm(folder)


def test_an_encoder_decoder_is_refused(tmp_path: Path) -> None:
    folder = _write_config(tmp_path, transformers.T5Config(d_model=8, num_layers=1, num_heads=1, vocab_size=20))
    with pytest.raises(ModelError, match=r"'t5' model, which transformers cannot use"):
        load_mlm(folder)


def test_an_encoder_decoder_that_fills_masks_is_refused_too(tmp_path: Path) -> None:
    config = transformers.BartConfig(d_model=8, encoder_layers=1, decoder_layers=1, vocab_size=20)
    with pytest.raises(ModelError, match="BartForConditionalGeneration, which cannot be given a soft prompt"):
        load_mlm(_write_config(tmp_path, config))


def test_a_model_without_inputs_embeds_is_refused(
    tiny_mlm_folder: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def forward(self: object, input_ids: object = None, attention_mask: object = None) -> None: ...

    monkeypatch.setattr(transformers.BertForMaskedLM, "forward", forward)
    with pytest.raises(ModelError, match="BertForMaskedLM, which cannot be given a soft prompt through inputs_embeds"):
        load_mlm(tiny_mlm_folder("bert"))


def test_a_tokenizer_without_a_mask_is_refused(tiny_mlm_folder: Callable[[str], Path], tmp_path: Path) -> None:
    for file in tiny_mlm_folder("bert").iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    described = json.loads((tmp_path / "tokenizer_config.json").read_text())
    described.update(mask_token=None, tokenizer_class="PreTrainedTokenizerFast")
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(described))
    with pytest.raises(ModelError, match=r"has no \[MASK\] token"):
        load_mlm(tmp_path)


def test_an_empty_folder_is_refused_with_what_belongs_into_it(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="must hold what save_pretrained of a model and of its tokenizer write"):
        load_mlm(tmp_path)


def test_a_folder_without_a_tokenizer_is_refused(tiny_mlm_folder: Callable[[str], Path], tmp_path: Path) -> None:
    for file in tiny_mlm_folder("roberta").iterdir():
        if "tokenizer" not in file.name:
            (tmp_path / file.name).write_bytes(file.read_bytes())
    with pytest.raises(ModelError, match="cannot be loaded"):
        load_mlm(tmp_path)


def test_a_name_that_no_hub_gives_is_refused_with_the_way_out() -> None:
    # The tests run with HF_HUB_OFFLINE=1 (tests/encoder/conftest.py), as on a machine without a network.
    with pytest.raises(ModelError, match=r"no-such/model cannot be loaded.*without a hub use model_path: minilm"):
        load_mlm("no-such/model")
