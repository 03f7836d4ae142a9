"""TensorBoard events, on request."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

__all__ = ["tensorboard_writer"]


@contextmanager
def tensorboard_writer(folder: Path, wanted: bool, done: int) -> Iterator[Callable[[dict[str, Any]], None]]:
    """A function that writes a record's numbers as TensorBoard scalars under its kind, or does nothing.

    Args:
        folder: of the seed.
        wanted: whether to write anything.
        done: iterations that a resumed run does not do again; later ones replace what an earlier try wrote.
    """
    if not wanted:
        yield lambda record: None
        return
    from tensorboardX import SummaryWriter

    writer = SummaryWriter(str(folder / "tensorboard"), purge_step=done + 1)

    def write(record: dict[str, Any]) -> None:
        for name, value in record.items():
            if isinstance(value, float):
                writer.add_scalar(f"{record['kind']}/{name}", value, record["iteration"])

    try:
        yield write
    finally:
        writer.close()
