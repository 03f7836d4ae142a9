"""What several of these tests need: fresh interpreters, and versions that are not installed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from packaging.version import Version

from openprompt_meta.compat import versions

ROOT = Path(__file__).resolve().parents[2]


def run_python(code: str) -> str:
    """What ``code`` prints in a fresh interpreter; its error is the test's error."""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def pretend(package: str, version: str | None) -> Callable[[str], Version | None]:
    """A version lookup that finds ``version`` (``None``: nothing) for ``package`` and tells the truth otherwise."""
    real = versions.installed_version
    fake = None if version is None else Version(version)
    return lambda asked: fake if asked == package else real(asked)
