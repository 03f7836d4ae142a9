"""The YAMLs that ship, found by name from any folder: ``hwu64/5shot-minilm`` is ``yamls/hwu64/5shot-minilm.yaml``."""

from __future__ import annotations

import difflib
import os
from functools import cache
from pathlib import Path

from openprompt_meta.errors import ConfigError

__all__ = ["find_yaml", "shipped_yamls"]

_SUFFIX = ".yaml"
_OPENPROMPTS_OWN = "openprompt"  # YAMLs of OpenPrompt's form, for runners/run_openprompt.py
_PACKAGE = Path(__file__).parents[1]


def find_yaml(given: str | os.PathLike[str], beside: str | os.PathLike[str] = "") -> Path:
    """The YAML that ``given`` means: a file if there is one at this path, else what ships under this name.

    Args:
        given: a path, or a name such as ``hwu64/5shot-minilm``, with or without ``.yaml``.
        beside: the folder that a relative path starts from; the working directory by default.

    Returns:
        A path. If neither is there and ``given`` ends as a YAML does, it is the path as given, whose reading fails.

    Raises:
        ConfigError: for a name without a suffix that is neither, with the nearest ones that ship.
    """
    path = Path(beside) / given
    if os.path.isfile(path):
        return path
    name = Path(given).as_posix()
    shipped = shipped_yamls()
    found = shipped.get(name.removesuffix(_SUFFIX))
    if found is not None:
        return found
    if os.path.exists(path) or path.suffix or "\0" in name:
        return path
    near = " or ".join(map(repr, difflib.get_close_matches(name, shipped, n=3)))
    raise ConfigError(
        f"There is no file {path}, and no YAML called {name!r} ships.{f' Did you mean {near}?' if near else ''} "
        "`openprompt-meta yamls` lists those that do."
    )


@cache
def shipped_yamls() -> dict[str, Path]:
    """The file of every YAML that ships, by name, in the order of the names."""
    folder = _folder()
    files = {file.relative_to(folder).with_suffix("").as_posix(): file for file in folder.rglob(f"*{_SUFFIX}")}
    return {name: files[name] for name in sorted(files) if not name.startswith(f"{_OPENPROMPTS_OWN}/")}


def _folder() -> Path:
    """Inside the package when it was installed from a wheel, beside it in a checkout."""
    inside = _PACKAGE / "yamls"
    return inside if inside.is_dir() else _PACKAGE.parent / "yamls"
