"""The schema and the service say the same: what fits the schema is never called malformed."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from openprompt_meta.classifier.classifier import MetaPromptClassifier
from openprompt_meta.serve.requests import SOMETHING
from tests.helpers.fuzzing import fuzzed
from tests.helpers.services import UNLIMITED, running

# So low that what is generated comes up against every one of them.
LOW = replace(UNLIMITED, texts=3, text_length=8, classes=3, examples=4, label_length=4, label_words=2, tasks=2)


def fitting(schema: dict[str, Any], parts: dict[str, Any]) -> st.SearchStrategy[Any]:
    """Anything that fits a JSON schema of those that the service gives."""
    if "$ref" in schema:
        return fitting(parts[schema["$ref"].rpartition("/")[2]], parts)
    if "anyOf" in schema:
        return st.one_of([fitting(one, parts) for one in schema["anyOf"]])
    kind = schema["type"]
    if kind == "array":
        items = fitting(schema["items"], parts)
        return st.lists(items, min_size=schema.get("minItems", 0), max_size=schema.get("maxItems", 5))
    if kind == "object" and "properties" in schema:
        keys = {name: fitting(one, parts) for name, one in schema["properties"].items()}
        needed = {name: keys.pop(name) for name in schema["required"]}
        return st.fixed_dictionaries(needed, optional=keys)
    if kind == "object":
        return st.dictionaries(
            fitting(schema["propertyNames"], parts),
            fitting(schema["additionalProperties"], parts),
            min_size=schema.get("minProperties", 0),
            max_size=schema.get("maxProperties", 5),
        )
    if kind == "string":
        # In a schema '$' is the very end, in Python the newline before it too.
        pattern = re.sub(r"\$$", r"\\Z", schema.get("pattern", ""))
        return st.from_regex(pattern).filter(lambda text: len(text) <= schema.get("maxLength", sys.maxsize))
    return {"null": st.none(), "boolean": st.booleans()}[kind]


@pytest.mark.parametrize(
    ("path", "statuses"), [("/fit", {201, 409}), ("/predict", {200, 404}), ("/explain", {200, 404})]
)
def test_what_fits_the_schema_is_never_malformed(fitted: MetaPromptClassifier, path: str, statuses: set[int]) -> None:
    seen = set()
    with running(fitted, LOW) as client:
        described = client.get("/openapi.json").json()
        schema = described["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"]

        @fuzzed(150)
        @given(fitting(schema, described["components"]["schemas"]))
        def ask(body: Any) -> None:
            answer = client.post(path, json=body)
            assert answer.status_code in statuses, answer.text
            seen.add(answer.status_code)

        ask()
    assert seen == statuses


def test_the_address_of_a_task_has_its_pattern(service: httpx.Client) -> None:
    (name,) = service.get("/openapi.json").json()["paths"]["/tasks/{name}"]["delete"]["parameters"]
    assert re.search(name["schema"]["pattern"], "two topics")
    assert not re.search(name["schema"]["pattern"], "../x")


def test_white_space_is_what_python_takes_for_it() -> None:
    for number in range(sys.maxunicode + 1):
        assert bool(re.match(SOMETHING, chr(number))) is not chr(number).isspace(), hex(number)


def test_the_schema_has_the_limits_of_the_service(fitted: MetaPromptClassifier) -> None:
    with running(fitted, replace(UNLIMITED, texts=7, classes=5, label_length=9, text_length=99)) as client:
        schemas = client.get("/openapi.json").json()["components"]["schemas"]
    texts = schemas["PredictRequest"]["properties"]["texts"]
    assert (texts["minItems"], texts["maxItems"]) == (1, 7)
    assert (texts["items"]["maxLength"], texts["items"]["pattern"]) == (99, SOMETHING)
    classes = schemas["FitRequest"]["properties"]["classes"]
    assert (classes["minProperties"], classes["maxProperties"]) == (2, 5)
    assert classes["propertyNames"]["maxLength"] == 9
    words, _ = schemas["FitRequest"]["properties"]["label_words"]["anyOf"]
    assert (words["additionalProperties"]["minItems"], words["additionalProperties"]["maxItems"]) == (1, 20)
