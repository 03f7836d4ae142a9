"""Hook of the site: links that leave it, and docstrings that name what they speak of as Sphinx would have it.

Pages link to files of the checkout, which a reader of the repository can follow; on the site such a link becomes the
file's name. A link to nothing stays, and the build refuses it.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
_LINK = re.compile(r"(?<!!)\[([^\]]+)\]\((?!https?:|#|mailto:)([^)#\s]+)(#[^)\s]*)?\)")
_ROLE = re.compile(r":(?:class|func|meth|attr|data|mod):<code>(~?)([\w.]+)</code>")
# Files of the top level that the site shows as a page.
_PAGES = {"README.md": "index.md", "CHANGELOG.md": "changelog.md", "CONTRIBUTING.md": "how-to/own-verbalizer.md"}


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Rewrite the links of a page that leave ``docs/``."""
    folder = posixpath.dirname(page.file.src_uri)

    def rewritten(found: re.Match[str]) -> str:
        text, target, anchor = found[1], found[2], found[3] or ""
        path = posixpath.normpath(posixpath.join("docs", folder, target))
        if path.startswith("docs/") and path.endswith((".md", ".png", ".svg")):
            return found[0]
        if path in _PAGES:
            return f"[{text}]({posixpath.relpath(_PAGES[path], folder or '.')}{anchor})"
        if not (ROOT / path).exists():
            return found[0]
        return f"`{path}`" if text.strip("`") == path else f"{text} (`{path}`)"

    return _LINK.sub(rewritten, markdown)


def on_page_content(html: str, **_: Any) -> str:
    """Show ``:class:`~a.b.C``` as ``C``."""
    return _ROLE.sub(lambda found: f"<code>{found[2].rpartition('.')[2] if found[1] else found[2]}</code>", html)
