"""The lock has a checksum for all it pins, and the audit says what it could not ask."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

from tests.helpers.interpreters import ROOT
from tools.supply_chain import LOCK, LOCKS, audit, checksums, locked

PAGE = """<html><body>
<a href="../x/thing-1.0-cp311-cp311-win_amd64.whl#sha256={a}">one</a>
<a href="../x/thing-1.0-cp39-cp39-win_amd64.whl#sha256={b}">too old</a>
<a href="../x/thing-1.0-pp310-pypy310_pp73-win_amd64.whl#sha256={b}">another Python</a>
<a href="../x/thing-1.0-cp38-abi3-win_amd64.whl#sha256={c}">of any later version</a>
<a href="../x/thing-1.0.tar.gz#sha256={d}">the source</a>
<a href="../x/thing-1.1-py3-none-any.whl#sha256={b}">another version</a>
<a href="../x/thing-1.0-py3-none-any.whl#md5=12">no checksum that counts</a>
<a href="../x/nonsense.whl#sha256={b}">nonsense</a>
</body></html>""".format(**{letter: letter * 64 for letter in "abcd"})


THING, KNOWN = '"name": "thing", "version": "1.0"', '{"id": "X-1", "fix_versions": ["1.1"]}'


@pytest.mark.parametrize("file", LOCKS, ids=lambda file: file.stem)
def test_every_pin_of_a_lock_has_checksums(file: Path) -> None:
    pins = re.split(r"\n(?=[\w#])", file.read_text("utf-8").strip())
    for pin in pins:
        if not pin.startswith("#"):
            assert re.fullmatch(r"[\w.-]+==[^\\\n]+( \\\n    --hash=sha256:[0-9a-f]{64})+", pin), pin[:200]


def test_pip_takes_what_is_installed_for_what_is_pinned() -> None:
    torch = (ROOT / "requirements" / "torch.txt").read_text("utf-8")
    assert re.search(r"^torch==", torch, re.M)
    command = [sys.executable, "-m", "pip", "install", "--dry-run", "--no-deps", "--no-index", "--require-hashes"]
    files = [option for file in (LOCK, ROOT / "requirements" / "no-deps.txt") for option in ("-r", str(file))]
    done = subprocess.run([*command, *files], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr  # what is installed is as pinned, and every line can be read


def test_checksums_are_those_of_what_could_be_installed() -> None:
    assert checksums(PAGE, Version("1.0")) == ["a" * 64, "c" * 64]
    only_source = re.sub(r"<a [^>]*whl#[^>]*>", "", PAGE)
    assert checksums(only_source, Version("1.0")) == ["d" * 64]


def test_the_lock_is_made_anew_with_its_comments_order_and_markers() -> None:
    old = ["# why", 'thing==1.0 ; python_version >= "3.11" \\', "    --hash=sha256:old", 'other==1.1 --config="x"', ""]
    expected = (
        f'# why\nthing==1.0 ; python_version >= "3.11" \\\n    --hash=sha256:{"a" * 64} \\\n'
        f"    --hash=sha256:{'c' * 64}\n"
        f'other==1.1 --config="x" \\\n    --hash=sha256:{"b" * 64}\n\n'
    )
    made = locked(old, lambda name: PAGE)
    assert made == expected
    assert locked(made.splitlines(), lambda name: PAGE) == expected


@pytest.mark.parametrize("line", ["thing==9.9", "thing>=1.0"])
def test_a_pin_that_the_index_has_not_stops_it(line: str) -> None:
    with pytest.raises(ValueError, match="Pin a version that it has"):
        locked([line], lambda name: PAGE)


@pytest.mark.parametrize(
    ("prints", "code", "said"),
    [
        (f'{{"dependencies": [{{{THING}, "vulns": []}}]}}', 0, "1 packages audited, 0 advisories"),
        (f'{{"dependencies": [{{{THING}, "vulns": [{KNOWN}]}}]}}', 1, "thing 1.0: X-1, fixed in 1.1"),
        (f'{{"dependencies": [{{{THING}, "skip_reason": "not found"}}]}}', 3, "the source knows none of the packages"),
        ("", 3, "Nothing was audited: no source of advisories could be asked"),
        ("[]", 3, "Nothing was audited"),
    ],
)
def test_the_audit_says_what_is_known_or_that_nobody_could_be_asked(
    prints: str, code: int, said: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    program = f"print({prints!r})"
    assert audit((sys.executable, "-c", program)) == code
    assert said in "".join(capfd.readouterr())


def test_without_the_program_the_audit_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert audit(("no-such-program",)) == 3
    assert "no-such-program" in capsys.readouterr().err


def test_the_matrix_reads_the_lock_with_its_checksums() -> None:
    lines = [line for line in LOCK.read_text("utf-8").splitlines() if re.match(r"\w", line)]
    assert all(Requirement(line.rstrip(" \\")) for line in lines)
