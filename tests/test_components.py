"""Another package adds components by entry points alone, as CONTRIBUTING.md says; a broken one harms nothing else."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
_UNUSABLE = """
[openprompt_meta.readers]
absent = loud.no_such_module:READER
usurper = usurper:READER
"""


def _walk_through() -> dict[str, str]:
    """The files of CONTRIBUTING.md's package by the last name in backquotes before each."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    return dict(re.findall(r"`([\w/.]+)`:\n\n```\w+\n(.*?)```", text, re.DOTALL))


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """A folder on the import path with the package and what pip writes beside one."""
    files = _walk_through()
    assert files.keys() == {"loud/declarations.py", "loud/code.py", "pyproject.toml"}
    entry_points = files.pop("pyproject.toml").replace('project.entry-points."', "").replace('"', "")
    files |= {
        "loud/__init__.py": "",
        "loud-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: loud\nVersion: 1.0\n",
        "loud-1.0.dist-info/entry_points.txt": entry_points,
    }
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content, encoding="utf-8")
    return tmp_path


def _run_with(folder: Path, code: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run ``code`` in a fresh interpreter that finds the package in ``folder`` installed."""
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done


def test_its_keys_are_checked_and_written_as_ours_without_torch(installed: Path) -> None:
    code = """
import json, sys
from openprompt_meta.config.validation import config_from_mapping
from openprompt_meta.config.writing import to_mapping
from openprompt_meta.errors import ConfigError

given = {"verbalizer": "loud_verbalizer", "loud_verbalizer": {"loudness": 3.0}, "dataset": {"format": "loud"}}
config = config_from_mapping(given)
try:
    config_from_mapping({**given, "loud_verbalizer": {"loudnes": -1}})
except ConfigError as error:
    refused = str(error)
print(json.dumps([to_mapping(config)["loud_verbalizer"], refused, "torch" in sys.modules]))
"""
    section, refused, torch_imported = json.loads(_run_with(installed, code).stdout)
    assert section == {"loudness": 3.0}
    assert "loud_verbalizer.loudness" in refused
    assert not torch_imported


def test_a_run_learns_with_its_verbalizer_from_what_its_reader_reads(
    installed: Path, tiny_mlm_folder: Callable[[str], Path]
) -> None:
    data = installed / "texts.loud"
    topics = ("weather", "sport", "food", "travel", "music", "money")
    data.write_text("".join(f"{name}! tell me about {name} {i}\n" for name in topics for i in range(4)), "utf-8")
    code = """
import sys
from pathlib import Path
from openprompt.prompts import VERBALIZER_CLASS
from openprompt_meta.config.validation import config_from_mapping
from openprompt_meta.runs.run import Run

model, data, folder = sys.argv[1:]
config = config_from_mapping({
    "plm": {"model_path": model},
    "dataset": {"name": "loud", "path": data, "format": "loud", "splits": "random", "split_counts": [2, 2, 2]},
    "verbalizer": "loud_verbalizer",
    "prompt_pool_template": {"num_prompts": 2, "prompt_length": 2},
    "meta": {"way": 2, "shot": 1, "query": 2, "iterations": 1, "validate_every": 1, "valid_tasks": 1, "test_tasks": 1},
})
assert Run(config, Path(folder), show_progress=False).train() is not None
print(VERBALIZER_CLASS["loud_verbalizer"].__module__)
"""
    arguments = (tiny_mlm_folder("bert"), data, installed / "run")
    done = _run_with(installed, f"import openprompt_meta\n{code}", *arguments)
    assert done.stdout.split()[-1] == "loud.code"
    assert "loudness: 2.0" in (installed / "run" / "config.yaml").read_text("utf-8")


def test_what_cannot_be_used_is_left_out_with_a_warning(installed: Path) -> None:
    usurper = (installed / "loud/declarations.py").read_text("utf-8").replace('name="loud"', 'name="table"')
    (installed / "usurper.py").write_text(usurper, "utf-8")
    (installed / "loud-1.0.dist-info/entry_points.txt").write_text(_UNUSABLE, encoding="utf-8")
    done = _run_with(
        installed, "from openprompt_meta.components import readers; print(readers()['table'].title, list(readers()))"
    )
    assert "JSONL or CSV" in done.stdout
    assert "absent" not in done.stdout
    assert "loud.no_such_module" in done.stderr
    assert "'table' is the name of one of ours" in done.stderr
