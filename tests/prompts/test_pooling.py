"""What is read of a text: the [MASK], the mean over tokens, or both; in a stock OpenPrompt model too."""

from __future__ import annotations

import pytest
import torch
from openprompt.prompts import SoftVerbalizer

from openprompt_meta.errors import TemplateError
from openprompt_meta.prompts.pool_template import DiscreteTemplate, PromptPoolTemplate
from openprompt_meta.prompts.pooling import FEATURES, suited_features
from openprompt_meta.verbalizers.proto import ProtoVerbalizer
from openprompt_meta.verbalizers.rep import RepVerbalizer
from openprompt_meta.verbalizers.warp import DartVerbalizer, WarpVerbalizer
from tests.helpers.prompts import CLASSES, LABELS, TEXTS, WORDS, batch_of, classifier, examples, pool_template
from tests.helpers.tiny_models import FAMILIES

pytestmark = pytest.mark.prompts


def double(mlm):
    mlm.model.double().requires_grad_(False).eval()
    return mlm


def written_out(mlm, template, batch, features):
    """Features of each text by itself, without padding, summed token by token in Python."""
    rows = []
    for i in range(len(batch["input_ids"])):
        length = int(batch["attention_mask"][i].sum())
        row = {key: batch[key][i : i + 1, :length] for key in ("input_ids", "soft_token_ids", "loss_ids")}
        row["attention_mask"] = torch.ones(1, length, dtype=torch.long)
        embeds = PromptPoolTemplate.process_batch(template, row)["inputs_embeds"]
        template.post_processing_outputs(mlm.model(inputs_embeds=embeds, output_hidden_states=True))
        hidden = mlm.model(inputs_embeds=embeds, output_hidden_states=True).hidden_states[-1][0].tolist()
        (at,) = [j for j in range(length) if row["loss_ids"][0, j] > 0]
        mean = [sum(hidden[j][k] for j in range(length)) / length for k in range(len(hidden[0]))]
        rows.append({"mask": hidden[at], "mean": mean, "both": hidden[at] + mean}[features])
    return torch.tensor(rows, dtype=torch.float64)


@pytest.mark.parametrize("features", FEATURES)
@pytest.mark.parametrize("family", FAMILIES)
def test_a_stock_model_reads_the_features_where_it_looks_for_the_mask(family, features, tiny):
    mlm = double(tiny(family))
    template = pool_template(mlm, features=features).double()
    batch = batch_of(mlm, template)
    verbalizer = RepVerbalizer(mlm.tokenizer, mlm.model, classes=CLASSES)
    model = classifier(mlm, template, verbalizer).train()
    model.plm.eval()
    predicted = model(batch)  # learns label embeddings from the labelled batch

    expected = written_out(mlm, template, batch, features)
    assert expected.shape == (len(TEXTS), template.feature_size)
    for label in range(len(CLASSES)):
        own = expected[torch.tensor(LABELS) == label].mean(dim=0)
        assert torch.allclose(verbalizer.label_embeddings[label], own, rtol=1e-7, atol=1e-9)
    cosines = torch.nn.functional.cosine_similarity(
        expected.unsqueeze(1), verbalizer.label_embeddings.unsqueeze(0), dim=-1
    )
    assert torch.allclose(predicted, (10 * cosines).log_softmax(dim=-1), rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("features", ["mean", "both"])
def test_neither_padding_nor_the_order_of_a_batch_changes_a_text_s_features(features, tiny):
    mlm = double(tiny("bert"))
    template = pool_template(mlm, features=features).double()
    model = classifier(mlm, template, torch.nn.Identity()).eval()

    def read(data, **options):
        batch = batch_of(mlm, template, data, **options)
        return model.extract_at_mask(model.prompt_model(batch).hidden_states[-1], batch)

    data = examples()
    whole = read(data)
    assert torch.allclose(read(data, max_seq_length=90), whole, rtol=1e-9, atol=1e-11)
    assert torch.allclose(read(data[::-1]).flip(0), whole, rtol=1e-9, atol=1e-11)
    assert torch.allclose(read(data[2:3])[0], whole[2], rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("features", ["mean", "both"])
def test_gradients_of_pooled_features_are_those_of_finite_differences(features, tiny):
    mlm = double(tiny("bert"))
    template = pool_template(mlm, features=features).double()
    model = classifier(mlm, template, torch.nn.Identity()).eval()
    batch = batch_of(mlm, template)
    weights = torch.randn(len(TEXTS), template.feature_size, generator=torch.Generator().manual_seed(0)).double()

    def value():
        return (model.extract_at_mask(model.prompt_model(batch).hidden_states[-1], batch) * weights).sum()

    prompts = template.pool.prompts
    (gradient,) = torch.autograd.grad(value(), prompts)
    for place in [(0, 0, 0), (1, 2, 5), (3, 1, 17)]:
        step, moved = 1e-6, []
        for sign in (1, -1):
            with torch.no_grad():
                prompts[place] += sign * step
                moved.append(value().item())
                prompts[place] -= sign * step
        assert abs((moved[0] - moved[1]) / (2 * step) - gradient[place].item()) < 1e-6


def test_the_pool_is_asked_with_the_same_features(tiny):
    mlm = double(tiny("bert"))
    template = pool_template(mlm, features="both").double()
    batch = batch_of(mlm, template)
    inputs, is_mask = template.without_pool(batch)
    hidden = mlm.model.bert(**inputs).last_hidden_state
    real = inputs["attention_mask"]
    means = torch.stack([hidden[i, : real[i].sum()].mean(dim=0) for i in range(len(TEXTS))])
    assert template.pool.key_dim == 64
    assert torch.allclose(template.queries(batch), torch.cat([hidden[is_mask], means], dim=-1), rtol=1e-8, atol=1e-10)


def test_the_pool_can_be_asked_with_what_takes_no_second_pass(tiny):
    mlm = double(tiny("bert"))
    bert = mlm.model.bert
    for query in ("embeddings", "first_layer"):
        template = pool_template(mlm, features="mask", query=query).double()
        batch = batch_of(mlm, template)
        asked = template.queries(batch)
        for i in range(len(TEXTS)):
            length = int(batch["attention_mask"][i].sum())
            ids, soft = batch["input_ids"][i, :length], batch["soft_token_ids"][i, :length]
            alone = ids[soft == 0].unsqueeze(0)
            vectors = bert.embeddings.word_embeddings(alone)
            if query == "first_layer":
                vectors = bert.encoder.layer[0](bert.embeddings(alone))
                vectors = vectors if isinstance(vectors, torch.Tensor) else vectors[0]
            assert torch.allclose(asked[i], vectors[0].mean(dim=0), rtol=1e-8, atol=1e-10)


def test_an_unknown_query_is_refused(tiny):
    mlm = tiny("bert")
    with pytest.raises(TemplateError, match="query must be one of features, embeddings, first_layer; got 'words'"):
        pool_template(mlm, query="words")


@pytest.mark.parametrize("kind", [WarpVerbalizer, DartVerbalizer, ProtoVerbalizer])
def test_verbalizers_with_parameters_take_features_of_any_size(kind, tiny):
    mlm = tiny("bert")
    template = pool_template(mlm, features="both")
    options = {"feature_size": template.feature_size}
    if kind is DartVerbalizer:
        options["label_words"] = WORDS
    verbalizer = kind(mlm.tokenizer, mlm.model, classes=CLASSES, **options)
    model = classifier(mlm, template, verbalizer)
    predicted = model(batch_of(mlm, template))
    assert predicted.shape == (len(TEXTS), len(CLASSES))
    assert torch.allclose(predicted.exp().sum(dim=-1), torch.ones(len(TEXTS)), atol=1e-5)


def test_openprompts_own_verbalizer_reads_the_mean_as_well(tiny):
    mlm = double(tiny("bert"))
    template = pool_template(mlm, features="mean").double()
    verbalizer = SoftVerbalizer(mlm.tokenizer, mlm.model, num_classes=3).double()
    batch = batch_of(mlm, template)
    logits = classifier(mlm, template, verbalizer).eval()(batch)
    assert torch.allclose(logits, verbalizer.head(written_out(mlm, template, batch, "mean")), rtol=1e-7, atol=1e-9)


def test_a_template_of_words_alone_reads_the_mean_too(tiny):
    mlm = double(tiny("bert"))
    template = DiscreteTemplate(
        mlm.model, mlm.tokenizer, '{"placeholder": "text_a"} topic is {"mask"}.', features="mean"
    )
    batch = batch_of(mlm, template)
    model = classifier(mlm, template, torch.nn.Identity()).eval()
    read = model.extract_at_mask(model.prompt_model(batch).hidden_states[-1], batch)
    length = int(batch["attention_mask"][1].sum())
    hidden = mlm.model.bert(batch["input_ids"][1:2, :length]).last_hidden_state
    assert torch.allclose(read[1], hidden[0].mean(dim=0), rtol=1e-8, atol=1e-10)


def test_a_saved_template_knows_what_it_reads(tiny, tmp_path):
    mlm = tiny("bert")
    template = pool_template(mlm, features="both")
    template.save_pretrained(tmp_path)
    loaded = PromptPoolTemplate.from_pretrained(tmp_path, mlm.model, mlm.tokenizer)
    assert loaded.features == "both"
    assert torch.equal(loaded.pool.keys, template.pool.keys)
    with pytest.raises(TemplateError, match="key_dim = 64; this model has 32"):
        PromptPoolTemplate.from_pretrained(tmp_path, mlm.model, mlm.tokenizer, features="mean")


def test_auto_takes_the_mean_of_an_encoder_that_predicts_no_words(tiny):
    mlm = tiny("bert")
    assert suited_features("auto", mlm.model) == "mask"
    assert suited_features("auto", mlm.model.bert) == "mean"


def test_another_way_of_reading_is_refused(tiny):
    with pytest.raises(TemplateError, match="features must be one of auto, mask, mean, both; got 'cls'"):
        pool_template(tiny("bert"), features="cls")
