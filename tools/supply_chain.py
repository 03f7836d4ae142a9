"""The tested set of packages: checksums for each, and what is publicly known against them.

``python -m tools.supply_chain lock`` asks pip's default index for the files of each pin in :data:`LOCKS` and writes
their checksums beside it; ``… audit`` asks pip-audit. Pins are raised by hand, in the files.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit
from urllib.request import Request, urlopen

from packaging.requirements import Requirement
from packaging.utils import (
    InvalidSdistFilename,
    InvalidWheelFilename,
    canonicalize_name,
    parse_sdist_filename,
    parse_wheel_filename,
)
from packaging.version import InvalidVersion, Version

_FOLDER = Path(__file__).parents[1] / "requirements"
LOCK = _FOLDER / "lock.txt"
LOCKS = (LOCK, _FOLDER / "no-deps.txt", _FOLDER / "release.txt")
OLDEST = Version("3.10")
EXIT_FOUND, EXIT_NOT_ASKED = 1, 3

# -- checksums --------------------------------------------------------------------------------------------------------


class _Links(HTMLParser):
    """File names and sha256 of the links on a project's page."""

    def __init__(self) -> None:
        super().__init__()
        self.found: dict[str, str] = {}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Take note of a link."""
        address = urlsplit(dict(attrs).get("href") or "" if tag == "a" else "")
        kind, _, digest = address.fragment.partition("=")
        if kind == "sha256" and re.fullmatch(r"[0-9a-f]{64}", digest):
            self.found[unquote(address.path).rpartition("/")[2]] = digest


def page_of(name: str) -> str:
    """The page of a project in pip's default index."""
    from pip._internal.models.index import PyPI

    request = Request(f"{PyPI.simple_url}/{canonicalize_name(name)}/", headers={"Accept": "text/html"})  # noqa: S310
    with urlopen(request, timeout=60) as answer:  # noqa: S310 - pip's own address
        return str(answer.read().decode("utf-8"))


def checksums(page: str, version: Version) -> list[str]:
    """sha256 of what of a version could be installed: wheels for CPython, or the source where there are none."""
    links = _Links()
    links.feed(page)
    wheels, sources = [], []
    for file, digest in links.found.items():
        try:
            if file.endswith(".whl"):
                _, found, _, tags = parse_wheel_filename(file)
                if found == version and any(_is_usable(tag.interpreter, tag.abi) for tag in tags):
                    wheels.append(digest)
            elif parse_sdist_filename(file)[1] == version:
                sources.append(digest)
        except (InvalidWheelFilename, InvalidSdistFilename, InvalidVersion):
            continue
    return sorted(wheels or sources)


def _is_usable(interpreter: str, abi: str) -> bool:
    python = re.fullmatch(r"(cp|py)3(\d*)", interpreter)
    if python is None:
        return False
    minor = int(python[2] or 0)
    return python[1] == "py" or abi == "abi3" or minor >= OLDEST.minor


def locked(lines: Iterable[str], page: Callable[[str], str] = page_of) -> str:
    """The lock with the checksums of each pin made anew; comments and order stay.

    Raises:
        ValueError: a line is no pin, or the index has no file of it.
    """
    pins = [line for line in map(_without_checksums, lines) if line is not None]
    with ThreadPoolExecutor(8) as threads:
        return "".join(f"{line}\n" for line in threads.map(lambda pin: _with_checksums(pin, page), pins))


def _without_checksums(line: str) -> str | None:
    return None if line.lstrip().startswith("--hash=") else line.rstrip().removesuffix("\\").rstrip()


def _with_checksums(line: str, page: Callable[[str], str]) -> str:
    if not line or line.startswith("#"):
        return line
    requirement = Requirement(line.partition(" --")[0])  # options of pip's may follow
    (pin,) = requirement.specifier
    found = checksums(page(requirement.name), Version(pin.version)) if pin.operator == "==" else []
    if not found:
        raise ValueError(f"{line}: the index has no file of it. Pin a version that it has.")
    return " \\\n".join([line, *(f"    --hash=sha256:{digest}" for digest in found)])


# -- advisories -------------------------------------------------------------------------------------------------------


def audit(command: Sequence[str] = ("pip-audit",), lock: Path = LOCK) -> int:
    """Print what is known against the pins; 0 for nothing, 1 for something, 3 if nobody could be asked."""
    options = ["--disable-pip", "--no-deps", "--progress-spinner", "off", "--format", "json", "-r", str(lock)]
    try:
        done = subprocess.run([*command, *options], capture_output=True, text=True, check=False)  # noqa: S603
        packages = json.loads(done.stdout)["dependencies"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        reason = str(error) if isinstance(error, OSError) else (done.stderr.strip().splitlines() or ["no answer"])[-1]
        print(f"Nothing was audited: no source of advisories could be asked ({reason}).", file=sys.stderr)
        return EXIT_NOT_ASKED
    known = [(package, one) for package in packages for one in package.get("vulns", ())]
    for package, one in known:
        remedy = f"fixed in {', '.join(one['fix_versions'])}" if one.get("fix_versions") else "no fix yet"
        print(f"{package['name']} {package['version']}: {one['id']}, {remedy}")
    skipped = [package["name"] for package in packages if "skip_reason" in package]
    if len(skipped) == len(packages):
        print("Nothing was audited: the source knows none of the packages.", file=sys.stderr)
        return EXIT_NOT_ASKED
    print(
        f"{len(packages) - len(skipped)} packages audited, {len(known)} advisories."
        + (f" Not known to the source: {', '.join(skipped)}." if skipped else "")
    )
    return EXIT_FOUND if known else 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Do one of the two."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("lock", "audit"))
    options = parser.parse_args(arguments)
    if options.what == "audit":
        return audit((sys.executable, "-m", "pip_audit"))
    try:
        contents = [locked(file.read_text("utf-8").splitlines()) for file in LOCKS]
    except (OSError, ValueError) as error:
        print(f"The lock stays as it was: {error}", file=sys.stderr)
        return EXIT_NOT_ASKED
    for file, content in zip(LOCKS, contents, strict=True):
        file.write_text(content, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
