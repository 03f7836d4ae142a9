"""The parser of template texts, without the torch that its package brings along.

``openprompt_meta.prompts`` imports torch, and a configuration is to be checked before that; the parser itself needs
neither torch nor the package, so it is loaded from its file.
"""

from __future__ import annotations

import importlib.util
import sys
from functools import cache
from pathlib import Path
from types import ModuleType

from openprompt_meta.errors import TemplateError

__all__ = ["template_problem"]

_NAME = "openprompt_meta.prompts.template_text"


def template_problem(text: str) -> str | None:
    """What is wrong with a template text, or ``None``."""
    parser = sys.modules.get(_NAME) or _load_parser()
    try:
        parser.check_pieces(parser.parse_template_text(text))
    except TemplateError as error:
        return str(error)
    return None


@cache
def _load_parser() -> ModuleType:
    file = Path(__file__).parents[1] / "prompts" / "template_text.py"
    spec = importlib.util.spec_from_file_location(f"{__package__}._template_text", file)
    if spec is None or spec.loader is None:  # pragma: no cover - the file ships with this one
        raise ImportError(f"{file} cannot be loaded")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
