"""Run the prompt and meta-learning tests on the oldest supported, the locked and the newest transformers.

Each version gets an environment of its own in ``.venvs``. To save time and disk it holds only transformers
and what that version pins otherwise (tokenizers, huggingface_hub, ...); everything else, torch above all, is
seen through to ``.venv``, whose folder comes later on the path. The locked version is ``.venv`` itself.

    python runners/run_compat.py                    # all three
    python runners/run_compat.py --only newest      # the short form
    python runners/run_compat.py --write            # and put the table into docs/compatibility.md
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
import json
import re
import subprocess
import sys
import sysconfig
import tempfile
import venv
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parent.parent
REQUIREMENTS = ROOT / "requirements"
ENVIRONMENTS = ROOT / ".venvs"
PAGE = ROOT / "docs" / "compatibility.md"
ROLES = ("oldest", "locked", "newest")
MARKED = "prompts or meta"
SHOWN = ("transformers", "tokenizers", "huggingface_hub", "torch", "numpy")
TABLE = re.compile(r"(?<=<!-- table: make compat -->\n).*?(?=<!-- end of table -->)", re.DOTALL)


@dataclass(frozen=True)
class Result:
    """What came of the tests in one environment; ``counts`` has ``passed``, ``failed`` and ``skipped``."""

    role: str
    versions: dict[str, str]
    counts: dict[str, int]
    ok: bool


def main() -> int:
    """Run what was asked for, print the table, and return 1 if any environment failed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", choices=ROLES, action="append", help="run this one; may be given again")
    parser.add_argument("--newest", metavar="VERSION", help="another newest transformers than the pinned one")
    parser.add_argument("--write", action="store_true", help=f"write the table to {PAGE.relative_to(ROOT)}")
    options = parser.parse_args()

    results = []
    for role in options.only or ROLES:
        print(f"== {role}", flush=True)
        python = environment(role, options.newest)
        results.append(run_tests(role, python))

    text = table(results)
    print(f"\n{text}")
    if options.write:
        PAGE.write_text(TABLE.sub(lambda _: text, PAGE.read_text("utf-8"), count=1), "utf-8")
    return 0 if all(result.ok for result in results) else 1


def environment(role: str, newest: str | None) -> str:
    """The Python of the environment for ``role``, made or brought up to date if need be."""
    if role == "locked":
        return sys.executable
    wanted = requirements_for(role, newest)
    version = next(requirement.specifier for requirement in wanted if requirement.name == "transformers")
    folder = ENVIRONMENTS / f"compat-{str(version).removeprefix('==')}"
    lines = [str(requirement) for requirement in wanted]
    below = sysconfig.get_paths()["purelib"]
    stamp = folder / ".installed"
    lock = (REQUIREMENTS / "lock.txt").read_text("utf-8")
    state = hashlib.sha256("\n".join([sys.version, below, lock, *lines]).encode()).hexdigest()
    python = str(folder / "bin" / "python")
    if not stamp.exists() or stamp.read_text() != state:
        venv.create(folder, clear=True, symlinks=True)
        own = Path(sysconfig.get_path("purelib", vars={"base": str(folder)}))
        # addsitedir, unlike a bare path, also follows the .pth files there, by which this package is installed.
        (own / "below.pth").write_text(f"import site; site.addsitedir({below!r})\n")
        execute([python, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-warn-conflicts", *lines])
        stamp.write_text(state)
    return python


def requirements_for(role: str, newest: str | None) -> list[Requirement]:
    """What goes on top of the lock for ``role``."""
    if role == "newest" and newest:
        # Nothing else is pinned for a version that nobody has tried; datasets keeps pip from a
        # huggingface_hub that it cannot use.
        return [Requirement(f"transformers=={newest}"), *(r for r in read("lock.txt") if r.name == "datasets")]
    return read(f"transformers-{role}.txt")


def read(name: str) -> list[Requirement]:
    """The lines of a file in ``requirements/`` that hold for this Python."""
    lines = (line.partition("#")[0].strip(" \\") for line in (REQUIREMENTS / name).read_text("utf-8").splitlines())
    requirements = [Requirement(line) for line in lines if line and not line.startswith("--hash=")]
    return [r for r in requirements if r.marker is None or r.marker.evaluate()]


def run_tests(role: str, python: str) -> Result:
    """Run the marked tests with ``python``."""
    ask = (
        "import importlib.metadata, json, platform, sys\n"
        "versions = {name: importlib.metadata.version(name) for name in sys.argv[1:]}\n"
        "print(json.dumps({'python': platform.python_version(), **versions}))"
    )
    versions: dict[str, str] = json.loads(execute([python, "-c", ask, *SHOWN], capture=True))
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [
            python,
            "-m",
            "pytest",
            "-n",
            "auto",
            "-m",
            MARKED,
            "-p",
            "no:cacheprovider",
            f"--junitxml={report}",
        ]
        code = subprocess.run(command, cwd=ROOT, check=False).returncode  # noqa: S603
        counts = count(report) if report.exists() else {"passed": 0, "failed": 0, "skipped": 0}
    # Without this check an environment in which every test is skipped would count as a success.
    return Result(role, versions, counts, ok=code == 0 and counts["passed"] > 0)


def count(report: Path) -> dict[str, int]:
    """Passed, failed and skipped tests in pytest's XML report, which we have just made ourselves."""
    total = {"tests": 0, "failures": 0, "errors": 0, "skipped": 0}
    for suite in ElementTree.parse(report).getroot().iter("testsuite"):  # noqa: S314
        for key in total:
            total[key] += int(suite.get(key, "0"))
    failed = total["failures"] + total["errors"]
    return {"passed": total["tests"] - failed - total["skipped"], "failed": failed, "skipped": total["skipped"]}


def table(results: Sequence[Result]) -> str:
    """The results in Markdown, with the date."""
    names = ("python", *SHOWN)
    outcomes = ("passed", "failed", "skipped")
    lines = [
        f"Run on {datetime.date.today().isoformat()}.",
        "",
        "| | " + " | ".join((*names, *outcomes)) + " | |",
        "|---" * (len(names) + len(outcomes) + 2) + "|",
    ]
    for result in results:
        cells = [result.role, *(result.versions[name].partition("+")[0] for name in names)]
        cells += [str(result.counts[outcome]) for outcome in outcomes]
        lines.append("| " + " | ".join([*cells, "works" if result.ok else "**fails**"]) + " |")
    return "\n".join(lines) + "\n"


def execute(command: Sequence[str], *, capture: bool = False) -> str:
    """Run ``command`` and return what it printed, if captured; stop with its own message if it fails."""
    done = subprocess.run(  # noqa: S603
        command, cwd=ROOT, check=False, text=True, stdout=subprocess.PIPE if capture else None
    )
    if done.returncode != 0:
        raise SystemExit(f"run_compat: {' '.join(command[:4])} ... failed with exit code {done.returncode}")
    return done.stdout or ""


if __name__ == "__main__":
    sys.exit(main())
