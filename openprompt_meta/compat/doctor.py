"""What ``openprompt-meta doctor`` reports: what is installed, bridged and missing, and how to fix it."""

from __future__ import annotations

import importlib
import importlib.util
import os
import platform
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from packaging.version import Version

from openprompt_meta.compat.bridge import bridge_tokenizer_wrapper, bridged_names
from openprompt_meta.compat.maml import load_maml
from openprompt_meta.compat.versions import (
    PYTHON,
    REQUIREMENTS,
    Requirement,
    installed_version,
)
from openprompt_meta.errors import CompatibilityError


@dataclass(frozen=True)
class Diagnosis:
    """One line of the report.

    Attributes:
        name: What was looked at.
        found: A version, a path or an outcome; ``None`` if there is nothing.
        supported: What would be right.
        ok: Whether it is.
        optional: Whether the package works without it; if so it does not spoil the report.
        remedy: The exact command that fixes it; empty if ``ok``.
        note: What it is needed for, or what went wrong.
    """

    name: str
    found: str | None
    supported: str
    ok: bool
    optional: bool
    remedy: str
    note: str


@dataclass(frozen=True)
class Report:
    """All findings, and the names that were bridged so that OpenPrompt could be imported."""

    findings: tuple[Diagnosis, ...]
    bridged: tuple[str, ...]

    @property
    def healthy(self) -> bool:
        """Whether everything that is not optional is right."""
        return all(finding.ok or finding.optional for finding in self.findings)

    @property
    def exit_code(self) -> int:
        """0 if healthy, else 1."""
        return 0 if self.healthy else 1

    def as_dict(self) -> dict[str, Any]:
        """The report for programs."""
        return {
            "healthy": self.healthy,
            "bridged": list(self.bridged),
            "findings": [asdict(finding) for finding in self.findings],
        }

    def as_text(self) -> str:
        """The report for people: a table, what was bridged, and what to do."""
        rows = [("", "name", "found", "supported")]
        rows += [(_mark(f), f.name, f.found or "missing", f.supported or "any") for f in self.findings]
        widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
        lines = [
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
        ]

        lines += ["", "Bridged for OpenPrompt in this process:"]
        lines += [f"  {name}" for name in self.bridged] or ["  nothing"]

        wrong = [finding for finding in self.findings if not finding.ok]
        if wrong:
            lines += ["", "To fix:"]
            for finding in wrong:
                lines += [f"  {finding.name}{' (optional)' if finding.optional else ''}: {finding.note}"]
                lines += [f"    {finding.remedy}"]
        lines += ["", "All is well." if self.healthy else "Not everything that is needed is in place."]
        return "\n".join(lines)


def examine() -> Report:
    """Look at this environment.

    Imports torch, transformers, OpenPrompt and learn2learn's MAML to see that they work.
    """
    findings = [_version_finding(PYTHON, Version(platform.python_version()))]
    findings += [_version_finding(r, installed_version(r.package)) for r in REQUIREMENTS.values()]
    by_name = {finding.name: finding for finding in findings}

    # An import can only succeed if its library is in place; with a version at fault, the cause has been named
    # above.
    needed = [r.package for r in REQUIREMENTS.values() if not r.optional and r.package != "learn2learn"]
    if all(by_name[package].ok for package in needed):
        findings.append(_trial("import openprompt", "openprompt", lambda: importlib.import_module("openprompt")))
    if by_name["torch"].ok and by_name["learn2learn"].ok:
        findings.append(_trial("learn2learn's MAML", "learn2learn", load_maml))
        findings.append(_trial("import learn2learn", "learn2learn", _import_learn2learn))
    findings.append(_compiler_finding(needed=by_name["learn2learn"].found is None))

    bridged = bridged_names()
    if "openprompt" in sys.modules:
        bridged += bridge_tokenizer_wrapper()
    return Report(tuple(findings), bridged)


# -- `doctor --fix`: the same commands, run ---------------------------------------------------------------------------


def repair_commands(report: Report) -> list[list[str]]:
    """The report's remedies that a package installer can carry out, for this very interpreter, in their order.

    Raises:
        CompatibilityError: something is to be installed, and there is neither pip in this interpreter nor uv.
    """
    installs = [finding.remedy for finding in report.findings if finding.remedy.startswith("pip install ")]
    if not installs:
        return []
    if importlib.util.find_spec("pip") is not None:
        installer = [sys.executable, "-m", "pip", "install"]
    elif uv := shutil.which("uv"):
        installer = [uv, "pip", "install", "--python", sys.executable]
    else:
        raise CompatibilityError(
            f"{sys.executable} has no pip, and there is no uv on the path. Install one of the two, e.g. with: "
            f"{sys.executable} -m ensurepip"
        )
    return [[*installer, *shlex.split(remedy)[2:]] for remedy in dict.fromkeys(installs)]


def repair(commands: Sequence[Sequence[str]]) -> int:
    """Run the commands one after the other, then the report in a new interpreter, whose exit code is returned.

    Raises:
        CompatibilityError: a command failed; those after it were not run.
    """
    for command in commands:
        print(f"$ {shlex.join(command)}", flush=True)
        if subprocess.run(command, check=False).returncode:  # noqa: S603 - shown and agreed to
            raise CompatibilityError(
                f"This command failed, and those after it were not run: {shlex.join(command)}. What it says above is "
                "what to fix; then: openprompt-meta doctor --fix"
            )
    return subprocess.run([sys.executable, "-m", "openprompt_meta", "doctor"], check=False).returncode


def _mark(finding: Diagnosis) -> str:
    if finding.ok:
        return "ok"
    return "-" if finding.optional else "NO"


def _version_finding(requirement: Requirement, version: Version | None) -> Diagnosis:
    ok = version is not None and requirement.accepts(version)
    return Diagnosis(
        name=requirement.package,
        found=None if version is None else str(version),
        supported=requirement.supported,
        ok=ok,
        optional=requirement.optional,
        remedy="" if ok else requirement.remedy,
        note=f"needed {requirement.purpose}",
    )


def _trial(name: str, package: str, attempt: Callable[[], object]) -> Diagnosis:
    try:
        found = attempt()
    except Exception as error:  # whatever it is, the report has to name it
        remedy = f"{REQUIREMENTS[package].remedy} --force-reinstall"
        if isinstance(error, ModuleNotFoundError) and error.name:
            remedy = f"pip install {error.name.partition('.')[0]}"
        return Diagnosis(name, "failed", "works", False, False, remedy, f"{type(error).__name__}: {error}")
    said = found if isinstance(found, str) else "works"
    return Diagnosis(name, said, "works", True, False, "", "tried just now")


def _import_learn2learn() -> str:
    """What can be used of learn2learn, after trying all of it."""
    for part in ("algorithms", "data", "nn", "optim"):
        importlib.import_module(f"learn2learn.{part}")
    lacking = []
    for part, library in (("gym", "gym"), ("vision", "torchvision")):
        if importlib.util.find_spec(library) is None:
            lacking.append(f"learn2learn.{part} needs {library}")
    return f"works; {', '.join(lacking)}" if lacking else "works"


def _compiler_finding(*, needed: bool) -> Diagnosis:
    names = (os.environ.get("CC", ""), "cc", "gcc", "clang", "cl")
    path = next((found for name in names if name and (found := shutil.which(name))), None)
    return Diagnosis(
        name="C compiler",
        found=path,
        supported="any",
        ok=path is not None,
        # Once learn2learn is built, the compiler has done its work.
        optional=not needed,
        remedy="" if path else "install a C compiler, e.g. apt-get install build-essential or xcode-select --install",
        note="needed to build learn2learn",
    )
