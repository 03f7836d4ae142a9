"""Other packages add components by entry points alone, as CONTRIBUTING.md says; a broken one harms nothing else."""

from __future__ import annotations

import importlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch

from openprompt_meta.components import Kind, declared

ROOT = Path(__file__).resolve().parents[1]
TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
KINDS: dict[str, Kind] = {
    "verbalizer": "verbalizers",
    "meta-learner": "meta_learners",
    "method": "methods",
    "reader": "readers",
    "figure": "figures",
}
_UNUSABLE = """
[openprompt_meta.readers]
absent = loud.no_such_module:READER
usurper = usurper:READER
"""
_DATA = """
plm:
  model_path: {model}
dataset:
  name: topics
  path: {data}
  format: loud
  splits: random
  split_counts: [2, 2, 2]
verbalizer: loud_verbalizer
prompt_pool_template:
  num_prompts: 2
  prompt_length: 2
meta:
  way: 2
  shot: 3
  query: 2
  optimizer: sgd
  outer_lr: 1.0
  iterations: 1
  valid_tasks: 1
  test_tasks: 4
"""
RUNS = {
    "maml": [],
    "halfway-0": ["meta.learner=halfway", "halfway.reptile=0"],
    "halfway": ["meta.learner=halfway"],
    "halfway-1": ["meta.learner=halfway", "halfway.reptile=1"],
    "medians": ["method=class_medians"],
}


def _packages() -> dict[str, dict[str, str]]:
    """The files of the packages that CONTRIBUTING.md walks through, each named in backquotes before its content."""
    packages = {}
    for section in TEXT.split("\n### ")[1:]:
        files = dict(re.findall(r"`([\w/.]+)`:\n\n```\w+\n(.*?)```", section, re.DOTALL))
        packages[next(iter(files)).partition("/")[0]] = files
    return packages


def _install_all(folder: Path) -> Path:
    """Put the packages into a folder, with what pip writes beside a package."""
    for package, files in _packages().items():
        entry_points = files.pop("pyproject.toml").replace('project.entry-points."', "").replace('"', "")
        files |= {
            f"{package}/__init__.py": "",
            f"{package}-1.0.dist-info/METADATA": f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n",
            f"{package}-1.0.dist-info/entry_points.txt": entry_points,
        }
        for name, content in files.items():
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_text(content, encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder on the import path with all packages; do not write to it."""
    return _install_all(tmp_path_factory.mktemp("installed"))


@pytest.fixture(scope="module")
def runs(
    installed: Path, tiny_mlm_folder: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Path]:
    """The folders of RUNS, all of them with the reader and the verbalizer of ``loud``."""
    folder = tmp_path_factory.mktemp("runs")
    topics = ("weather", "sport", "food", "travel", "music", "money")
    lines = [f"{name}! {words} {name} {i}\n" for name in topics for i, words in enumerate(("tell me", "a", "the") * 2)]
    (folder / "data.loud").write_text("".join(lines), "utf-8")
    yaml = _DATA.format(model=tiny_mlm_folder("bert"), data=folder / "data.loud")
    (folder / "run.yaml").write_text(yaml, "utf-8")
    commands = [
        ["train", str(folder / "run.yaml"), "--quiet", f"run.folder={folder / name}", *overrides]
        for name, overrides in RUNS.items()
    ]
    _commands(installed, commands)
    return {name: folder / name for name in RUNS}


def _run_with(folder: Path, code: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run ``code`` in a fresh interpreter that finds the packages in ``folder`` installed."""
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done


def _commands(folder: Path, commands: list[list[str]]) -> None:
    """Call ``openprompt-meta`` with each list of arguments."""
    code = "import json, sys; from openprompt_meta.cli import main; sys.exit(max(map(main, json.loads(sys.argv[1]))))"
    _run_with(folder, code, json.dumps(commands))


def _learned_pool(run: Path) -> dict[str, torch.Tensor]:
    tensors = safetensors.torch.load_file(run / "seed-0/checkpoints/last.safetensors")
    return {name: value for name, value in tensors.items() if name.startswith("pool.")}


# -- packages of one's own --------------------------------------------------------------------------------------------


def test_there_is_a_walk_through_for_each_kind_of_component() -> None:
    groups = re.findall(r'\[project\.entry-points\."openprompt_meta\.(\w+)"\]', TEXT)
    assert sorted(groups) == sorted(KINDS.values())


@pytest.mark.parametrize(
    ("chosen", "section", "key", "value"),
    [
        ({"verbalizer": "loud_verbalizer"}, "loud_verbalizer", "loudness", 3.0),
        ({"meta": {"learner": "halfway"}}, "halfway", "reptile", 0.25),
        ({"method": "class_medians"}, "class_medians", "sharpness", 2.0),
    ],
)
def test_their_keys_are_checked_and_written_as_ours_without_torch(
    installed: Path, chosen: dict[str, Any], section: str, key: str, value: float
) -> None:
    code = """
import json, sys
from openprompt_meta.config.validation import config_from_mapping
from openprompt_meta.config.writing import to_mapping
from openprompt_meta.errors import ConfigError

chosen, section, key, value = json.loads(sys.argv[1])
given = {**chosen, section: {key: value}, "dataset": {"format": "loud"}}
config = config_from_mapping(given)
try:
    config_from_mapping({**given, section: {key: -1}})
except ConfigError as error:
    refused = str(error)
print(json.dumps([to_mapping(config)[section], refused, "torch" in sys.modules]))
"""
    done = _run_with(installed, code, json.dumps([chosen, section, key, value]))
    written, refused, torch_imported = json.loads(done.stdout)
    assert written == {key: value}
    assert f"{section}.{key}: got -1" in refused
    assert not torch_imported


def test_openprompt_knows_their_verbalizer(installed: Path) -> None:
    code = """
import openprompt_meta
from openprompt.prompts import VERBALIZER_CLASS

print(VERBALIZER_CLASS["loud_verbalizer"].__module__)
"""
    assert _run_with(installed, code).stdout.split()[-1] == "loud.code"


def test_a_run_uses_their_reader_and_verbalizer(runs: dict[str, Path]) -> None:
    assert "format: loud" in (runs["maml"] / "config.yaml").read_text("utf-8")
    assert "loudness: 2.0" in (runs["maml"] / "config.yaml").read_text("utf-8")
    assert json.loads((runs["maml"] / "results.json").read_text("utf-8"))["verbalizer"] == "loud_verbalizer"


def test_their_meta_learner_learns_between_the_two_it_is_made_of(runs: dict[str, Path]) -> None:
    """One step of SGD: no share of Reptile is MAML bit by bit, and half a share half the way between none and all."""
    maml, none, half, whole = (_learned_pool(runs[name]) for name in ("maml", "halfway-0", "halfway", "halfway-1"))
    assert maml.keys() == {"pool.keys", "pool.prompts"}
    for name in maml:
        assert torch.equal(none[name], maml[name])
        assert not torch.allclose(none[name], whole[name], atol=1e-3)
        assert torch.allclose(half[name], (none[name] + whole[name]) / 2, atol=1e-6)


def test_their_method_predicts_what_scikit_learns_nearest_median_does(installed: Path, runs: dict[str, Path]) -> None:
    code = """
import json, sys
from sklearn.neighbors import NearestCentroid
from openprompt_meta.report.finished_run import FinishedRun

run = FinishedRun(sys.argv[1])
accuracies = []
for index in range(run.config.meta.test_tasks):
    task = run.method(0).sources["test"][index]
    model = NearestCentroid(metric="manhattan").fit(task.support["features"].numpy(), task.support["label"].numpy())
    accuracies.append(model.score(task.query["features"].numpy(), task.query["label"].numpy()))
print(json.dumps([run.accuracies[0], accuracies]))
"""
    of_run, expected = json.loads(_run_with(installed, code, runs["medians"]).stdout.splitlines()[-1])
    assert of_run == pytest.approx(expected)
    assert len(of_run) == 4


def test_their_figure_is_plotted_and_stands_in_a_report(installed: Path, runs: dict[str, Path]) -> None:
    run = runs["halfway"]
    _commands(installed, [["plot", "gradients", str(run), "--quiet"], ["report", str(run), "--only", "gradients"]])
    figures = run / "report" / "figures"
    assert {file.name for file in figures.iterdir()} >= {"gradients.json", "gradients.png", "gradients.svg"}
    drawn = json.loads((figures / "gradients.json").read_text("utf-8"))["numbers"]
    records = [json.loads(line) for line in (run / "seed-0/metrics.jsonl").read_text("utf-8").splitlines()]
    assert drawn == {"by_seed": {"0": [record["gradient_norm"] for record in records if record["kind"] == "step"]}}
    page = (run / "report" / "report.html").read_text("utf-8")
    assert "Was training steady?" in page
    assert "The meta-gradient is between" in page


def test_a_report_leaves_their_figure_out_where_it_does_not_fit(installed: Path, runs: dict[str, Path]) -> None:
    code = """
import sys
from openprompt_meta.components import figures
from openprompt_meta.report.finished_run import open_runs

print([figures()["gradients"].fits(open_runs([path])) for path in sys.argv[1:]])
"""
    done = _run_with(installed, code, runs["maml"], runs["medians"])
    assert done.stdout.splitlines()[-1] == "[True, False]"


def test_what_cannot_be_used_is_left_out_with_a_warning(tmp_path: Path) -> None:
    _install_all(tmp_path)
    usurper = (tmp_path / "loud/declarations.py").read_text("utf-8").replace('name="loud"', 'name="table"')
    (tmp_path / "usurper.py").write_text(usurper, "utf-8")
    (tmp_path / "loud-1.0.dist-info/entry_points.txt").write_text(_UNUSABLE, encoding="utf-8")
    done = _run_with(
        tmp_path, "from openprompt_meta.components import readers; print(readers()['table'].title, list(readers()))"
    )
    assert "JSONL or CSV" in done.stdout
    assert "absent" not in done.stdout
    assert "loud.no_such_module" in done.stderr
    assert "'table' is the name of one of ours" in done.stderr


# -- this package -----------------------------------------------------------------------------------------------------


def test_the_file_to_edit_holds_what_is_declared() -> None:
    rows = re.findall(r"^\| ([\w-]+) \| `([\w/]+)/` \| `([\w/]+)\.py`: `(\w+)` \|$", TEXT, re.MULTILINE)
    assert {row[0] for row in rows} == KINDS.keys()
    for component, folder, file, name in rows:
        assert (ROOT / "openprompt_meta" / folder).is_dir()
        module = importlib.import_module(f"openprompt_meta.{file.replace('/', '.').removesuffix('.__init__')}")
        assert list(declared(KINDS[component]).values()) == list(getattr(module, name))
