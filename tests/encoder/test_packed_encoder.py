"""The encoder run over packed texts says what transformers' own forward pass says, at the [MASK] and on average."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from openprompt_meta.encoder import packed as module
from openprompt_meta.encoder.loading import LoadedMLM, load_mlm
from openprompt_meta.encoder.packed import Prefix, pack, packed_encoder
from openprompt_meta.prompts.pooling import FEATURES
from openprompt_meta.prompts.prefix import prefix_inputs
from tests.helpers.tiny_models import FAMILIES

pytestmark = pytest.mark.meta

BERT_LIKE = ("bert", "roberta", "electra")
LENGTHS = [7, 3, 12, 7, 4]
MASKS = [5, 1, 6, 2, 3]


def double(folder: Any) -> LoadedMLM:
    loaded = load_mlm(folder, attn_implementation="eager")
    loaded.model.double().requires_grad_(False).eval()
    return loaded


def batch_of(width: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    mask = torch.tensor([[1] * n + [0] * (max(LENGTHS) - n) for n in LENGTHS])
    loss_ids = torch.zeros_like(mask)
    for row, column in enumerate(MASKS):
        loss_ids[row, column] = 1
    ids = torch.randint(5, width, mask.shape, generator=generator)
    return {"attention_mask": mask, "loss_ids": loss_ids, "input_ids": ids}


@pytest.mark.parametrize("slots", [10, 4096], ids=["several passes", "one pass"])
@pytest.mark.parametrize("group_cost", [0, 1000], ids=["no padding", "one group"])
@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("features", FEATURES)
@pytest.mark.parametrize("family", BERT_LIKE)
def test_features_and_gradients_are_those_of_the_whole_forward_pass(
    family: str,
    features: str,
    attention: str,
    group_cost: int,
    slots: int,
    tiny_mlm_folder: Callable[[str], Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(module.SLOTS_OF_A_PASS, "cpu", slots)
    model = double(tiny_mlm_folder(family)).model
    batch = batch_of(model.config.vocab_size)
    embeds = model.get_input_embeddings()(batch["input_ids"]).detach().requires_grad_()  # [B, L, d_i]
    hidden = model.base_model(inputs_embeds=embeds, attention_mask=batch["attention_mask"]).last_hidden_state
    at_mask = hidden[batch["loss_ids"] > 0]
    mean = torch.stack([hidden[i, :n].mean(dim=0) for i, n in enumerate(LENGTHS)])
    expected = {"mask": at_mask, "mean": mean, "both": torch.cat([at_mask, mean], dim=-1)}[features]
    weights = torch.randn(expected.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    (expected_gradient,) = torch.autograd.grad((expected * weights).sum(), embeds)

    encoder = packed_encoder(model)
    assert encoder is not None
    encoder._eager = attention == "eager"  # not every transformers has the other for every family
    packing = pack([batch], group_cost)
    rows = torch.cat([embeds[i, :n] for i, n in enumerate(LENGTHS)])
    read = encoder.read(
        encoder.embed(rows[packing.tokens], packing.columns),
        packing.groups,
        packing.slots_where("loss_ids"),
        features != "mean",
        features != "mask",
    )
    found = torch.cat([part for part in read if part is not None], dim=-1)[packing.place]
    (gradient,) = torch.autograd.grad((found * weights).sum(), embeds)
    assert torch.allclose(found, expected, rtol=1e-9, atol=1e-11)
    # Padding gets no gradient in either.
    assert torch.allclose(gradient, expected_gradient, rtol=1e-8, atol=1e-11)


@pytest.mark.parametrize("slots", [10, 4096], ids=["several passes", "one pass"])
@pytest.mark.parametrize("group_cost", [0, 1000], ids=["no padding", "one group"])
@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("strength", [1.0, 0.2])
@pytest.mark.parametrize("family", BERT_LIKE)
def test_texts_beside_prefixes_are_read_as_by_the_whole_forward_pass(
    family: str,
    strength: float,
    attention: str,
    group_cost: int,
    slots: int,
    tiny_mlm_folder: Callable[[str], Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(module.SLOTS_OF_A_PASS, "cpu", slots)
    model = double(tiny_mlm_folder(family)).model
    batch = batch_of(model.config.vocab_size)
    generator = torch.Generator().manual_seed(2)
    width = model.get_input_embeddings().weight.shape[1]
    prompts = torch.randn(2, 3, width, generator=generator, dtype=torch.float64, requires_grad=True)
    of_rows = torch.tensor([0, 1, 1, 0, 1])
    words = model.get_input_embeddings()(batch["input_ids"]).detach()
    is_pool = torch.cat([torch.ones(5, 3), torch.zeros(5, max(LENGTHS))], dim=1).bool()
    is_read = torch.cat([torch.zeros(5, 3).bool(), batch["attention_mask"].bool()], dim=1)
    inputs = prefix_inputs(model, is_pool, is_read, strength)
    whole = torch.cat([prompts[of_rows], words], dim=1)
    hidden = model.base_model(inputs_embeds=whole, **inputs).last_hidden_state[:, 3:]
    expected = torch.stack([hidden[i, :n].mean(dim=0) for i, n in enumerate(LENGTHS)])
    weights = torch.randn(expected.shape, generator=generator, dtype=torch.float64)
    (expected_gradient,) = torch.autograd.grad((expected * weights).sum(), prompts)

    encoder = packed_encoder(model)
    assert encoder is not None
    encoder._eager = attention == "eager"
    packing = pack([batch], group_cost)
    rows = torch.cat([words[i, :n] for i, n in enumerate(LENGTHS)])
    embedded = encoder.embed(prompts.flatten(0, 1), torch.arange(3).repeat(2)).view(2, 3, -1)
    _, mean = encoder.read(
        encoder.embed(rows[packing.tokens], packing.columns),
        packing.groups,
        packing.slots_where("loss_ids"),
        at_mask=False,
        mean=True,
        prefix=Prefix(embedded, of_rows[packing.order], strength),
    )
    assert mean is not None
    found = mean[packing.place]
    (gradient,) = torch.autograd.grad((found * weights).sum(), prompts)
    assert torch.allclose(found, expected, rtol=1e-9, atol=1e-11)
    assert torch.allclose(gradient, expected_gradient, rtol=1e-8, atol=1e-11)


@pytest.mark.parametrize("family", sorted(set(FAMILIES) - set(BERT_LIKE)))
def test_models_that_are_built_otherwise_are_left_to_their_own_forward_pass(
    family: str, tiny: Callable[[str], LoadedMLM]
) -> None:
    assert packed_encoder(tiny(family).model) is None


def test_an_encoder_that_looks_like_bert_but_computes_something_else_is_not_trusted(
    tiny: Callable[[str], LoadedMLM],
) -> None:
    model = tiny("bert").model
    assert packed_encoder(model) is not None
    first = model.bert.encoder.layer[0]
    first.forward = lambda *args, real=first.forward, **kwargs: _scaled(real(*args, **kwargs))
    assert packed_encoder(model) is None


def _scaled(output: Any) -> Any:
    return output * 1.1 if isinstance(output, torch.Tensor) else (output[0] * 1.1, *output[1:])


def test_linear_layers_see_no_padding_and_the_last_one_the_mask_alone(tiny: Callable[[str], LoadedMLM]) -> None:
    model = tiny("bert").model
    encoder = packed_encoder(model)
    assert encoder is not None
    seen: dict[str, int] = {}
    for number, layer in enumerate(model.bert.encoder.layer):
        parts = {
            "key": layer.attention.self.key,
            "query": layer.attention.self.query,
            "wide": layer.intermediate.dense,
        }
        for name, part in parts.items():
            part.register_forward_hook(
                lambda module, inputs, output, at=f"{number}.{name}": seen.update({at: len(inputs[0])})
            )
    packing = pack([batch_of(model.config.vocab_size)], group_cost=0)
    embedded = encoder.embed(encoder.word_embeddings(packing.flat("input_ids")), packing.columns)
    encoder.read(embedded, packing.groups, packing.slots_where("loss_ids"))
    tokens, texts = sum(LENGTHS), len(LENGTHS)
    assert seen == {
        "0.key": tokens,
        "0.query": tokens,
        "0.wide": tokens,
        "1.key": tokens,
        "1.query": texts,
        "1.wide": texts,
    }


def test_passes_on_a_cpu_are_no_larger_than_they_should_be(
    tiny: Callable[[str], LoadedMLM], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tiny("bert").model
    encoder = packed_encoder(model)
    assert encoder is not None
    monkeypatch.setitem(module.SLOTS_OF_A_PASS, "cpu", 14)
    seen: list[int] = []
    model.bert.encoder.layer[0].attention.self.key.register_forward_hook(
        lambda module, inputs, output: seen.append(len(inputs[0]))
    )
    encoder.read_batch(batch_of(model.config.vocab_size), "mask")
    assert seen == [4 + 4, 7 + 7, 12]  # the shortest row is padded by one: cheaper than a group of its own
