from __future__ import annotations

import os
from pathlib import Path

import pytest

from openprompt_meta.files import atomic_writer, write_atomic


def test_content_is_written_and_nothing_else_is_left(tmp_path: Path) -> None:
    write_atomic(tmp_path / "a.txt", "ä\r\n")
    write_atomic(tmp_path / "b.bin", b"\x00\xff")
    assert (tmp_path / "a.txt").read_bytes() == "ä\r\n".encode()
    assert (tmp_path / "b.bin").read_bytes() == b"\x00\xff"
    assert sorted(os.listdir(tmp_path)) == ["a.txt", "b.bin"]


@pytest.mark.parametrize("failure", [RuntimeError, KeyboardInterrupt])
def test_a_failure_or_interrupt_keeps_the_old_file_and_leaves_no_other(
    tmp_path: Path, failure: type[BaseException]
) -> None:
    def fail() -> None:
        with atomic_writer(tmp_path / "a.txt") as file:
            file.write(b"half")
            raise failure

    write_atomic(tmp_path / "a.txt", "old")
    with pytest.raises(failure):
        fail()
    assert (tmp_path / "a.txt").read_text() == "old"
    assert os.listdir(tmp_path) == ["a.txt"]


def test_nothing_is_at_the_target_until_the_block_ends(tmp_path: Path) -> None:
    with atomic_writer(tmp_path / "a.txt") as file:
        file.write(b"x")
        file.flush()
        assert not (tmp_path / "a.txt").exists()
    assert (tmp_path / "a.txt").exists()


@pytest.mark.skipif(os.name != "posix", reason="permissions and links are POSIX matters")
def test_permissions_follow_the_umask_and_links_stay_links(tmp_path: Path) -> None:
    # Catches temporary files made by mkstemp, which nobody else may read.
    old = os.umask(0o022)
    try:
        write_atomic(tmp_path / "a.txt", "x")
    finally:
        os.umask(old)
    assert (tmp_path / "a.txt").stat().st_mode & 0o777 == 0o644
    (tmp_path / "link").symlink_to(tmp_path / "a.txt")
    write_atomic(tmp_path / "link", "y")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "a.txt").read_text() == "y"
