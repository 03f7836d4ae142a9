"""A whole run from an OpenPrompt-style configuration: data, model, template, verbalizer, OpenPrompt's runner."""

from __future__ import annotations

import inspect
import json
import logging
import os
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from openprompt import PromptDataLoader, PromptForClassification
from openprompt.data_utils import FewShotSampler, InputExample, load_dataset
from openprompt.data_utils.data_processor import DataProcessor
from openprompt.plms import load_plm_from_config
from openprompt.prompts import load_template, load_verbalizer
from openprompt.utils.logging import config_experiment_dir
from yacs.config import CfgNode

from openprompt_meta.data.classes import words_of_class_name
from openprompt_meta.data.episodes import seeded_sample
from openprompt_meta.data.loading import read_records
from openprompt_meta.data.readers.records import Records
from openprompt_meta.encoder.names import read_names_with
from openprompt_meta.errors import CheckpointError, ConfigError, DataError, ModelError
from openprompt_meta.files import write_atomic
from openprompt_meta.openprompt_runs.runners import runner_class_for

logger = logging.getLogger(__name__)

CONFIG_FILE = "config.yaml"
RESULTS_FILE = "results.json"
LOG_FILE = "log.txt"
Examples = list[Any]


@dataclass(frozen=True)
class OpenPromptResult:
    """What a run gave.

    Attributes:
        metrics: test metrics by name, averaged over the seeds of few-shot sampling if there are several.
        folder: where configuration, log, checkpoints and predictions are.
        by_seed: the test metrics of each seed, if few-shot sampling was asked for.
    """

    metrics: dict[str, float]
    folder: Path
    by_seed: dict[int, dict[str, float]] = field(default_factory=dict)


@dataclass(frozen=True)
class _Splits:
    processor: Any
    train: Examples | None
    valid: Examples | None
    test: Examples | None


def run_openprompt(config: CfgNode) -> OpenPromptResult:
    """Train, validate each epoch, and test the best epoch, as OpenPrompt's own command line does.

    Args:
        config: from :func:`~openprompt_meta.openprompt_runs.config.read_config`. It is not changed.

    Raises:
        OpenPromptMetaError: with the reason, if anything that the configuration names cannot be had.
    """
    config = config.clone()
    _make_folder(config)
    if config.learning_setting == "zero_shot":
        return _run(config, lambda runner: runner.test())
    return _run(config, lambda runner: runner.run())


def resume_openprompt(config: CfgNode, folder: str | os.PathLike[str]) -> OpenPromptResult:
    """Go on with the interrupted run in ``folder`` from its last epoch, and test as :func:`run_openprompt` does."""
    return _run(_in_folder(config, folder), lambda runner: runner.run(ckpt="last"))


def test_openprompt(config: CfgNode, folder: str | os.PathLike[str]) -> OpenPromptResult:
    """Test the best epoch of the run in ``folder``, without training."""
    return _run(_in_folder(config, folder), lambda runner: runner.test(ckpt="best"))


# A function to call, though its name begins as those do which pytest collects.
test_openprompt.__test__ = False  # type: ignore[attr-defined]


def _run(config: CfgNode, act: Callable[[Any], Any]) -> OpenPromptResult:
    folder = Path(config.logging.path)
    with _log_file(folder, config.logging.file_level):
        _choose_device(config)
        splits = _load_splits(config)
        by_seed: dict[int, dict[str, float]] = {}
        if config.learning_setting == "few_shot" and config.few_shot.few_shot_sampling is not None:
            for seed in config.sampling_from_train.seed:
                by_seed[seed] = _run_once(config, folder / f"seed-{seed}", _sampled(config, splits, seed), act)
            every = list(by_seed.values())
            metrics = {name: sum(one[name] for one in every) / len(every) for name in every[0]}
        else:
            metrics = _run_once(config, folder, splits, act)
        logger.info("Test: %s", ", ".join(f"{name} {value:.4f}" for name, value in metrics.items()))
    report = {"metrics": metrics, "by_seed": by_seed}
    write_atomic(folder / RESULTS_FILE, json.dumps(report, indent=2) + "\n")
    return OpenPromptResult(metrics, folder, by_seed)


def _run_once(config: CfgNode, folder: Path, splits: _Splits, act: Callable[[Any], Any]) -> dict[str, float]:
    """One run on given examples, in a folder of its own."""
    config = config.clone()
    folder.mkdir(exist_ok=True)
    config.logging.path = str(folder)
    _seed_everything(config.reproduce.seed)
    try:
        plm, tokenizer, plm_config, wrapper = load_plm_from_config(config)
    except OSError as error:
        raise ModelError(f"plm.model_path: {config.plm.model_path} cannot be loaded: {error}") from error
    template = load_template(
        config,
        model=plm,
        tokenizer=tokenizer,
        plm_config=plm_config,
        max_seq_length=config.dataloader.max_seq_length,
    )
    verbalizer = load_verbalizer(
        config, model=plm, tokenizer=tokenizer, plm_config=plm_config, classes=splits.processor.labels
    )
    frozen = config.plm.optimize.freeze_para
    model = PromptForClassification(plm, template, verbalizer, freeze_plm=frozen, plm_eval_mode=config.plm.eval_mode)
    if getattr(verbalizer, "reads_names", False):
        own = {name: words_of_class_name(name) for name in splits.processor.labels}
        read_names_with(model, verbalizer.words_to_read or own, config.dataloader.max_seq_length)

    def loader(examples: Examples | None, section: CfgNode) -> PromptDataLoader | None:
        if not examples:
            return None
        return PromptDataLoader(
            dataset=examples,
            template=template,
            tokenizer=tokenizer,
            tokenizer_wrapper_class=wrapper,
            batch_size=section.batch_size,
            shuffle=section.shuffle_data,
            **config.dataloader,
        )

    runner = runner_class_for(verbalizer)(
        model=model,
        config=config,
        train_dataloader=loader(splits.train, config.train),
        valid_dataloader=loader(splits.valid, config.dev),
        test_dataloader=loader(splits.test, config.test),
        id2label=splits.processor.id2label,
    )
    act(runner)
    return runner.metrics["test"]


# -- folder, log, device, seed ----------------------------------------------------------------------------------------


def _make_folder(config: CfgNode) -> None:
    """OpenPrompt's folder for the run, in which the configuration is kept."""
    unique = config.logging.unique_string
    if unique is not None and (unique in ("", ".", "..") or Path(unique).name != unique):
        raise ConfigError(
            f"logging.unique_string is {unique!r}; expected the name of a folder inside logging.path_base."
        )
    base = Path(config.logging.path_base)
    base.mkdir(parents=True, exist_ok=True)
    if unique is not None:
        _require_replaceable(base / unique, config.logging.overwrite)
    config_experiment_dir(config)
    write_atomic(Path(config.logging.path) / CONFIG_FILE, config.dump())


def _require_replaceable(folder: Path, overwrite: bool) -> None:
    """OpenPrompt deletes a folder of the same name: only an empty one, or an earlier run, may go."""
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return
    if not overwrite:
        raise ConfigError(f"{folder} exists, and logging.overwrite is false. Choose another logging.unique_string.")
    if not (folder / CONFIG_FILE).is_file():
        raise ConfigError(f"{folder} exists and is no earlier run (it has no {CONFIG_FILE}); it is not overwritten.")


def _in_folder(config: CfgNode, folder: str | os.PathLike[str]) -> CfgNode:
    if not Path(folder).is_dir():
        raise CheckpointError(f"There is no folder {os.fspath(folder)}. Give the folder of an earlier run.")
    config = config.clone()
    config.logging.path = os.fspath(folder)
    return config


@contextmanager
def _log_file(folder: Path, level: str) -> Iterator[None]:
    handler = logging.FileHandler(folder / LOG_FILE, encoding="utf-8")
    handler.setLevel(level)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s %(message)s"))
    root = logging.getLogger()  # OpenPrompt logs there
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)
        handler.close()


def _choose_device(config: CfgNode) -> None:
    if config.environment.num_gpus > 0 and not torch.cuda.is_available():
        logger.info("There is no CUDA here: the run is on the CPU (environment.num_gpus: 0).")
        config.environment.num_gpus = 0
        config.environment.cuda_visible_devices = None  # or OpenPrompt would set the variable for this process


def _seed_everything(seed: int | None) -> None:
    # OpenPrompt's set_seed ignores a seed of 0.
    if seed is not None:
        random.seed(seed)
        np.random.seed(seed)
        torch.manual_seed(seed)


# -- data: a folder of labelled texts and the demo set as OpenPrompt's, under names in its table; its own -------------

# OpenPrompt's names for splits, and the readers'.
_PARTS = {"train": "train", "dev": "valid", "test": "test"}


class JsonlFolderProcessor(DataProcessor):
    """Labelled texts from a folder (``train.jsonl``, ``valid.jsonl``, ``test.jsonl`` with ``text`` and ``label``).

    OpenPrompt classifies into the same classes in training and test. A folder whose files share their classes is
    taken as it is. One whose files have classes of their own, as meta-learning wants them, is divided anew by
    ``shots``: each class gives that many texts to train, ``dev_shots`` to dev and the rest to test.

    Args:
        num_classes: draw this many classes; all of them if ``None``.
        shots: training texts of each class; ``None`` keeps the files' own division.
        dev_shots: dev texts of each class; as many as ``shots`` if ``None``.
        seed: of the draws; which texts a class gives depends on nothing else.

    Raises:
        DataError: when examples are asked for and the folder cannot give them.
    """

    source: str | None = None

    def __init__(
        self,
        num_classes: int | None = None,
        shots: int | None = None,
        dev_shots: int | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__()
        for name, value, least in (("num_classes", num_classes, 2), ("shots", shots, 1), ("dev_shots", dev_shots, 0)):
            if value is not None and value < least:
                raise DataError(f"dataset.{name} must be at least {least}, got {value}.")
        if shots is None and dev_shots is not None:
            raise DataError("dataset.dev_shots goes with dataset.shots, which is not set.")
        self.num_classes = num_classes
        self.shots = shots
        self.dev_shots = shots if dev_shots is None else dev_shots
        self.seed = seed
        self._parts: dict[str, list[InputExample]] = {}
        self._read_from: str | None = None

    def get_examples(self, data_dir: str | None = None, split: str | None = "train") -> list[InputExample]:
        """The examples of ``train``, ``dev`` or ``test``. ``FileNotFoundError`` if there is no such part."""
        where = data_dir or self.source
        if where is None:
            raise DataError("dataset.path is not set: give the folder that holds train.jsonl and the others.")
        if where != self._read_from:
            self._parts = self._divide(read_records(where))
            self._read_from = where
        part = _PARTS.get(str(split), "")
        if not self._parts.get(part):
            raise FileNotFoundError(f"{where} has no examples for {split}.")
        return list(self._parts[part])

    def _divide(self, records: Records) -> dict[str, list[InputExample]]:
        self.labels = self._choose_classes(records)
        if self.shots is None:
            positions = {part: [i for i, p in enumerate(records.parts) if p == part] for part in _PARTS.values()}
            _require_shared_classes(records, positions)
        else:
            positions = self._draw_positions(records, self.shots, self.dev_shots or 0)
        chosen = set(self.labels)
        return {
            part: [
                InputExample(guid=f"{part}-{i}", text_a=records.texts[i], label=self.get_label_id(records.labels[i]))
                for i in found
                if records.labels[i] in chosen
            ]
            for part, found in positions.items()
        }

    def _choose_classes(self, records: Records) -> list[str]:
        if self.num_classes is None:
            return list(records.classes)
        if self.num_classes > len(records.classes):
            raise DataError(
                f"dataset.num_classes is {self.num_classes}, but {records.name} has {len(records.classes)} classes."
            )
        drawn = set(seeded_sample(records.classes, self.num_classes, "openprompt classes", self.seed))
        return [name for name in records.classes if name in drawn]

    def _draw_positions(self, records: Records, shots: int, dev_shots: int) -> dict[str, list[int]]:
        positions: dict[str, list[int]] = {"train": [], "valid": [], "test": []}
        for name in self.labels:
            own = [i for i, label in enumerate(records.labels) if label == name]
            if len(own) <= shots + dev_shots:
                raise DataError(
                    f"Class {name!r} of {records.name} has {len(own)} texts; dataset.shots = {shots} and dev_shots = "
                    f"{dev_shots} leave none for the test. Ask for fewer."
                )
            drawn = seeded_sample(own, len(own), "openprompt texts", self.seed, name)
            positions["train"] += drawn[:shots]
            positions["valid"] += drawn[shots : shots + dev_shots]
            positions["test"] += drawn[shots + dev_shots :]
        return positions


class DemoIntentsProcessor(JsonlFolderProcessor):
    """The data set that ships with the package, five texts a class to train and five to validate by default."""

    source = "demo"

    def __init__(
        self,
        num_classes: int | None = None,
        shots: int | None = 5,
        dev_shots: int | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__(num_classes, shots, dev_shots, seed)


def _require_shared_classes(records: Records, positions: dict[str, list[int]]) -> None:
    trained = {records.labels[i] for i in positions["train"]}
    for part in ("valid", "test"):
        unknown = sorted({records.labels[i] for i in positions[part]} - trained)
        if unknown:
            raise DataError(
                f"{len(unknown)} classes of {records.name} are in {part} and not in train, {unknown[0]!r} for "
                "one: OpenPrompt classifies into the classes it was trained on. Set dataset.shots to divide each "
                "class's texts into train, dev and test."
            )


PROCESSOR_CLASSES: dict[str, type[Any]] = {
    "jsonl_folder": JsonlFolderProcessor,
    "demo_intents": DemoIntentsProcessor,
}
_OPTIONS = tuple(inspect.signature(JsonlFolderProcessor).parameters)


def _load_splits(config: CfgNode) -> _Splits:
    name = config.dataset.name.lower()
    options = {key: config.dataset[key] for key in _OPTIONS if config.dataset[key] is not None}
    if name in PROCESSOR_CLASSES:
        processor = PROCESSOR_CLASSES[name](**options)
        path = config.dataset.path
        train, valid, test = (_examples(processor, path, split) for split in ("train", "dev", "test"))
    elif options:
        raise ConfigError(
            f"dataset.{next(iter(options))} is for the data sets {', '.join(PROCESSOR_CLASSES)}; for {name} use "
            "learning_setting: few_shot with sampling_from_train."
        )
    else:
        try:
            train, valid, test, processor = load_dataset(config)
        except SystemExit:  # what it does if it finds no file
            raise DataError(
                f"OpenPrompt finds no files of {config.dataset.name} in dataset.path: {config.dataset.path}. Its "
                "data sets are fetched with the scripts in its repository (datasets/*.sh)."
            ) from None
    return _Splits(processor, train, valid, test)


def _examples(processor: Any, path: str | None, split: str) -> Examples | None:
    try:
        examples: Examples = processor.get_examples(path, split)
    except FileNotFoundError:
        return None
    return examples


def _sampled(config: CfgNode, splits: _Splits, seed: int) -> _Splits:
    sampling = config.sampling_from_train
    sampler = FewShotSampler(
        num_examples_per_label=sampling.num_examples_per_label,
        also_sample_dev=sampling.also_sample_dev,
        num_examples_per_label_dev=sampling.num_examples_per_label_dev if sampling.also_sample_dev else None,
    )
    drawn = sampler(train_dataset=splits.train, valid_dataset=splits.valid, seed=seed)
    # With nothing to validate on, it gives the training examples alone.
    train, valid = drawn if isinstance(drawn, tuple) else (drawn, None)
    return _Splits(splits.processor, train, valid, splits.test)
