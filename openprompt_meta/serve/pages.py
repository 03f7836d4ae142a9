"""What a browser is shown: the page, read once from the package, and documentation made from the OpenAPI schema."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from html import escape
from importlib import resources
from typing import Any, NamedTuple

__all__ = ["PageFile", "documentation", "page_files"]

_KINDS = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
# The whole list: nothing else of the package can be asked for.
_ADDRESSES = {"/": "index.html", "/page.css": "page.css", "/page.js": "page.js", "/icon.svg": "icon.svg"}


class PageFile(NamedTuple):
    """A file of the page."""

    content: bytes
    media_type: str


def page_files() -> dict[str, PageFile]:
    """The files of the page by their address."""
    folder = resources.files("openprompt_meta.serve") / "page"
    return {
        address: PageFile((folder / name).read_bytes(), f"{_KINDS[name.rpartition('.')[2]]}; charset=utf-8")
        for address, name in _ADDRESSES.items()
    }


def documentation(schema: Mapping[str, Any]) -> str:
    """The OpenAPI schema as a page that needs nothing from elsewhere."""
    title = escape(schema["info"]["title"])
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<title>{title}: documentation</title>\n<link rel="icon" href="/icon.svg">\n'
        '<link rel="stylesheet" href="/page.css">\n</head>\n<body>\n<header>\n'
        f"<h1>{title}</h1>\n<p>{escape(schema['info'].get('description', ''))}</p>\n"
        '<p><a href="/">The page</a> · <a href="/openapi.json">The schema as JSON</a></p>\n</header>\n'
        f'<main class="documentation">\n{"".join(_operations(schema))}</main>\n</body>\n</html>\n'
    )


def _operations(schema: Mapping[str, Any]) -> Iterator[str]:
    for path, methods in schema["paths"].items():
        for method, operation in methods.items():
            yield f"<section>\n<h2><code>{method.upper()} {escape(path)}</code></h2>\n"
            yield f"<p>{escape(operation.get('description') or operation.get('summary', ''))}</p>\n"
            for parameter in operation.get("parameters", ()):
                where = escape(parameter["in"])
                yield f"<p><code>{escape(parameter['name'])}</code> ({where}): {_kind(parameter['schema'])}</p>\n"
            body = operation.get("requestBody")
            if body:
                yield f"<h3>Body</h3>\n{_fields(_content(body), schema)}"
            for status, answer in operation.get("responses", {}).items():
                yield f"<h3>{escape(status)}: {escape(answer.get('description', ''))}</h3>\n"
                if _content(answer):
                    yield _fields(_content(answer), schema)
            yield "</section>\n"


def _content(described: Mapping[str, Any]) -> Mapping[str, Any]:
    found: Mapping[str, Any] = described.get("content", {}).get("application/json", {}).get("schema", {})
    return found


def _fields(described: Mapping[str, Any], schema: Mapping[str, Any], inside: tuple[str, ...] = ()) -> str:
    """A list of an object's keys; objects inside it are lists inside the list."""
    name = _reference(described)
    if name is None or name in inside:
        return ""
    found = schema["components"]["schemas"][name]
    needed = found.get("required", ())
    items = []
    for key, value in found.get("properties", {}).items():
        optional = "" if key in needed else ", optional"
        text = f" – {escape(value['description'])}" if "description" in value else ""
        example = f"; e.g. <code>{escape(json.dumps(value['examples'][0]))}</code>" if value.get("examples") else ""
        within = _fields(value, schema, (*inside, name))
        items.append(f"<li><code>{escape(key)}</code>: {_kind(value)}{optional}{text}{example}{within}</li>\n")
    return f"<ul>\n{''.join(items)}</ul>\n" if items else ""


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
    return escape(str(described.get("type", "anything")))
