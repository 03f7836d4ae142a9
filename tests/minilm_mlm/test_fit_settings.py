"""The YAML of the fit is checked as a whole."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from openprompt_meta.errors import ConfigError
from tools.minilm_mlm.settings import load_settings

ROOT = Path(__file__).resolve().parents[2]
SHIPPED = ROOT / "tools/minilm_mlm/minilm.yaml"


def test_the_yaml_that_ships_is_read_and_can_be_changed() -> None:
    settings = load_settings(SHIPPED, ["rank=8", "lengths=[64]"])
    assert (settings.rank, settings.lengths, settings.precision) == (8, [64], "bfloat16")


def test_every_problem_is_named(tmp_path: Path) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text("rnak: 8\nsteps: many\nlengths: [4]\n", encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        load_settings(path, [])
    for part in ("3 problems", "rnak: unknown key. Did you mean 'rank'?", "steps: ", "lengths: got 4"):
        assert part in str(caught.value)


def test_the_runner_ends_bad_settings_with_a_sentence() -> None:
    command = [sys.executable, "-m", "tools.minilm_mlm", str(SHIPPED), "rnak=8"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 2
    assert "rnak: unknown key" in done.stderr
    assert "Traceback" not in done.stderr
