"""What a browser is shown: the page, read once from the package, and documentation made from the OpenAPI schema."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from importlib import resources
from typing import Any, NamedTuple

from openprompt_meta.html_templates import render_html

# The whole list: nothing else of the package can be asked for.
_FILES = {
    "/": ("index.html", "text/html"),
    "/page.css": ("page.css", "text/css"),
    "/page.js": ("page.js", "text/javascript"),
    "/icon.svg": ("icon.svg", "image/svg+xml"),
}


def page_files() -> dict[str, tuple[bytes, str]]:
    """Content and media type of the files of the page, by their address."""
    folder = resources.files("openprompt_meta.serve") / "page"
    return {
        address: ((folder / name).read_bytes(), f"{kind}; charset=utf-8") for address, (name, kind) in _FILES.items()
    }


def documentation(schema: Mapping[str, Any]) -> str:
    """The OpenAPI schema as a page that needs nothing from elsewhere."""
    return render_html(
        "openprompt_meta.serve",
        "documentation.html.jinja",
        title=schema["info"]["title"],
        description=schema["info"].get("description", ""),
        operations=list(_operations(schema)),
    )


class _Field(NamedTuple):
    """A key of an object, with the keys of the object that it holds."""

    key: str
    kind: str
    optional: bool
    description: str | None
    example: str | None
    fields: list[_Field]


def _operations(schema: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for path, methods in schema["paths"].items():
        for method, operation in methods.items():
            yield {
                "method": method.upper(),
                "path": path,
                "description": operation.get("description") or operation.get("summary", ""),
                "parameters": [
                    (one["name"], one["in"], _kind(one["schema"])) for one in operation.get("parameters", ())
                ],
                "has_body": "requestBody" in operation,
                "body": _fields(_content(operation.get("requestBody", {})), schema),
                "answers": [
                    (status, answer.get("description", ""), _fields(_content(answer), schema))
                    for status, answer in operation.get("responses", {}).items()
                ],
            }


def _content(described: Mapping[str, Any]) -> Mapping[str, Any]:
    found: Mapping[str, Any] = described.get("content", {}).get("application/json", {}).get("schema", {})
    return found


def _fields(described: Mapping[str, Any], schema: Mapping[str, Any], inside: tuple[str, ...] = ()) -> list[_Field]:
    """The keys of an object; none of what is no object, or an object inside itself."""
    name = _reference(described)
    if name is None or name in inside:
        return []
    found = schema["components"]["schemas"][name]
    return [
        _Field(
            key=key,
            kind=_kind(value),
            optional=key not in found.get("required", ()),
            description=value.get("description"),
            example=json.dumps(value["examples"][0]) if value.get("examples") else None,
            fields=_fields(value, schema, (*inside, name)),
        )
        for key, value in found.get("properties", {}).items()
    ]


def _reference(described: Mapping[str, Any]) -> str | None:
    """The name of the object that a schema, or the entries of its list or mapping, are."""
    if "$ref" in described:
        return str(described["$ref"]).rpartition("/")[2]
    inner = described.get("items") or described.get("additionalProperties")
    if isinstance(inner, Mapping):
        return _reference(inner)
    options = [name for option in described.get("anyOf", ()) if (name := _reference(option))]
    return options[0] if options else None


def _kind(described: Mapping[str, Any]) -> str:
    if "$ref" in described:
        return "object"
    if "anyOf" in described:
        return " or ".join(dict.fromkeys(_kind(option) for option in described["anyOf"]))
    if described.get("type") == "array":
        return f"list of {_kind(described.get('items', {}))}"
    inner = described.get("additionalProperties")
    if isinstance(inner, Mapping):
        return f"object of {_kind(inner)}"
    return str(described.get("type", "anything"))
