"""The addresses of the service, over a real connection, against the same classifier used from Python."""

from __future__ import annotations

import http.client
import json
import re
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import httpx
import numpy as np
import pytest

from openprompt_meta.classifier.classifier import MetaPromptClassifier
from openprompt_meta.serve.pages import page_files
from tests.helpers.services import CLASSES, UNLIMITED, new_classifier, running

TEXTS = ["storm at night", "a good soup", "the player", "tell me about the king", "x"]


def error_of(response: httpx.Response, status: int) -> str:
    """The sentence of a refusal, which has the status and nothing else in it."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/json"
    (key, sentence), *rest = response.json().items()
    assert key == "error"
    assert not rest
    assert "Traceback" not in sentence
    assert re.search(r"[.?]$", sentence)
    return str(sentence)


def as_it_stands(client: httpx.Client, method: str, path: str) -> tuple[int, bytes]:
    """The answer to a path that httpx would tidy up first."""
    connection = http.client.HTTPConnection(client.base_url.host, client.base_url.port, timeout=30)
    with closing(connection):
        connection.request(method, path)
        answer = connection.getresponse()
        return answer.status, answer.read()


def fit(client: httpx.Client, name: str, **more: object) -> httpx.Response:
    return client.post("/fit", json={"name": name, "classes": CLASSES, **more})


def test_predictions_are_those_of_the_classifier(service: httpx.Client, fitted: MetaPromptClassifier) -> None:
    answer = service.post("/predict", json={"texts": TEXTS}).json()
    expected = fitted.predict_proba(TEXTS)
    rows = [[p["probabilities"][name] for name in fitted.classes_] for p in answer["predictions"]]
    np.testing.assert_allclose(rows, expected, rtol=1e-6)
    assert [p["label"] for p in answer["predictions"]] == fitted.predict(TEXTS).tolist()
    assert [p["probability"] for p in answer["predictions"]] == pytest.approx(expected.max(axis=1).tolist())
    assert answer["task"] == "served"


def test_a_task_fitted_over_http_is_the_one_fitted_in_python(
    service: httpx.Client, tiny_mlm_folder: Callable[[str], Path]
) -> None:
    classes = {"money": ["pay the tax", "coin"], "travel": ["a train trip"]}
    answer = service.post("/fit", json={"name": "new", "classes": classes})
    assert answer.status_code == 201, answer.text
    assert answer.json()["task"] == {"name": "new", "classes": ["money", "travel"], "examples": 3, "served": False}
    own = new_classifier(tiny_mlm_folder("bert")).fit(
        ["pay the tax", "coin", "a train trip"], ["money", "money", "travel"]
    )
    found = service.post("/predict", json={"texts": TEXTS, "task": "new"}).json()["predictions"]
    rows = [[p["probabilities"][name] for name in own.classes_] for p in found]
    np.testing.assert_allclose(rows, own.predict_proba(TEXTS), rtol=1e-6)


def test_a_large_task_is_adapted_to_a_part_of_its_examples(
    unfitted: MetaPromptClassifier, tiny_mlm_folder: Callable[[str], Path]
) -> None:
    texts = [f"{text} {i}" for i in range(3) for examples in CLASSES.values() for text in examples]
    labels = [name for _ in range(3) for name, examples in CLASSES.items() for _ in examples]
    classes = {name: [t for t, label in zip(texts, labels, strict=True) if label == name] for name in CLASSES}
    texts = [text for examples in classes.values() for text in examples]
    labels = [name for name, examples in classes.items() for _ in examples]
    own = new_classifier(tiny_mlm_folder("bert")).set_params(adapt_examples=6).fit(texts, labels)
    with running(unfitted, replace(UNLIMITED, adapt_examples=6)) as client:
        assert client.post("/fit", json={"name": "a", "classes": classes}).json()["task"]["examples"] == 27
        found = client.post("/explain", json={"text": TEXTS[0], "task": "a"}).json()
    assert found == {"task": "a", **own.explain(TEXTS[0]).as_dict()}


def test_an_explanation_is_that_of_the_classifier(service: httpx.Client, fitted: MetaPromptClassifier) -> None:
    answer = service.post("/explain", json={"text": TEXTS[0]}).json()
    assert answer == {"task": "served", **fitted.explain(TEXTS[0]).as_dict()}
    assert sum(answer["attention"]) == pytest.approx(1, abs=1e-5)


def test_labels_that_are_numbers_are_strings_over_http(tiny_mlm_folder: Callable[[str], Path]) -> None:
    numbered = new_classifier(tiny_mlm_folder("bert")).fit(["rain", "the game"], [10, 2])
    with running(numbered) as client:
        assert client.get("/tasks").json()["tasks"][0]["classes"] == ["2", "10"]
        assert set(client.post("/predict", json={"texts": ["x"]}).json()["predictions"][0]["probabilities"]) == {
            "2",
            "10",
        }
        assert client.post("/explain", json={"text": "x"}).json()["label"] in ("2", "10")


def test_the_classifier_that_is_served_is_never_changed(service: httpx.Client, fitted: MetaPromptClassifier) -> None:
    before = fitted.predict_proba(TEXTS)
    assert service.post("/fit", json={"name": "b", "classes": {"1": ["a"], "2": ["b"]}}).status_code == 201
    assert (fitted.predict_proba(TEXTS) == before).all()
    assert fitted.classes_.tolist() == sorted(CLASSES)


def test_tasks_are_listed_and_deleted(service: httpx.Client) -> None:
    assert [task["name"] for task in service.get("/tasks").json()["tasks"]] == ["served"]
    for name in ("one", "zwei 2", "три.3"):
        assert fit(service, name).status_code == 201
    assert [task["name"] for task in service.get("/tasks").json()["tasks"]] == ["served", "one", "zwei 2", "три.3"]
    assert service.delete("/tasks/zwei%202").json() == {"deleted": "zwei 2"}
    assert service.delete("/tasks/три.3").json() == {"deleted": "три.3"}
    assert "no task 'zwei 2'" in error_of(service.delete("/tasks/zwei 2"), 404)
    assert "Did you mean 'one'?" in error_of(service.post("/predict", json={"texts": ["x"], "task": "ohne"}), 404)
    assert [task["name"] for task in service.get("/tasks").json()["tasks"]] == ["served", "one"]


def test_the_task_used_longest_ago_leaves_and_the_served_one_stays(fitted: MetaPromptClassifier) -> None:
    with running(fitted, replace(UNLIMITED, tasks=2)) as client:
        assert fit(client, "a").json()["forgotten"] == []
        assert fit(client, "b").json()["forgotten"] == []
        assert client.post("/predict", json={"texts": ["x"], "task": "a"}).status_code == 200
        assert fit(client, "c").json()["forgotten"] == ["b"]
        assert [task["name"] for task in client.get("/tasks").json()["tasks"]] == ["served", "a", "c"]


def test_a_name_is_taken_until_one_says_replace(service: httpx.Client) -> None:
    assert fit(service, "a").status_code == 201
    assert "already" in error_of(fit(service, "a"), 409)
    other = {"money": ["pay"], "law": ["king"]}
    again = service.post("/fit", json={"name": "a", "classes": other, "replace": True})
    assert again.json()["task"]["classes"] == ["law", "money"]
    assert "kept for" in error_of(fit(service, "served", replace=True), 409)
    assert "stays" in error_of(service.delete("/tasks/served"), 409)


def test_without_a_fitted_classifier_a_task_has_to_be_named(unfitted: MetaPromptClassifier) -> None:
    with running(unfitted) as client:
        assert client.get("/tasks").json() == {"tasks": []}
        assert "came without a task" in error_of(client.post("/predict", json={"texts": ["x"]}), 404)
        assert "no task 'served'" in error_of(client.delete("/tasks/served"), 404)
        assert fit(client, "a").status_code == 201
        assert client.post("/predict", json={"texts": ["x"], "task": "a"}).status_code == 200


@pytest.mark.parametrize(
    ("classes", "sentence", "status"),
    [
        ({}, "At least two classes are needed, and there is none", 422),
        ({"a": ["x"]}, "At least two classes are needed, and there is only one", 422),
        ({"a": ["x"], "b": []}, "There is no example of ['b']", 409),
        ({"a": ["x"], "b": ["  \n"]}, "Example 1 of 'b' is empty", 422),
        ({"a": ["x"], " a ": ["y"]}, "'a' is there twice", 409),
        ({"a": ["x"], "": ["y"]}, "name has 0 characters", 422),
        ({"a": ["x"], "b" * 101: ["y"]}, "name has 101 characters", 422),
        ({"a": ["x"], "b\u0000": ["y"]}, "cannot be shown", 422),
        ({"a": ["same text"], "b": ["Same  TEXT"]}, "is labelled 'a' and 'b'", 409),
        ({"a": ["x"], "b": ["y" * 20_001]}, "has 20,001 characters", 422),
        ({str(i): ["x"] for i in range(65)}, "65 classes are more than 64", 422),
        ({"a": ["x"], "b": ["y"] * 256}, "257 examples are more than 256", 409),
        ({"a": ["x"], "b": [None]}, "At 'classes.b.0'", 422),
        ({"a": ["x"], "b": "text"}, "At 'classes.b'", 422),
        ([["a", "x"]], "At 'classes'", 422),
    ],
)
def test_classes_that_cannot_be_learned_are_refused_in_words(
    service: httpx.Client, classes: object, sentence: str, status: int
) -> None:
    assert sentence in error_of(service.post("/fit", json={"name": "a", "classes": classes}), status)
    assert len(service.get("/tasks").json()["tasks"]) == 1


@pytest.mark.parametrize(
    ("words", "sentence", "status"),
    [
        ({"weather": ["rain"], "sport": ["game"]}, "'food' has no label words", 409),
        ({"weather": ["rain"], "sport": ["game"], "food": []}, "0 label words", 422),
        ({"weather": ["rain"], "sport": ["game"], "food": ["soup"], "law": ["law"]}, "not one of the classes", 409),
        ({"weather": ["rain"], "sport": ["game"], "food": ["soup"]}, "they contribute nothing", 409),
    ],
)
def test_label_words_of_no_use_are_refused_in_words(
    service: httpx.Client, words: dict[str, list[str]], sentence: str, status: int
) -> None:
    assert sentence in error_of(fit(service, "a", label_words=words), status)


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        ({"texts": []}, "'texts' is empty"),
        ({"texts": [""]}, "Text 1 is empty"),
        ({"texts": ["a", "\ud800"]}, "Text 2 has half a character"),
        ({"texts": ["a"] * 257}, "257 texts are more than 256"),
        ({"texts": "a"}, "At 'texts'"),
        ({"texts": [b"a".hex(), 3]}, "At 'texts.1'"),
        ({"text": ["a"]}, "At 'texts': field required. 1 more"),
        ({"texts": ["a"], "task": "nobody"}, "no task 'nobody'"),
        ({"texts": ["a"], "task": "../served"}, "A task's name has"),
        ({"texts": ["a"], "task": 1}, "At 'task'"),
        ([], "At 'the body'"),
        (None, "At 'the body'"),
    ],
)
def test_a_body_of_the_wrong_shape_is_refused_in_words(service: httpx.Client, body: object, sentence: str) -> None:
    content = json.dumps(body)  # unlike httpx's own, able to spell half a surrogate pair
    answer = service.post("/predict", content=content, headers={"Content-Type": "application/json"})
    assert sentence in error_of(answer, 404 if "nobody" in sentence else 422)


@pytest.mark.parametrize(
    "name",
    [
        "",
        " ",
        ".",
        "..",
        "../x",
        "/etc/passwd",
        "a/b",
        "a\\b",
        "C:\\x",
        "a\x00b",
        "a\nb",
        "-x",
        ".hidden",
        "~",
        "a" * 65,
        "<b>",
        "\u202ename",
        "con:",
        "file://x",
        "%2e%2e",
        "$(id)",
        "a;b",
        "*",
    ],
)
def test_a_hostile_name_is_refused_and_reaches_no_file(service: httpx.Client, name: str) -> None:
    assert "A task's name has" in error_of(fit(service, name), 422)
    assert "A task's name has" in error_of(service.post("/explain", json={"text": "x", "task": name}), 422)


@pytest.mark.parametrize(
    "path", ["/tasks/%2e%2e", "/tasks/..%2fx", "/tasks/%00", "/tasks/a%2Fb", "/tasks/", "/tasks/%ff"]
)
def test_a_hostile_address_is_refused(service: httpx.Client, path: str) -> None:
    status, body = as_it_stands(service, "DELETE", path)
    assert status in (404, 405, 422)
    assert set(json.loads(body)) == {"error"}


@pytest.mark.parametrize(
    "path", ["/nothing", "/page/index.html", "/../setup.py", "/page.css/..", "/static/page.js", "/redoc"]
)
def test_only_the_files_of_the_page_can_be_had(service: httpx.Client, path: str) -> None:
    status, body = as_it_stands(service, "GET", path)
    assert status == 404
    assert "nothing at this address" in json.loads(body)["error"]


def test_a_method_that_an_address_does_not_answer_is_refused(service: httpx.Client) -> None:
    answer = service.get("/predict")
    error_of(answer, 405)
    assert answer.headers["allow"] == "POST"


def test_no_other_site_is_let_in_by_a_preflight(service: httpx.Client) -> None:
    asked = {"Origin": "http://evil.example", "Access-Control-Request-Method": "POST"}
    answer = service.options("/predict", headers=asked)
    error_of(answer, 403)
    assert not [name for name in answer.headers if name.startswith("access-control")]


def test_a_fault_inside_is_one_sentence_and_the_service_goes_on(tiny_mlm_folder: Callable[[str], Path]) -> None:
    class Broken(MetaPromptClassifier):
        def predict_proba(self, texts: object) -> np.ndarray:
            raise ZeroDivisionError("secret of the inside")

    broken = Broken(base_model=str(tiny_mlm_folder("bert")), inner_steps=1).fit(["rain", "game"], ["a", "b"])
    with running(broken) as client:
        assert "secret" not in error_of(client.post("/predict", json={"texts": ["x"]}), 500)
        assert client.post("/explain", json={"text": "x"}).status_code == 200


def test_health_says_what_runs_without_saying_where(service: httpx.Client, fitted: MetaPromptClassifier) -> None:
    answer = service.get("/health").json()
    assert (answer["status"], answer["tasks"]) == ("ok", 1)
    assert "/" not in answer["model"]
    assert str(fitted.base_model).endswith(answer["model"])


def test_the_documentation_names_every_address_and_key_and_loads_nothing(service: httpx.Client) -> None:
    schema = service.get("/openapi.json").json()
    of_a_task = {"/tasks/{name}", "/tasks/{name}/classifier"}
    assert set(schema["paths"]) == {"/predict", "/explain", "/fit", "/tasks", *of_a_task, "/health"}
    page = service.get("/docs").text
    for path, methods in schema["paths"].items():
        for method in methods:
            assert f"<code>{method.upper()} {path}</code>" in page
    for described in schema["components"]["schemas"].values():
        for key in described.get("properties", {}):
            assert f"<code>{key}</code>" in page or described["title"].endswith("ValidationError")
    assert not re.search(r"(?:src|href)=\"(?!/)", page)


def test_the_page_refers_to_nothing_elsewhere(service: httpx.Client) -> None:
    files = page_files()
    for address, (content, _) in files.items():
        answer = service.get(address)
        assert answer.content == content
        text = answer.text.replace('xmlns="http://www.w3.org/2000/svg"', "")
        assert not re.search(r"https?:|//\w+\.|@import|url\(", text), address
        for target in re.findall(r"(?:src|href)=\"([^\"]*)\"", text):
            assert target in {*files, "/docs"}
    assert "default-src 'none'" in service.get("/").headers["content-security-policy"]


@pytest.mark.real_encoder
def test_with_the_pool_that_ships_a_few_examples_are_enough_or_none() -> None:
    classes = {
        "weather": ["will it rain tomorrow", "how cold is it outside", "do I need an umbrella"],
        "music": ["play some jazz", "next song please", "turn the volume up"],
        "restaurant": [],
    }
    with running(MetaPromptClassifier()) as client:
        assert client.get("/health").json()["model"] == "minilm"
        assert client.post("/fit", json={"name": "home", "classes": classes}).status_code == 201
        texts = ["is it going to snow tonight", "I want to hear a tune", "book a table at a good restaurant"]
        body = {"texts": texts, "task": "home"}
        found = client.post("/predict", json=body).json()["predictions"]
        assert client.post("/fit", json={"name": "none", "classes": {name: [] for name in classes}}).status_code == 201
        alone = client.post("/predict", json={**body, "task": "none"}).json()["predictions"]
        assert "their names say nothing" in error_of(
            client.post("/fit", json={"name": "bad", "classes": {"1": ["one text"], "2": []}}), 409
        )
    for predictions in (found, alone):
        assert [prediction["label"] for prediction in predictions] == ["weather", "music", "restaurant"]
