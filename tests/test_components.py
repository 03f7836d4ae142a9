"""Another package adds components by entry points alone, and a package that is broken costs nobody else anything."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

_DECLARATIONS = '''
from openprompt_meta.components import ReaderDeclaration, VerbalizerDeclaration, VerbalizerSection
from openprompt_meta.sections import Positive


class Keys(VerbalizerSection):
    """``loud_verbalizer``."""

    loudness: Positive = 2.0
    """How sharp its predictions are."""


VERBALIZER = VerbalizerDeclaration(
    name="loud_verbalizer", title="Loud", implementation="loud.verbalizer:LoudVerbalizer", config=Keys
)
READER = ReaderDeclaration(name="loud", title="loud texts", implementation="loud.verbalizer:read")
USURPER = ReaderDeclaration(name="table", title="not ours", implementation="loud.verbalizer:read")
'''
_IMPLEMENTATION = """
from openprompt_meta.verbalizers.rep import RepVerbalizer


class LoudVerbalizer(RepVerbalizer):
    def __init__(self, tokenizer, model=None, loudness=2.0):
        super().__init__(tokenizer, model=model, temperature=10 * loudness)


def read(source):
    raise NotImplementedError
"""
_ENTRY_POINTS = """
[openprompt_meta.verbalizers]
loud = loud.declarations:VERBALIZER
[openprompt_meta.readers]
loud = loud.declarations:READER
usurper = loud.declarations:USURPER
absent = loud.no_such_module:READER
"""


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """A folder on the import path with a package and what pip writes beside one."""
    package, metadata = tmp_path / "loud", tmp_path / "loud-1.0.dist-info"
    package.mkdir()
    metadata.mkdir()
    (package / "__init__.py").touch()
    (package / "declarations.py").write_text(_DECLARATIONS, encoding="utf-8")
    (package / "verbalizer.py").write_text(_IMPLEMENTATION, encoding="utf-8")
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: loud\nVersion: 1.0\n", encoding="utf-8")
    (metadata / "entry_points.txt").write_text(_ENTRY_POINTS, encoding="utf-8")
    return tmp_path


def _run_with(folder: Path, code: str) -> subprocess.CompletedProcess[str]:
    """Run ``code`` in a fresh interpreter that finds the package in ``folder`` installed."""
    path = os.pathsep.join([str(folder), str(ROOT)])
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": path},
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


def test_openprompt_finds_its_class(installed: Path) -> None:
    code = """
import openprompt_meta
from openprompt.prompts import VERBALIZER_CLASS
print(VERBALIZER_CLASS["loud_verbalizer"].__module__)
"""
    assert _run_with(installed, code).stdout.split()[-1] == "loud.verbalizer"


def test_what_cannot_be_used_is_left_out_with_a_warning(installed: Path) -> None:
    done = _run_with(
        installed, "from openprompt_meta.components import readers; print(readers()['table'].title, list(readers()))"
    )
    assert "JSONL or CSV" in done.stdout
    assert "absent" not in done.stdout
    assert "loud.no_such_module" in done.stderr
    assert "'table' is the name of one of ours" in done.stderr
