"""Progress where a person sees it, and where a file takes it down."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path

import openprompt_meta.progress as progress

PACKAGE = Path(progress.__file__).parent
SCRIPT = """
import sys
import openprompt_meta.progress as progress
progress.SECONDS_A_LINE = float(sys.argv[1])
with progress.progress_bar(range(20), title="outer", unit="task") as bar:
    for number in bar:
        with progress.progress_bar(total=3, title="inner", unit="step", leave=False) as inner:
            inner.update(3)
        bar.set_postfix(best=number)
        progress.write_above(f"said {number}")
"""


def errors_of(seconds: float) -> str:
    done = subprocess.run([sys.executable, "-c", SCRIPT, str(seconds)], capture_output=True, text=True, check=True)
    return done.stderr


def test_in_a_file_progress_is_whole_lines_without_control_characters() -> None:
    written = errors_of(0.0)
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f]", written)
    lines = written.splitlines()
    assert "outer: 20/20 task [00:00, best=19]" in lines
    assert "inner: 3/3 step [00:00]" in lines
    assert [line for line in lines if line.startswith("said")] == [f"said {number}" for number in range(20)]
    assert all(re.fullmatch(r"said \d+|(outer|inner): \d+/\d+ \w+ \[00:00.*\]", line) for line in lines)


def test_in_a_file_what_is_done_soon_is_not_mentioned() -> None:
    assert errors_of(30.0).splitlines() == [f"said {number}" for number in range(20)]


def test_on_a_terminal_a_bar_moves_in_place() -> None:
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    subprocess.run([sys.executable, "-c", SCRIPT, "30"], stderr=follower, check=True)
    os.close(follower)
    shown = b""
    try:
        while part := os.read(leader, 65536):
            shown += part
    except OSError:  # the end of a terminal
        pass
    assert b"\router: 100%|" in shown


def test_all_progress_goes_through_one_place() -> None:
    users = [file for file in PACKAGE.rglob("*.py") if re.search(r"^\s*(import|from) tqdm", file.read_text(), re.M)]
    assert users == [PACKAGE / "progress.py"]
