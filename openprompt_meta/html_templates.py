"""HTML from Jinja templates that are part of the package; what is put into them is escaped."""

from __future__ import annotations

from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined


def render_html(package: str, template: str, **values: Any) -> str:
    """The page that the file ``template`` of ``package`` gives with ``values``. A name it is not given is an error."""
    templates = Environment(
        loader=PackageLoader(package, ""),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    return templates.get_template(template).render(values)
