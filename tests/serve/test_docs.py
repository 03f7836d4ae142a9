"""What docs/serve.md says, held to the service."""

from __future__ import annotations

import json
import re
from pathlib import Path

import httpx

from openprompt_meta.cli.serve import _LIMITS
from openprompt_meta.serve.guard import TOKEN_VARIABLE
from openprompt_meta.serve.requests import Limits

PAGE = (Path(__file__).parents[2] / "docs" / "serve.md").read_text(encoding="utf-8")


def test_the_bodies_on_the_page_are_answered(service: httpx.Client) -> None:
    rows = re.findall(r"^\| `POST (/\w+)` \| `(\{.*?\})`:", PAGE, flags=re.MULTILINE)
    assert {path for path, _ in rows} == {"/predict", "/explain", "/fit"}
    # /fit comes first: the prediction asks for its task.
    for path, body in sorted(rows, key=lambda row: row[0] != "/fit"):
        assert service.post(path, json=json.loads(body)).is_success, path
    (body,) = re.findall(r"curl .*/predict .*-d '(.*)'", PAGE)
    assert service.post("/predict", json=json.loads(body)).status_code == 200


def test_the_limits_on_the_page_are_the_defaults() -> None:
    limits = Limits()
    rows = dict(re.findall(r"^\| ([^|]+) \| ([^|]+) \| [^|]*\|$", PAGE, flags=re.MULTILINE))
    numbers = {name: [int(n.replace(",", "")) for n in re.findall(r"[\d,]*\d", value)] for name, value in rows.items()}
    assert rows["body of a request"] == f"{limits.body_bytes // 10**6} MB, within {limits.body_seconds:g} s"
    assert numbers["texts in a request, characters in a text"] == [limits.texts, limits.text_length]
    assert numbers["classes and examples of a task"] == [limits.classes, limits.examples, limits.adapt_examples]
    assert numbers["tasks kept"] == [limits.tasks]
    assert numbers["requests and fits a minute, of one client"] == [limits.requests_per_minute, limits.fits_per_minute]
    assert numbers["predictions worked on, waiting"] == [limits.predictions_at_once, limits.predictions_waiting]
    assert numbers["fits worked on, waiting"] == [limits.fits_at_once, limits.fits_waiting]
    assert f"Beyond\n{limits.tasks} tasks" in PAGE


def test_every_option_and_variable_is_on_the_page() -> None:
    for name in (*_LIMITS, TOKEN_VARIABLE, "--token", "--host", "--allow-host"):
        assert f"{name}" in PAGE
