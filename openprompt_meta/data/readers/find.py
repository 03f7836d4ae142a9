"""From what a user writes in a config (a name, a path) to the reader that understands it."""

from __future__ import annotations

from pathlib import Path

from openprompt_meta.components import readers
from openprompt_meta.data.facts import KNOWN_SETS
from openprompt_meta.data.readers.files import DEMO, TABLE_SUFFIXES
from openprompt_meta.data.readers.records import ClassNames, Records, Source
from openprompt_meta.errors import DataError, did_you_mean

__all__ = ["read_records"]

_HUB = "hf:"


def read_records(
    source: str | Path,
    *,
    format: str = "auto",
    name: str | None = None,
    root: str | Path = "data",
    text_column: str = "text",
    label_column: str = "label",
    class_names: ClassNames | None = None,
    config: str | None = None,
    revision: str | None = None,
    drop_empty: bool = False,
) -> Records:
    """The labelled texts of ``source``.

    Args:
        source: ``"demo"``; a folder or file; the name of one of the six sets, looked for in ``root``; or
            ``"hf:NAME"`` for a data set of the Hugging Face hub.
        format: ``auto``, which looks at the files, or the name of a declared reader.
        name: what the data set is called; for the authors' files, which of the six sets it is. By default the
            folder's or file's own name.
        root: where named data sets lie, as ``root/NAME`` or ``root/NAME.json``.
        text_column: where a table or Hugging Face data set has its texts.
        label_column: where it has its class names.
        class_names: names for integer labels.
        config: the configuration of a Hugging Face data set.
        revision: its commit, for results that can be repeated.
        drop_empty: pass over empty texts instead of refusing them.

    Raises:
        DataError: with file and line, if the source is missing or anything in it is wrong.
    """
    known = ("auto", *readers())
    if format not in known:
        raise DataError(
            f"Unknown format {format!r}; expected one of {', '.join(known)}." + did_you_mean(format, known)
        )
    where: str | Path = source
    if isinstance(source, str) and source.startswith(_HUB):
        where, format = source.removeprefix(_HUB), "huggingface"
    elif format == "auto" or not readers()[format].by_name:
        where = _path_of(source, Path(root))
        format = _format_of(where) if format == "auto" else format
    read = readers()[format].load()
    records: Records = read(
        Source(
            where=where,
            name=name,
            text_column=text_column,
            label_column=label_column,
            class_names=class_names,
            config=config,
            revision=revision,
            drop_empty=drop_empty,
        )
    )
    return records


def _path_of(source: str | Path, root: Path) -> Path:
    # Only the bare word: "./demo" is a folder of the user's.
    if source == "demo":
        return DEMO
    path = Path(source)
    # The authors' file of a set lies beside where its folder would, as data/hwu64.json beside data/hwu64.
    candidates = [path, Path(f"{path}.json"), root / path, root / f"{path}.json"]
    for candidate in candidates:
        if _exists(candidate):
            return candidate
    if path.name in KNOWN_SETS:
        folder = root if path.parent == Path() else path.parent
        raise DataError(
            f"The data set {path.name!r} is not in {folder}. Fetch it with `openprompt-meta data download {path.name} "
            f"--to {folder}`, or give the path of its folder or file."
        )
    raise DataError(
        f"There is no data at {path}. Give a folder, a file ({', '.join(TABLE_SUFFIXES)}), 'demo', one of "
        f"{', '.join(KNOWN_SETS)}, or 'hf:NAME' for the Hugging Face hub."
        + did_you_mean(str(source), ("demo", *KNOWN_SETS))
    )


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError) as error:  # a name that is too long or holds a zero byte, a folder that is closed
        raise DataError(f"{str(path)[:200]!r} cannot be looked at: {error}.") from None


def _format_of(path: Path) -> str:
    for reader in readers().values():
        if reader.recognises is not None and reader.recognises(path):
            return reader.name
    return "table"  # whose reader says what is wrong with anything else
