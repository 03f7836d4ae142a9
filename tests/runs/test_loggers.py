"""Where a run's numbers go besides its folder."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from openprompt_meta.config.schema import RunConfig
from openprompt_meta.errors import CompatibilityError
from openprompt_meta.runs import loggers
from openprompt_meta.runs.folder import RunFolder
from openprompt_meta.runs.loggers import Logged, MetricLogger, logged_to
from openprompt_meta.runs.run import Run
from tests.helpers.small_runs import small_config, write_data

pytestmark = pytest.mark.meta


@pytest.fixture
def config(tiny_mlm_folder: Callable[[str], Path], tmp_path: Path) -> RunConfig:
    return small_config(tiny_mlm_folder("bert"), write_data(tmp_path / "data"))


def logged(folder: Path, done: int = 0) -> Logged:
    folder.mkdir(parents=True, exist_ok=True)
    return Logged(folder, "small", "run, seed 0", {"meta.way": 3}, done)


def step(iteration: int, loss: float) -> dict[str, Any]:
    return {"kind": "step", "iteration": iteration, "loss": loss, "tasks": 4}


def test_a_run_writes_tensorboard_events_by_either_spelling(config: RunConfig, tmp_path: Path) -> None:
    assert config.with_values({"run.tensorboard": True}).run.all_loggers == ["tensorboard"]
    Run(config.with_values({"run.loggers": ["tensorboard"]}), tmp_path / "run", show_progress=False).train()
    assert list((tmp_path / "run" / "seed-0" / "tensorboard").glob("events*"))


def test_mlflow_keeps_the_numbers_of_the_run_in_its_file_store(
    config: RunConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    Run(config.with_values({"run.loggers": ["mlflow"]}), tmp_path / "run", show_progress=False).train()
    folder = RunFolder(tmp_path / "run").seed(0)
    client = mlflow.tracking.MlflowClient(tracking_uri=(folder.path / "mlruns").as_uri())
    (experiment,) = (one for one in client.search_experiments() if one.name == config.dataset.name)
    (run,) = client.search_runs([experiment.experiment_id])
    assert run.data.params["verbalizer"] == "rep_verbalizer"
    assert run.info.status == "FINISHED"
    written = [record for record in folder.metrics() if record["kind"] == "validation"]
    kept = client.get_metric_history(run.info.run_id, "validation/accuracy")
    assert [(one.step, one.value) for one in kept] == [(one["iteration"], one["accuracy"]) for one in written]


def test_mlflow_goes_on_in_the_same_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    for done in (0, 2):
        with logged_to(["mlflow"], logged(tmp_path / "seed-0", done)) as write:
            write(step(done + 1, 0.5))
            write(step(done + 2, 0.25))
    client = mlflow.tracking.MlflowClient(tracking_uri=(tmp_path / "seed-0" / "mlruns").as_uri())
    run = (tmp_path / "seed-0" / "mlflow_run.txt").read_text("utf-8").strip()
    assert [one.step for one in client.get_metric_history(run, "step/loss")] == [1, 2, 3, 4]


def test_wandb_keeps_a_run_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    with logged_to(["wandb"], logged(tmp_path / "seed-0")) as write:
        write(step(1, 0.5))
    assert list((tmp_path / "seed-0" / "wandb").glob("offline-run-*/*.wandb"))


def test_trackio_keeps_a_run_on_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("trackio")
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))
    with logged_to(["trackio"], logged(tmp_path / "seed-0")) as write:
        write(step(1, 0.5))
    assert list((tmp_path / "trackio").rglob("*.db"))


@pytest.mark.parametrize(
    ("name", "package"), [("mlflow", "mlflow-skinny"), ("wandb", "wandb"), ("trackio", "trackio")]
)
def test_a_library_that_is_missing_is_said_before_anything_loads(
    name: str, package: str, config: RunConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = importlib.import_module

    def without(module: str, *rest: Any) -> Any:
        if module == name:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return real(module, *rest)

    monkeypatch.setattr(loggers.importlib, "import_module", without)
    with pytest.raises(CompatibilityError, match=f"asks for {name}.*pip install {package}"):
        Run(config.with_values({"run.loggers": [name]}), tmp_path / "run", show_progress=False).train()
    assert not RunFolder(tmp_path / "run").config_file.exists()


class Recorder(MetricLogger):
    """Writes lines to a file, and fails when it is asked to."""

    def __init__(self, logged: Logged) -> None:
        self.file = logged.folder / "lines.jsonl"
        self.lines: list[Any] = []

    def log(self, metrics: Any, iteration: int) -> None:
        if metrics.get("step/loss") == float("inf"):
            raise ConnectionError("no network")
        self.lines.append([iteration, dict(metrics)])

    def close(self) -> None:
        self.file.write_text(json.dumps(self.lines), encoding="utf-8")


def test_a_logger_that_fails_is_left_out_and_the_run_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(loggers, "_LOGGERS", {"one": Recorder})
    with logged_to(["one"], logged(tmp_path / "good")) as write:
        write(step(1, 0.5))
    assert json.loads((tmp_path / "good" / "lines.jsonl").read_text("utf-8")) == [[1, {"step/loss": 0.5}]]
    with logged_to(["one"], logged(tmp_path / "bad")) as write:
        write(step(1, float("inf")))
        write(step(2, 0.5))
    assert "one cannot be written to: no network. The run goes on without it." in caplog.text
    assert not (tmp_path / "bad" / "lines.jsonl").exists()
