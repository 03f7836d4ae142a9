"""What of a run's log is shown."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from openprompt_meta.runs.process import log_file, log_to_screen


def test_what_is_below_the_asked_level_goes_to_the_file_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    logger = logging.getLogger("openprompt_meta.somewhere")
    with log_to_screen(logging.WARNING), log_file(tmp_path / "log.txt"):
        logger.info("half way")
        logger.warning("no disk left")
    assert capsys.readouterr().err == "no disk left\n"
    written = (tmp_path / "log.txt").read_text(encoding="utf-8")
    assert "half way" in written
    assert "no disk left" in written
