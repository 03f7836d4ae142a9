"""Where a run's numbers go besides its folder: TensorBoard, MLflow, Weights & Biases, Trackio."""

from __future__ import annotations

import importlib
import logging
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from openprompt_meta.config.schema import RunConfig, describe
from openprompt_meta.errors import CompatibilityError

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Logged:
    """What a logger is told of one seed's training.

    Attributes:
        folder: the seed's; what a logger keeps is kept there.
        project: the data set's name, what runs are compared within.
        name: the run's and the seed's.
        settings: the configuration by dotted keys.
        done: iterations that a resumed run does not do again.
    """

    folder: Path
    project: str
    name: str
    settings: Mapping[str, Any]
    done: int = 0

    @classmethod
    def of(cls, config: RunConfig, seed_folder: Path, seed: int, done: int) -> Logged:
        """The seed ``seed`` of a run in the folder ``seed_folder``."""
        settings = {key.path: config.value_at(key.path) for key in describe()}
        return cls(seed_folder, config.dataset.name, f"{seed_folder.parent.name}, seed {seed}", settings, done)


class MetricLogger(ABC):
    """The interface that every logger has; a program opens one for each seed and closes it at the end."""

    @abstractmethod
    def log(self, metrics: Mapping[str, float], iteration: int) -> None:
        """Keep these numbers, whose names are like ``validation/accuracy``."""

    @abstractmethod
    def close(self) -> None:
        """Write what is not written yet."""


class TensorBoardLogger(MetricLogger):
    """Event files in ``tensorboard/`` of the seed's folder."""

    def __init__(self, logged: Logged) -> None:
        # purge_step: what follows replaces what an earlier try wrote.
        self._writer = _library("tensorboardX").SummaryWriter(
            str(logged.folder / "tensorboard"), purge_step=logged.done + 1
        )

    def log(self, metrics: Mapping[str, float], iteration: int) -> None:
        """Scalars."""
        for name, value in metrics.items():
            self._writer.add_scalar(name, value, iteration)

    def close(self) -> None:
        """Flush the file."""
        self._writer.close()


class MlflowLogger(MetricLogger):
    """A run of MLflow: at ``MLFLOW_TRACKING_URI``, else in ``mlruns/`` of the seed's folder."""

    def __init__(self, logged: Logged) -> None:
        # MLflow asks for this since it prefers a database; a folder needs no server and goes where the run goes.
        os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
        mlflow = _library("mlflow")
        where = os.environ.get("MLFLOW_TRACKING_URI") or (logged.folder / "mlruns").resolve().as_uri()
        self._client = mlflow.tracking.MlflowClient(tracking_uri=where)
        kept = logged.folder / "mlflow_run.txt"
        if logged.done and kept.is_file():
            self._run = kept.read_text(encoding="utf-8").strip()
            return
        found = self._client.get_experiment_by_name(logged.project)
        experiment = self._client.create_experiment(logged.project) if found is None else found.experiment_id
        self._run = self._client.create_run(experiment, run_name=logged.name).info.run_id
        for key, value in logged.settings.items():
            self._client.log_param(self._run, key, str(value)[:500])
        kept.write_text(self._run + "\n", encoding="utf-8")

    def log(self, metrics: Mapping[str, float], iteration: int) -> None:
        """Metrics of the run."""
        for name, value in metrics.items():
            self._client.log_metric(self._run, name, value, step=iteration)

    def close(self) -> None:
        """Call the run finished; one that is resumed goes on in it."""
        self._client.set_terminated(self._run)


class WandbLogger(MetricLogger):
    """A run of Weights & Biases; ``WANDB_MODE=offline`` keeps it in the seed's folder, for ``wandb sync``."""

    def __init__(self, logged: Logged) -> None:
        self._run = _library("wandb").init(
            project=f"openprompt_meta-{logged.project}",
            name=logged.name,
            dir=str(logged.folder),
            config=dict(logged.settings),
            reinit="create_new",
        )

    def log(self, metrics: Mapping[str, float], iteration: int) -> None:
        """One row of the run's history."""
        self._run.log(dict(metrics), step=iteration)

    def close(self) -> None:
        """Finish the run."""
        self._run.finish()


class TrackioLogger(MetricLogger):
    """A run of Trackio, which keeps it on this machine; ``trackio show`` shows it."""

    def __init__(self, logged: Logged) -> None:
        self._trackio = _library("trackio")
        self._trackio.init(
            project=f"openprompt_meta-{logged.project}", name=logged.name, config=dict(logged.settings), resume="allow"
        )

    def log(self, metrics: Mapping[str, float], iteration: int) -> None:
        """One row of the run's history."""
        self._trackio.log(dict(metrics), step=iteration)

    def close(self) -> None:
        """Finish the run."""
        self._trackio.finish()


_LIBRARIES = {"tensorboard": "tensorboardX", "mlflow": "mlflow", "wandb": "wandb", "trackio": "trackio"}
_LOGGERS: Mapping[str, Callable[[Logged], MetricLogger]] = {
    "tensorboard": TensorBoardLogger,
    "mlflow": MlflowLogger,
    "wandb": WandbLogger,
    "trackio": TrackioLogger,
}


def check_loggers(names: Sequence[str]) -> None:
    """Refuse a run whose loggers' libraries are missing, before it loads anything.

    Raises:
        CompatibilityError: naming the library and the command that installs it.
    """
    for name in names:
        _library(_LIBRARIES[name])


@contextmanager
def logged_to(names: Sequence[str], logged: Logged) -> Iterator[Callable[[dict[str, Any]], None]]:
    """Inside the block, a function that gives the numbers of a record to all loggers of these names.

    A logger that fails later than at its start is left out from then on, and that is said: a run is not lost to it.

    Raises:
        CompatibilityError: a logger's library is missing.
    """
    with ExitStack() as stack:
        opened: dict[str, MetricLogger] = {}
        for name in dict.fromkeys(names):
            opened[name] = _LOGGERS[name](logged)
            stack.callback(_without_failing, opened, name, opened[name].close)

        def write(record: dict[str, Any]) -> None:
            kind, iteration = record["kind"], record["iteration"]
            metrics = {f"{kind}/{name}": value for name, value in record.items() if isinstance(value, float)}
            for name, one in list(opened.items()):
                _without_failing(opened, name, lambda one=one: one.log(metrics, iteration))  # type: ignore[misc]

        yield write


def _without_failing(opened: dict[str, MetricLogger], name: str, call: Callable[[], None]) -> None:
    if name not in opened:
        return
    try:
        call()
    except Exception as error:  # of a library or of the network: none of it is the run's
        del opened[name]
        logger.warning("%s cannot be written to: %s. The run goes on without it.", name, error)


def _library(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        package = {"mlflow": "mlflow-skinny"}.get(name, name)
        raise CompatibilityError(
            f"run.loggers asks for {name}, which cannot be imported ({error}). Install it with: pip install "
            f"{package}; or leave it out of run.loggers."
        ) from None
