"""Which form of configuration a file is written in, so that an old package does not misread a new file.

A file without a ``version`` is of the present form: people write such files. A run's own ``config.yaml`` has one, but
for those of the first release, whose one difference is brought up to date here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from openprompt_meta.config.values import show
from openprompt_meta.errors import ConfigError

__all__ = ["FORMAT_VERSION", "KEY", "brought_up_to_date", "check_version"]

KEY = "version"
FORMAT_VERSION = 1
"""Raised when a file of the new form would be misread by a package that knows the old one only."""


def check_version(content: Mapping[str, Any], where: str) -> None:
    """:class:`ConfigError` if ``content`` names a version that is not known here; ``where`` is for the message."""
    version = content.get(KEY, FORMAT_VERSION)
    if type(version) is not int or version < 1:
        raise ConfigError(f"{where}: version is {show(version)}, expected {FORMAT_VERSION}.")
    if version > FORMAT_VERSION:
        raise ConfigError(
            f"{where}: the configuration is of version {show(version)}; this openprompt_meta reads versions up to "
            f"{FORMAT_VERSION}. It was written by a newer one: update openprompt_meta, or run it with that."
        )


def brought_up_to_date(content: Mapping[str, Any]) -> dict[str, Any]:
    """``content`` with ``meta.method``, as it was in the first release, moved to the top, where it is now."""
    result = dict(content)
    meta = content.get("meta")
    if isinstance(meta, dict) and "method" in meta and "method" not in content and KEY not in content:
        result["method"] = meta["method"]
        result["meta"] = {name: value for name, value in meta.items() if name != "method"}
    return result
