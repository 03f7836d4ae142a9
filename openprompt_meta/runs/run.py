"""A whole run, from a configuration to a folder of results: load, train, test, for each seed."""

from __future__ import annotations

import json
import logging
import platform
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from openprompt_meta.compat.versions import installed_versions
from openprompt_meta.config.loading import load_config
from openprompt_meta.config.schema import RunConfig
from openprompt_meta.config.writing import to_yaml
from openprompt_meta.data.dataset import TextDataset
from openprompt_meta.data.loading import open_dataset
from openprompt_meta.encoder.loading import LoadedMLM
from openprompt_meta.errors import CheckpointError, RunError
from openprompt_meta.files import read_limited, write_atomic
from openprompt_meta.learners.task import MetaLearner
from openprompt_meta.methods.language_model import load_language_model
from openprompt_meta.methods.method import Method, build_method
from openprompt_meta.progress import progress_bar
from openprompt_meta.runs.checkpoint import load_pool, read_progress
from openprompt_meta.runs.evaluation import Interrupted, evaluate_tasks, summarise_seeds
from openprompt_meta.runs.folder import RunFolder
from openprompt_meta.runs.loggers import Logged, check_loggers, logged_to
from openprompt_meta.runs.process import Overdue, StopRequest, keep_freed_memory, log_file, set_threads
from openprompt_meta.runs.training import Training
from openprompt_meta.version import __version__

logger = logging.getLogger(__name__)

# Seconds from a signal to the next good moment: beyond them a step is broken off, which costs that step alone. Those
# of a tuned language model are longer, and saving it takes some seconds too.
_PATIENCE, _PATIENCE_IF_TUNED = 2.0, 5.0


def load_run_config(folder: str | Path) -> RunConfig:
    """The configuration that a run folder was made with."""
    file = RunFolder(folder).config_file
    if not file.is_file():
        raise RunError(f"{folder} is not a run folder: it has no {file.name}. Start with: openprompt-meta train YAML")
    return load_config(file)


class Run:
    """Trains and tests what a configuration asks for, in one folder.

    Whatever is finished is not done again, so calling :meth:`train` on an interrupted folder resumes it to the same
    numbers.

    Args:
        config: the run.
        folder: where everything goes.
        show_progress: draw progress bars on stderr.
    """

    def __init__(self, config: RunConfig, folder: str | Path, show_progress: bool = True) -> None:
        self.config = config
        self.folder = RunFolder(folder)
        self.show_progress = show_progress

    def train(self, stop: StopRequest | None = None) -> dict[str, Any] | None:
        """Train and test every seed.

        Args:
            stop: the caller's; by default signals are caught here, and it is said how to go on.

        Returns:
            The content of ``results.json``; ``None`` if a signal stopped the run before its end.

        Raises:
            RunError: another process runs in the folder, or it was made with another configuration.
        """
        if stop is None:
            with StopRequest() as own:
                results = self.train(own)
            if results is None:
                logger.warning("%s", self.how_to_go_on())
            return results
        stop.patience = _PATIENCE_IF_TUNED if self.config.tunes_model else _PATIENCE
        try:
            with self.folder.locked(), log_file(self.folder.log_file):
                return self._train(stop)
        except Overdue:
            return None
        except (OSError, CheckpointError) as error:
            if not self.folder.path.is_dir():
                raise RunError(
                    f"The run folder {self.folder.path} is gone: it was deleted or moved while the run was writing to "
                    f"it ({error}). Put it back and go on with: openprompt-meta resume {self.folder.path}; or start "
                    "again."
                ) from error
            if isinstance(error, CheckpointError):
                raise
            raise RunError(
                f"The run folder {self.folder.path} cannot be written: {error}. What was saved before is as it was; "
                f"fix it and go on with: openprompt-meta resume {self.folder.path}"
            ) from error

    def how_to_go_on(self) -> str:
        """What to tell whoever has stopped the run."""
        if not self.folder.config_file.exists():
            return "Stopped before there was anything to save: start it again."
        return f"Stopped. From what is saved go on with: openprompt-meta resume {self.folder.path}"

    def _train(self, stop: StopRequest) -> dict[str, Any] | None:
        self._require_same_config()
        check_loggers(self.config.run.all_loggers)
        dataset, loaded = self._load()
        for seed in self.config.run.seeds:
            method = build_method(self.config, loaded, dataset, seed, self.show_progress)
            self._claim()  # only now: what could not be put together must not occupy the folder
            # Asked once more at the end: a signal may have come while the last tasks were tested.
            if not self._train_seed(method, seed, stop) or not self._test_seed(method, seed, stop) or stop.asked():
                logger.info("Stopped.")
                return None
        return self._write_results()

    def test(self, tasks: int | None = None) -> dict[str, Any]:
        """Evaluate the best checkpoints on test tasks again, without writing to the run folder.

        Args:
            tasks: how many; as configured if ``None``.
        """
        count = self.config.meta.test_tasks if tasks is None else tasks
        if count < 1:
            raise RunError(f"{count} test tasks were asked for; at least one is needed.")
        dataset, loaded = self._load()
        accuracies = []
        num_parameters = 0
        for seed in self.config.run.seeds:
            method = build_method(self.config, loaded, dataset, seed, self.show_progress)
            self._restore_best(method, seed)
            num_parameters = method.num_parameters
            accuracies.append(self._evaluate(method, count, f"test, seed {seed}", lambda: False))
        return self._results(accuracies, num_parameters)

    # -- one seed ---------------------------------------------------------------------------------------------------

    def _train_seed(self, method: Method, seed: int, stop: StopRequest) -> bool:
        folder = self.folder.seed(seed)
        if folder.test_file.exists():  # written after training; a finished seed is not touched again
            return True
        if not isinstance(method.learner, MetaLearner):  # nothing is learned across tasks
            folder.create()
            return True
        done = read_progress(folder.last_checkpoint).iteration if folder.last_checkpoint.exists() else 0
        logged = Logged.of(self.config, folder.path, seed, done)
        with logged_to(self.config.run.all_loggers, logged) as on_record:
            finished = Training(
                method,
                method.learner,
                self.config.meta,
                folder,
                self.config.run.checkpoint_every,
                stop=stop.asked,
                show_progress=self.show_progress,
                on_record=on_record,
            ).run()
        folder.finish()
        return finished

    def _test_seed(self, method: Method, seed: int, stop: StopRequest) -> bool:
        folder = self.folder.seed(seed)
        if folder.test_file.exists():
            return True
        best_iteration = self._restore_best(method, seed)
        try:
            accuracies = self._evaluate(method, self.config.meta.test_tasks, f"test, seed {seed}", stop.asked)
        except Interrupted:
            return False
        content = {
            "seed": seed,
            "best_iteration": best_iteration,
            "parameters": method.num_parameters,
            "accuracies": accuracies,
        }
        write_atomic(folder.test_file, json.dumps(content) + "\n")
        return True

    def _restore_best(self, method: Method, seed: int) -> int:
        """Give the method what was best on validation tasks; the iteration of that, 0 if it does not train."""
        if not isinstance(method.learner, MetaLearner):
            return 0
        return load_pool(self.folder.seed(seed).best_checkpoint, method.learner.meta_parameters).best_iteration

    def _evaluate(self, method: Method, tasks: int, title: str, stop: Callable[[], bool]) -> list[float]:
        with progress_bar(total=tasks, title=title, unit="task", show=self.show_progress) as bar:
            outcomes = evaluate_tasks(method.learner, method.sources["test"], tasks, method.eval_steps, bar, stop)
        return [outcome.accuracy for outcome in outcomes]

    # -- the whole --------------------------------------------------------------------------------------------------

    def _load(self) -> tuple[TextDataset, LoadedMLM]:
        set_threads(self.config.run.threads)
        keep_freed_memory()
        dataset = open_dataset(self.config.dataset)  # first: its errors are quick, the model's loading is not
        return dataset, load_language_model(self.config)

    def _claim(self) -> None:
        """Write the resolved configuration and what it is run with, unless an earlier try has."""
        if not self.folder.config_file.exists():
            write_atomic(self.folder.config_file, to_yaml(self.config))
        self._record_versions()

    def _require_same_config(self) -> None:
        if self.folder.config_file.exists() and load_config(self.folder.config_file) != self.config:
            raise RunError(
                f"{self.folder.path} holds a run with another configuration (see {self.folder.config_file}). "
                f"Choose another run.folder, or go on with that one: openprompt-meta resume {self.folder.path}"
            )

    def _record_versions(self) -> None:
        """Keep what the run was started with; going on with something else may change its last bits."""
        now = {
            "openprompt_meta": __version__,
            "python": platform.python_version(),
            "platform": platform.platform(),
            "threads": str(torch.get_num_threads()),
            **installed_versions(),
        }
        file = self.folder.versions_file
        then = _json_or_none(file)
        if not isinstance(then, dict):
            if file.exists():
                logger.warning("%s is damaged and written anew: what the run was started with is not known.", file)
            write_atomic(file, json.dumps(now, indent=2) + "\n")
            return
        changed = [f"{name} {then.get(name)} → {now.get(name)}" for name in now if then.get(name) != now[name]]
        if changed:
            logger.warning(
                "Since the run was started: %s. Its numbers may differ in the last bits.", ", ".join(changed)
            )

    def _write_results(self) -> dict[str, Any]:
        tests = [self.folder.seed(seed).test() for seed in self.config.run.seeds]
        results = self._results([test["accuracies"] for test in tests], tests[0]["parameters"])
        written = _json_or_none(self.folder.results_file)
        # A finished run can be asked for its results again where nothing can be written.
        if isinstance(written, dict) and {**written, "command": results["command"]} == results:
            return written
        write_atomic(self.folder.results_file, json.dumps(results, indent=2) + "\n")
        return results

    def _results(self, accuracies: list[list[float]], num_parameters: int) -> dict[str, Any]:
        # A transductive figure has looked at the query set; it never stands where an inductive one is expected.
        kind = "transductive" if self.config.transductive else "inductive"
        return {
            "method": self.config.method,
            "parameters": num_parameters,
            "dataset": self.config.dataset.name,
            "model": self.config.plm.model_path,
            "way": self.config.meta.way,
            "shot": self.config.meta.shot,
            "verbalizer": self.config.verbalizer,
            "classes": self.config.meta.test_classes,
            "test_accuracy": {kind: summarise_seeds(accuracies).as_dict()},
            "seeds": self.config.run.seeds,
            "command": " ".join([Path(sys.argv[0]).name, *sys.argv[1:]]),
        }


def _json_or_none(file: Path) -> Any:
    """What a file of ours holds; ``None`` if it is not there or damaged."""
    try:
        return json.loads(read_limited(file))
    except (FileNotFoundError, ValueError, RecursionError):
        return None
