"""Our data sets as OpenPrompt's: a folder of labelled texts, and the demo set, under names in its table."""

from __future__ import annotations

from typing import Any

from openprompt.data_utils import InputExample
from openprompt.data_utils.data_processor import DataProcessor

from openprompt_meta.data.episodes import seeded_sample
from openprompt_meta.data.readers.find import read_records
from openprompt_meta.data.readers.records import Records
from openprompt_meta.errors import DataError

__all__ = ["PROCESSOR_CLASSES", "DemoIntentsProcessor", "JsonlFolderProcessor"]

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
