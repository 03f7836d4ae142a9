"""What the fuzzing shares: how many cases, how bytes are mangled, and what reading a file must never do.

``OPENPROMPT_META_FUZZ=20000`` asks for that many cases of each test, other ones every time.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

__all__ = ["CASES", "fuzzed", "junk", "mangled", "only_reading", "tree"]

CASES = int(os.environ.get("OPENPROMPT_META_FUZZ", "0"))
_LONGEST = 20.0  # seconds a case may take on a busy machine before it counts as a hang
_FORBIDDEN = ("os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.link", "os.symlink", "os.truncate", "os.chmod")
_FORBIDDEN += ("os.system", "os.exec", "os.fork", "os.posix_spawn", "subprocess.Popen", "socket.connect", "shutil.")

PIECES = [
    b"\t",
    b"\n",
    b"\r",
    b"  ",
    b": ",
    b":",
    b"[",
    b"]",
    b"{",
    b"}",
    b"&d ",
    b"*d",
    b"!!",
    b"!!python/name:os ",
    b"<<",
]
PIECES += [b"'", b'"', b"|", b">", b"%", b"---\n", b"\xff", b"\x00", b"\xef\xbb\xbf", b"null", b"-1", b".nan", b"NaN"]
PIECES += [
    b"? ",
    b"- ",
    b"#",
    b"~",
    b"1e999",
    b"9" * 5000,
    b"0x" + b"f" * 5000,
    b"\xc2\x85",
    b"\xe2\x80\xa8",
    b"=",
    b"yes",
]
PIECES += [
    b",",
    b"\\",
    b"\\ud800",
    b"\\u0000",
    b"../",
    b"/etc/passwd",
    b"version: 2\n",
    b"inherit: ",
    b"preset: ",
    b"[" * 2000,
]
PIECES += [b"{" * 2000, b"true", b"0", b'""', b"text", b"label", b"train", b"\xed\xa0\x80", b"1:" * 300 + b"1"]


def fuzzed(cases: int) -> Any:
    """As many cases as asked for, the same ones every time, unless the environment says otherwise."""
    return settings(
        max_examples=CASES or cases,
        derandomize=not CASES,
        deadline=None,
        database=None,
        print_blob=True,
        suppress_health_check=list(HealthCheck),
    )


@st.composite
def mangled(draw: st.DrawFn, content: bytes) -> bytes:
    """``content`` with a few places cut, doubled, flipped or overwritten."""
    result = bytearray(content)
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(result)))
        end = min(len(result), start + draw(st.sampled_from([0, 0, 1, 2, 4, 30, 1000])))
        kind = draw(st.sampled_from(["piece", "piece", "bytes", "flip", "cut", "double", "truncate"]))
        if kind == "piece":
            result[start:end] = draw(st.sampled_from(PIECES))
        elif kind == "bytes":
            result[start:end] = draw(st.binary(max_size=8))
        elif kind == "flip" and start < len(result):
            result[start] ^= 1 << draw(st.integers(0, 7))
        elif kind == "cut":
            del result[start:end]
        elif kind == "double":
            result[start:start] = result[start:end] * draw(st.integers(1, 3))
        elif kind == "truncate":
            del result[start:]
    return bytes(result)


def junk() -> st.SearchStrategy[Any]:
    """Values that JSON can say, of every kind."""
    odd_texts = [
        "",
        " ",
        "null",
        "../..",
        "/",
        "a\nb",
        "\x85",
        "{",
        '{"mask"}',
        "1e-3",
        "demo",
        "minilm",
        "\ud800",
        "\0",
        "é" * 300,
    ]
    scalars = (
        st.none()
        | st.booleans()
        | st.integers()
        | st.sampled_from([0, -1, 1, 2**31, 2**63, 10**400, 1e308, -0.0, float("nan"), float("inf"), 1e-320])
        | st.floats()
        | st.sampled_from(odd_texts)
        | st.text(max_size=8)
    )
    return st.recursive(
        scalars,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
        max_leaves=5,
    )


_events: list[str] | None = None


def _watch(event: str, arguments: tuple[Any, ...]) -> None:
    if _events is None:
        return
    if event == "open":
        flags = arguments[2]
        if isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            _events.append(f"{event} {arguments[0]!r}")
    elif event.startswith(_FORBIDDEN):
        _events.append(f"{event} {arguments!r:.200}")


sys.addaudithook(_watch)


@contextlib.contextmanager
def only_reading() -> Iterator[None]:
    """Inside the block, nothing is written, removed, started or connected to, and it does not take for ever."""
    global _events

    def hang(number: int, frame: object) -> None:
        raise AssertionError(f"not done after {_LONGEST:.0f} seconds")

    before = signal.signal(signal.SIGALRM, hang)
    signal.setitimer(signal.ITIMER_REAL, _LONGEST)
    _events = []
    try:
        yield
    finally:
        seen, _events = _events, None
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert not seen, seen


def tree(folder: Path) -> list[str]:
    """Every name below ``folder``."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))
