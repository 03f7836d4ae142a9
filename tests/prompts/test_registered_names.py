"""The names that OpenPrompt finds, in code and in a YAML's section."""

from __future__ import annotations

import json

import pytest
import torch
from openprompt.prompts import TEMPLATE_CLASS, VERBALIZER_CLASS, load_template, load_verbalizer
from yacs.config import CfgNode

from openprompt_meta.errors import ConfigError
from openprompt_meta.prompts.pool_template import PromptPoolTemplate
from openprompt_meta.verbalizers.adaptive import AdaptiveVerbalizer
from openprompt_meta.verbalizers.base import EpisodicVerbalizer
from openprompt_meta.verbalizers.manual import ManualVerbalizer
from openprompt_meta.verbalizers.proto import ProtoVerbalizer
from openprompt_meta.verbalizers.rep import RepVerbalizer
from openprompt_meta.verbalizers.warp import DartVerbalizer, WarpVerbalizer
from tests.helpers.prompts import CLASSES, PAPER_LAYOUT, WORDS

pytestmark = pytest.mark.prompts

NAMES = {
    "rep_verbalizer": RepVerbalizer,
    "adaptive_verbalizer": AdaptiveVerbalizer,
    "warp_verbalizer": WarpVerbalizer,
    "dart_verbalizer": DartVerbalizer,
    "proto_verbalizer": ProtoVerbalizer,
    "manual_verbalizer": ManualVerbalizer,
}


@pytest.fixture
def bert(tiny):
    return tiny("bert")


def test_openprompts_tables_hold_our_names():
    assert TEMPLATE_CLASS["prompt_pool_template"] is PromptPoolTemplate
    for name, verbalizer in NAMES.items():
        assert VERBALIZER_CLASS[name] is verbalizer
        assert issubclass(verbalizer, EpisodicVerbalizer)


def test_openprompts_other_names_stay_as_they_are():
    for name in ("soft_verbalizer", "automatic_verbalizer", "knowledgeable_verbalizer", "one2one_verbalizer"):
        assert VERBALIZER_CLASS[name].__module__.startswith("openprompt.")


def test_a_template_is_found_by_its_name(bert):
    section = {"text": PAPER_LAYOUT, "num_prompts": 4, "prompt_length": 3, "label_words": WORDS}
    config = CfgNode({"template": "prompt_pool_template", "prompt_pool_template": section})
    template = load_template(config, model=bert.model, tokenizer=bert.tokenizer)
    assert isinstance(template, PromptPoolTemplate)
    assert template.pool.num_prompts == 4


def make(bert, name: str, section: dict):
    config = CfgNode({"verbalizer": name, name: section})
    return load_verbalizer(config, model=bert.model, tokenizer=bert.tokenizer, classes=CLASSES)


@pytest.mark.parametrize("name", NAMES)
def test_label_words_may_stand_in_the_section_or_in_a_file(bert, name, tmp_path):
    (tmp_path / "words.json").write_text(json.dumps(WORDS))
    (tmp_path / "words.txt").write_text("\n".join(",".join(own) for own in WORDS.values()) + "\n\nsky\nlaw\ntax\n")
    mixed = {} if name in ("manual_verbalizer", "proto_verbalizer") else {"mix_lambda": 0.5}
    hidden, logits = torch.randn(4, 32), torch.randn(4, len(bert.tokenizer))

    def predict(section):
        torch.manual_seed(3)
        verbalizer = make(bert, name, {**mixed, **section})
        assert isinstance(verbalizer, NAMES[name])
        assert verbalizer.needs_vocabulary_head
        if name != "manual_verbalizer":
            verbalizer.fit_support(torch.eye(6, 32), None, torch.tensor([0, 0, 1, 1, 2, 2]))
        return verbalizer.log_probabilities(hidden, logits)

    written = predict({"label_words": WORDS})
    for file in ("words.json", "words.txt"):
        section = {"label_words": None, "file_path": str(tmp_path / file), "choice": 0}
        assert torch.equal(predict(section), written), file
    other = predict({"label_words": None, "file_path": str(tmp_path / "words.txt"), "choice": 1})
    assert not torch.equal(other, written)
    assert torch.equal(predict({"label_words": WORDS, "file_path": None, "choice": 0}), written)


def test_label_words_from_two_places_are_refused(bert):
    with pytest.raises(ConfigError, match="label_words and file_path"):
        make(bert, "rep_verbalizer", {"label_words": WORDS, "file_path": "words.json"})


@pytest.mark.parametrize("file", ["missing.json", "words.yaml", "broken.json", "number.json", "short.txt"])
def test_a_file_that_gives_no_label_words_is_named(bert, file, tmp_path):
    (tmp_path / "words.yaml").write_text("weather: [rain]")
    (tmp_path / "broken.json").write_text("{")
    (tmp_path / "number.json").write_text("7")
    (tmp_path / "short.txt").write_text("rain\n")
    section = {"label_words": None, "file_path": str(tmp_path / file), "choice": 3 if file == "short.txt" else None}
    with pytest.raises(ConfigError, match=file.replace(".", r"\.")):
        make(bert, "manual_verbalizer", section)


@pytest.mark.parametrize("name", NAMES)
def test_an_unknown_key_is_an_error_with_the_nearest_known_one(bert, name):
    with pytest.raises(ConfigError) as caught:
        make(bert, name, {"agregation": "logits", "label_words": WORDS})
    assert "'agregation'. Did you mean 'aggregation'? It takes: classes, num_classes" in str(caught.value)


def test_a_section_may_be_absent(bert):
    verbalizer = RepVerbalizer.from_config(None, tokenizer=bert.tokenizer, classes=CLASSES)
    assert verbalizer.num_classes == 3
