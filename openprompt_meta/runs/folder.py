"""A run's folder: what is where in it, and that only one run writes there."""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from filelock import lock_descriptor

from openprompt_meta.config.loading import load_config
from openprompt_meta.config.schema import RunConfig, describe
from openprompt_meta.errors import OpenPromptMetaError, RunError
from openprompt_meta.files import read_limited, remove_leftovers, write_atomic

logger = logging.getLogger(__name__)


# Longer names are of no use to a reader, and file systems end at 255.
_LONGEST_NAME = 100


def default_run_folder(config: RunConfig, name: str, overrides: Sequence[str] = ()) -> Path:
    """``runs/DATA SET/NAME``, told apart from what else is run under that name.

    Overrides of the command line stand behind the name. Where another configuration has been run in that folder, as
    after a line of the YAML was changed, the keys in which this one differs stand there too, and that is logged. The
    same configuration finds its folder again.
    """
    stated = [one for one in overrides if not one.startswith("run.folder=")]
    folder = Path("runs") / config.dataset.name / _name_with(name, stated)
    held = _configuration_in(folder)
    if held is None or held == config:
        return folder
    differing = [
        f"{key.path}={config.value_at(key.path)}"
        for key in describe()
        if config.value_at(key.path) != held.value_at(key.path)
    ]
    other = folder.with_name(_name_with(name, [*stated, *(one for one in differing if one not in stated)]))
    logger.warning("%s holds a run with other settings; this one goes to %s.", folder, other)
    return other


def _name_with(name: str, settings: Sequence[str]) -> str:
    full = "-".join([name, *(re.sub(r"[^\w.=-]+", "_", one).strip("_") for one in settings)])
    if len(full) <= _LONGEST_NAME:
        return full
    digest = hashlib.sha256("\n".join(settings).encode("utf-8")).hexdigest()[:8]
    return f"{full[: _LONGEST_NAME - 9]}-{digest}"


def _configuration_in(folder: Path) -> RunConfig | None:
    """What was run in a folder; ``None`` if that is nothing, or cannot be read: the run itself will say so."""
    file = RunFolder(folder).config_file
    if not file.is_file():
        return None
    try:
        return load_config(file)
    except OpenPromptMetaError:
        return None


class RunFolder:
    """The folder of one run over one or more seeds.

    ``config.yaml`` (resolved), ``versions.json``, ``log.txt``, ``results.json`` and one folder a seed.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    @property
    def config_file(self) -> Path:
        """The resolved configuration."""
        return self.path / "config.yaml"

    @property
    def results_file(self) -> Path:
        """What came out, for programs."""
        return self.path / "results.json"

    @property
    def versions_file(self) -> Path:
        """Which versions it was run with."""
        return self.path / "versions.json"

    @property
    def log_file(self) -> Path:
        """What was done when."""
        return self.path / "log.txt"

    def seed(self, seed: int) -> SeedFolder:
        """The folder of one seed."""
        return SeedFolder(self.path / f"seed-{seed}")

    def create(self) -> None:
        """Make the folder, or say why it cannot be made."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RunError(f"The run folder {self.path} cannot be made: {error}. Choose another run.folder.") from None

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the folder for this process; a second one is refused until the first has ended.

        What a killed run had begun to write is cleared away.
        """
        self.create()
        with (self.path / ".lock").open("a", encoding="utf-8") as lock:
            if not lock_descriptor(lock.fileno(), blocking=False):
                raise RunError(
                    f"Another process is running in {self.path}. Wait for it, or choose another run.folder."
                )
            self._remove_leftovers()
            yield

    def _remove_leftovers(self) -> None:
        seeds = [SeedFolder(path) for path in self.path.glob("seed-*")]
        folders = [self.path, *(folder for seed in seeds for folder in (seed.path, seed.last_checkpoint.parent))]
        for path in (path for folder in folders for path in remove_leftovers(folder)):
            logger.info("Removed %s, left half-written by a run that was killed.", path)


class SeedFolder:
    """The folder of one seed: ``metrics.jsonl``, ``checkpoints/last`` and ``checkpoints/best``, ``test.json``."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._unwritten: list[dict[str, Any]] = []

    @property
    def last_checkpoint(self) -> Path:
        """Where to go on from."""
        return self.path / "checkpoints" / "last.safetensors"

    @property
    def best_checkpoint(self) -> Path:
        """The best on validation tasks."""
        return self.path / "checkpoints" / "best.safetensors"

    @property
    def metrics_file(self) -> Path:
        """One JSON object a line: meta-iterations and validations."""
        return self.path / "metrics.jsonl"

    @property
    def test_file(self) -> Path:
        """Accuracy of every test task."""
        return self.path / "test.json"

    def test(self) -> dict[str, Any]:
        """What :attr:`test_file` holds. :class:`RunError` if it is damaged."""
        try:
            content = json.loads(read_limited(self.test_file))
            values = content["accuracies"]
            if not values or not all(isinstance(value, float) for value in values):
                raise ValueError
            if not all(isinstance(content[name], int) for name in ("best_iteration", "parameters")):
                raise ValueError
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            raise RunError(f"{self.test_file} is damaged. Delete it and resume the run: it is made again.") from None
        found: dict[str, Any] = content
        return found

    def create(self) -> None:
        """Make the folders."""
        self.last_checkpoint.parent.mkdir(parents=True, exist_ok=True)

    def log(self, record: dict[str, Any]) -> None:
        """Append a record to the metrics.

        Metrics are no reason to lose a run: where there is no room for them they wait for the next call.
        """
        self._unwritten.append(record)
        first = len(self._unwritten) == 1
        try:
            self._write_waiting()
        except OSError as error:
            if first:
                logger.warning("%s cannot be written: %s. Its records are kept for later.", self.metrics_file, error)

    def finish(self) -> None:
        """Write records that still wait, or say that they are lost."""
        try:
            self._write_waiting()
        except OSError as error:
            logger.warning("The last %d records of %s are lost: %s.", len(self._unwritten), self.metrics_file, error)

    def metrics(self) -> list[dict[str, Any]]:
        """All records so far; a line cut off by a kill is left out."""
        return [record for line in self._metrics_text().split("\n") if (record := _record(line)) is not None]

    def forget_after(self, iteration: int, validated: int) -> None:
        """Drop records that a resumed run will write again: steps and validations later than the checkpoint's."""
        kept = [
            record
            for record in self.metrics()
            if record["iteration"] <= (validated if record["kind"] == "validation" else iteration)
        ]
        text = "".join(json.dumps(record) + "\n" for record in kept)
        if text != self._metrics_text():
            write_atomic(self.metrics_file, text)

    def _write_waiting(self) -> None:
        if self._unwritten:
            self._append("".join(json.dumps(waiting) + "\n" for waiting in self._unwritten))
            self._unwritten.clear()

    def _append(self, text: str) -> None:
        with self.metrics_file.open("ab", buffering=0) as file:
            size = file.seek(0, os.SEEK_END)
            content = text.encode()
            try:
                while content:
                    content = content[file.write(content) :]
            except OSError:
                file.truncate(size)  # no half line for the next record to be added to
                raise

    def _metrics_text(self) -> str:
        try:
            return read_limited(self.metrics_file).decode("utf-8", "replace")
        except FileNotFoundError:
            return ""


def _record(line: str) -> dict[str, Any] | None:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if isinstance(record, dict) and "kind" in record and type(record.get("iteration")) is int:
        return record
    return None
