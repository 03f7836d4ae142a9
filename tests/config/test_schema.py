"""The schema against the code that its keys are for."""

from __future__ import annotations

import inspect
import subprocess
import sys
from dataclasses import fields
from typing import Any, get_args

import pytest

from openprompt_meta.config.checks import KNOWN_DATASETS
from openprompt_meta.config.keys import key_at
from openprompt_meta.config.schema import VERBALIZER_SECTIONS, DatasetSection, PromptPoolTemplateSection

CLASSES = {
    "prompt_pool_template": "PromptPoolTemplate",
    "rep_verbalizer": "RepVerbalizer",
    "warp_verbalizer": "WarpVerbalizer",
    "dart_verbalizer": "DartVerbalizer",
    "proto_verbalizer": "ProtoVerbalizer",
    "manual_verbalizer": "ManualVerbalizer",
}
SECTIONS = {"prompt_pool_template": PromptPoolTemplateSection, **VERBALIZER_SECTIONS}
# Given by the run and not by its YAML: the model, the classes of a task, seeds and sizes that stand elsewhere.
FROM_THE_RUN = {"model", "tokenizer", "classes", "num_classes", "label_words", "seed", "max_seq_length"}
# For OpenPrompt's own loops, where there are no tasks.
OUTSIDE_TASKS = {
    "prompt_pool_template": {"query_copy", "placeholder_mapping"},
    "rep_verbalizer": {"decay"},
    "proto_verbalizer": {"prefix", "multi_token_handler", "post_log_softmax"},
    "manual_verbalizer": {"prefix", "post_log_softmax"},
}
# None there means "decide by what else is given"; a run always gives label words, so the YAML names the choice.
DECIDED = {"prompt_pool_template": {"text", "init"}, "proto_verbalizer": {"multi_verb"}}


@pytest.fixture(params=CLASSES)
def section(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


def parameters(section: str) -> dict[str, Any]:
    import openprompt_meta

    signature = inspect.signature(getattr(openprompt_meta, CLASSES[section]).__init__)
    return {name: parameter.default for name, parameter in signature.parameters.items() if name != "self"}


def test_a_section_has_the_keys_of_its_class(section: str) -> None:
    keys = {field.name for field in fields(SECTIONS[section])}
    expected = set(parameters(section)) - FROM_THE_RUN - OUTSIDE_TASKS.get(section, set())
    assert keys == expected


def test_a_section_has_the_defaults_of_its_class(section: str) -> None:
    defaults = parameters(section)
    checked = 0
    for field in fields(SECTIONS[section]):
        if field.name in DECIDED.get(section, ()):
            assert defaults[field.name] is None
        elif field.name in defaults:
            assert defaults[field.name] == field.default
            checked += 1
    assert checked >= 2


@pytest.mark.parametrize(
    ("path", "module", "constant"),
    [
        ("prompt_pool_template.init", "prompts.pool_template", "INITIALISATIONS"),
        ("rep_verbalizer.similarity", "verbalizers.rep", "SIMILARITIES"),
        ("rep_verbalizer.centring", "verbalizers.rep", "CENTRINGS"),
        ("rep_verbalizer.aggregation", "verbalizers.manual", "AGGREGATIONS"),
        ("manual_verbalizer.multi_token_handler", "verbalizers.manual", "MULTI_TOKEN_HANDLERS"),
        ("proto_verbalizer.multi_verb", "verbalizers.proto", "MULTI_VERBS"),
    ],
)
def test_a_key_offers_the_choices_of_its_class(path: str, module: str, constant: str) -> None:
    found = getattr(__import__(f"openprompt_meta.{module}", fromlist=[constant]), constant)
    key = key_at(path)
    assert key is not None
    assert set(get_args(key.hint)) == set(found)


def test_the_data_section_offers_the_readers_that_there_are() -> None:
    from openprompt_meta.data.facts import KNOWN_SETS
    from openprompt_meta.data.readers.find import FORMATS

    key = key_at("dataset.format")
    assert key is not None
    assert set(get_args(key.hint)) == {*FORMATS, "processor"}
    assert DatasetSection().format == "auto"
    assert set(KNOWN_DATASETS) == set(KNOWN_SETS)


def test_the_presets_words_fit_the_kinds_of_data() -> None:
    from openprompt_meta.config.presets import authors
    from openprompt_meta.data.facts import KNOWN_SETS, facts_of

    for name in KNOWN_SETS:
        about = "Topic is about" in authors(name, 5)["prompt_pool_template"]["text"]
        assert about == (facts_of(name).kind == "intents")


def test_reading_a_configuration_imports_no_torch() -> None:
    code = (
        "import sys; from openprompt_meta.config import config_from_mapping, to_yaml;"
        "to_yaml(config_from_mapping({'plm': {'dropout': True}}));"
        "print(sorted({'torch', 'transformers', 'openprompt', 'numpy'} & set(sys.modules)))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
