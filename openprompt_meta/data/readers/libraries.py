"""Data sets of other libraries: Hugging Face's ``datasets``, and OpenPrompt's data processors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from openprompt_meta.data.readers.records import (
    RecordBuilder,
    Records,
    Source,
    column_of,
    split_name_of,
)
from openprompt_meta.errors import DataError, did_you_mean

if TYPE_CHECKING:
    import datasets


# -- Hugging Face: a data set by name, or a folder written by save_to_disk --------------------------------------------


def is_saved_dataset(path: Path) -> bool:
    """Whether ``save_to_disk`` has written this folder."""
    return (path / "dataset_dict.json").is_file() or (path / "state.json").is_file()


def read_huggingface(source: Source) -> Records:
    """All splits of a data set. A folder written by ``save_to_disk`` is read from disk, any other name from the hub.

    Integer labels get the names that the data set declares (``ClassLabel``), else those of the source. No code from
    the hub is run. :class:`DataError` if the data set cannot be loaded or lacks a column.
    """
    origin, text_column, label_column = source.where, source.text_column, source.label_column
    saved = is_saved_dataset(Path(origin))
    loaded = _from_disk(Path(origin)) if saved else _from_hub(str(origin), source.config, source.revision)
    parts: dict[str, datasets.Dataset] = dict(loaded) if isinstance(loaded, dict) else {"": loaded}
    records: RecordBuilder | None = None
    for part, table in parts.items():
        where = f"{origin}, split {part!r}" if part else str(origin)
        column_of(text_column, table.column_names, where, "text_column")
        column_of(label_column, table.column_names, where, "label_column")
        declared = getattr(table.features[label_column], "names", None)
        if records is None:
            records = RecordBuilder(class_names=declared or source.class_names, drop_empty=source.drop_empty)
        columns = zip(table[text_column], table[label_column], strict=True)
        for number, (text, label) in enumerate(columns):
            records.add(text, label, f"{where}, row {number}", split_name_of(part))
    if records is None:
        raise DataError(f"{origin} has no splits.")
    name = source.name or (Path(origin).name if saved else str(origin))
    return records.build(name, f"{origin} ({'saved folder' if saved else 'Hugging Face hub'})")


def _from_disk(path: Path) -> Any:
    library = _library()
    try:
        return library.load_from_disk(str(path))
    except Exception as error:
        raise DataError(f"{path} looks like a folder of save_to_disk but cannot be loaded: {error}") from error


def _from_hub(name: str, config: str | None, revision: str | None) -> Any:
    library = _library()
    try:
        return library.load_dataset(name, config, revision=revision)
    except Exception as error:
        raise DataError(
            f"The data set {name!r} cannot be loaded from the Hugging Face hub: {type(error).__name__}: {error} "
            f"Check the name, its configuration (config) and the connection, or save it with save_to_disk elsewhere "
            f"and give the folder."
        ) from error


def _library() -> Any:
    try:
        import datasets
    except ImportError as error:
        raise DataError("Reading Hugging Face data sets needs the datasets library: pip install datasets") from error
    # Before version 4 an environment variable or an old default could let a data set's own script run.
    if int(datasets.__version__.split(".")[0]) < 4:
        raise DataError(
            f"datasets {datasets.__version__} can run code that comes with a data set; version 4 or newer is needed: "
            f"pip install 'datasets>=4'"
        )
    return datasets


# -- OpenPrompt's processors: one of its own by name, or whatever has the same two members ----------------------------


class Processor(Protocol):
    """The part of ``openprompt.data_utils.data_processor.DataProcessor`` that is used."""

    labels: Sequence[Any]

    def get_examples(self, data_dir: str, split: str) -> Sequence[Any]:
        """Examples with ``text_a``, ``text_b`` and ``label``."""
        ...


def read_processor(source: Source) -> Records:
    """The examples of OpenPrompt's processor of the source's name, from the source's folder."""
    from openprompt.data_utils import PROCESSORS

    name = source.name or ""
    if name not in PROCESSORS:
        raise DataError(
            f"OpenPrompt has no data processor {name!r}.{did_you_mean(name, PROCESSORS)} "
            f"It has: {', '.join(sorted(PROCESSORS))}."
        )
    return replace(read_examples(PROCESSORS[name](), source.where, drop_empty=source.drop_empty), name=name)


def read_examples(
    processor: Processor,
    data_dir: str | Path,
    *,
    parts: Sequence[str] = ("train", "dev", "test"),
    drop_empty: bool = False,
) -> Records:
    """The examples of every part that exists; ``text_b`` follows ``text_a`` after a space.

    An example's label is a position in ``processor.labels`` or one of them. Many processors have no file for one of
    the parts: a missing file is passed over, unless all are missing.
    """
    names = [str(label) for label in processor.labels]
    builder = RecordBuilder(class_names=names, drop_empty=drop_empty)
    kind = type(processor).__name__
    missing = []
    for part in parts:
        try:
            examples = processor.get_examples(str(data_dir), part)
        except FileNotFoundError as error:
            missing.append(error)
            continue
        for number, example in enumerate(examples):
            where = f"{kind}, {data_dir}, {part}, example {number}"
            text = " ".join(filter(None, (example.text_a, getattr(example, "text_b", ""))))
            builder.add(text, _plain(example.label), where, split_name_of(part))
    if len(missing) == len(parts):
        raise DataError(f"{kind} found no file for {', '.join(parts)} in {data_dir}: {missing[0]}.")
    return builder.build(Path(data_dir).name, f"{data_dir} (through {kind})")


def _plain(label: Any) -> object:
    """A NumPy or torch scalar as a Python number; anything else as it is."""
    return label.item() if hasattr(label, "item") else label
