"""Data sets of the Hugging Face ``datasets`` library, by name or from a folder written by ``save_to_disk``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from openprompt_meta.data.readers.records import (
    ClassNames,
    RecordBuilder,
    Records,
    column_of,
    split_name_of,
)
from openprompt_meta.errors import DataError

if TYPE_CHECKING:
    import datasets

__all__ = ["is_saved_dataset", "read_huggingface"]


def is_saved_dataset(path: Path) -> bool:
    """Whether ``save_to_disk`` has written this folder."""
    return (path / "dataset_dict.json").is_file() or (path / "state.json").is_file()


def read_huggingface(
    source: str | Path,
    *,
    config: str | None = None,
    revision: str | None = None,
    text_column: str = "text",
    label_column: str = "label",
    class_names: ClassNames | None = None,
    drop_empty: bool = False,
) -> Records:
    """All splits of a data set. A folder written by ``save_to_disk`` is read from disk, any other name from the hub.

    Integer labels get the names that the data set declares (``ClassLabel``), else those of ``class_names``. No code
    from the hub is run. :class:`DataError` if the data set cannot be loaded or lacks a column.
    """
    saved = is_saved_dataset(Path(source))
    loaded = _from_disk(Path(source)) if saved else _from_hub(str(source), config, revision)
    parts: dict[str, datasets.Dataset] = dict(loaded) if isinstance(loaded, dict) else {"": loaded}
    records: RecordBuilder | None = None
    for part, table in parts.items():
        where = f"{source}, split {part!r}" if part else str(source)
        column_of(text_column, table.column_names, where, "text_column")
        column_of(label_column, table.column_names, where, "label_column")
        declared = getattr(table.features[label_column], "names", None)
        if records is None:
            records = RecordBuilder(class_names=declared or class_names, drop_empty=drop_empty)
        columns = zip(table[text_column], table[label_column], strict=True)
        for number, (text, label) in enumerate(columns):
            records.add(text, label, f"{where}, row {number}", split_name_of(part))
    if records is None:
        raise DataError(f"{source} has no splits.")
    name = Path(source).name if saved else str(source)
    return records.build(name, f"{source} ({'saved folder' if saved else 'Hugging Face hub'})")


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
