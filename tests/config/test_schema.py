"""The schema against the code that its keys are for."""

from __future__ import annotations

import importlib
import inspect
import subprocess
import sys
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from openprompt_meta.components import Declaration, meta_learners, methods, readers, verbalizers
from openprompt_meta.config.schema import (
    KNOWN_DATASETS,
    DatasetSection,
    RunConfig,
    component_sections,
    key_at,
    section_types,
)
from openprompt_meta.sections import choices

CLASSES = {
    "prompt_pool_template": "openprompt_meta.prompts.pool_template:PromptPoolTemplate",
    **{name: declaration.implementation for name, declaration in verbalizers().items()},
}
DECLARED = [*verbalizers().values(), *methods().values(), *meta_learners().values(), *readers().values()]
# Given by the run and not by its YAML: the model, the classes of a task, seeds and sizes that stand elsewhere.
FROM_THE_RUN = {
    "model",
    "tokenizer",
    "classes",
    "num_classes",
    "label_words",
    "seed",
    "max_seq_length",
    "feature_size",
}
# For OpenPrompt's own loops, where there are no tasks.
OUTSIDE_TASKS = {
    "prompt_pool_template": {"query_copy", "placeholder_mapping"},
    "rep_verbalizer": {"decay"},
    "adaptive_verbalizer": {"decay"},
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
    module, _, name = CLASSES[section].partition(":")
    signature = inspect.signature(getattr(importlib.import_module(module), name).__init__)
    return {name: parameter.default for name, parameter in signature.parameters.items() if name != "self"}


def test_a_section_has_the_keys_of_its_class(section: str) -> None:
    expected = set(parameters(section)) - FROM_THE_RUN - OUTSIDE_TASKS.get(section, set())
    assert section_types()[section].model_fields.keys() == expected


def test_a_section_has_the_defaults_of_its_class(section: str) -> None:
    defaults = parameters(section)
    checked = 0
    for name, field in section_types()[section].model_fields.items():
        if name in DECIDED.get(section, ()):
            assert defaults[name] is None
        elif name in defaults:
            default = field.get_default(call_default_factory=True)
            assert defaults[name] == (tuple(default) if isinstance(default, list) else default)
            checked += 1
    assert checked >= 1


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
    found = getattr(importlib.import_module(f"openprompt_meta.{module}"), constant)
    key = key_at(path)
    assert key is not None
    assert set(choices(key.hint)) == set(found)


@pytest.mark.parametrize("declaration", DECLARED, ids=[declaration.name for declaration in DECLARED])
def test_what_is_declared_is_there(declaration: Declaration) -> None:
    assert callable(declaration.load())
    assert declaration.title


def test_every_component_with_keys_has_a_section_of_its_own() -> None:
    components = [*verbalizers().values(), *methods().values(), *meta_learners().values()]
    with_keys = [one.section for one in components if one.config.model_fields]
    assert len(set(with_keys)) == len(with_keys)
    assert set(with_keys) == component_sections().keys() < RunConfig.model_fields.keys()


def test_every_known_data_set_has_a_file_of_facts() -> None:
    files = resources.files("openprompt_meta.data.facts").iterdir()
    assert {Path(file.name).stem for file in files if file.name.endswith(".json")} == set(KNOWN_DATASETS)


def test_the_data_section_offers_the_readers_that_there_are() -> None:
    key = key_at("dataset.format")
    assert key is not None
    assert set(choices(key.hint)) == {"auto", "layout", "authors", "table", "huggingface", "processor"}
    assert DatasetSection().format == "auto"


def test_the_presets_words_fit_the_kinds_of_data() -> None:
    from openprompt_meta.config.loading import authors
    from openprompt_meta.data.facts import facts_of

    for name in KNOWN_DATASETS:
        about = "Topic is about" in authors(name, 5)["prompt_pool_template"]["text"]
        assert about == (facts_of(name).kind == "intents")


def test_reading_a_configuration_imports_no_torch() -> None:
    code = (
        "import sys; from openprompt_meta.config.validation import config_from_mapping;"
        "from openprompt_meta.config.writing import to_yaml;"
        "to_yaml(config_from_mapping({'plm': {'dropout': True}}));"
        "print(sorted({'torch', 'transformers', 'openprompt', 'numpy'} & set(sys.modules)))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
