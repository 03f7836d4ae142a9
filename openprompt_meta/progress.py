"""Progress bars: one that moves where a person sees it, a line now and then where nobody does. Knows no torch."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable
from typing import Any, TypeAlias, TypeVar

from tqdm.auto import tqdm

ProgressBar: TypeAlias = "tqdm[Any]"
Item = TypeVar("Item")

SECONDS_A_LINE = 30.0
"""How long a log that is not a terminal waits for its next line."""


def progress_bar(
    items: Iterable[Item] | None = None, *, title: str, unit: str = "it", show: bool = True, **options: Any
) -> ProgressBar:
    """A bar on stderr, to be advanced by ``update`` or by going through ``items``.

    Where stderr is neither a terminal nor a notebook, what takes less than half a minute is not mentioned, and of
    what takes longer there is a line every half minute and one at the end.

    Args:
        items: what is gone through, if anything.
        title: what is being done.
        unit: of what is counted.
        show: whether to draw anything at all.
        options: others of tqdm, such as ``total`` and ``leave``.
    """
    seen = sys.stderr.isatty() or "ipykernel" in sys.modules
    kind = tqdm if seen else _Lines
    return kind(items, desc=title, unit=unit, disable=not show, **options)


def write_above(text: str) -> None:
    """A line on stderr that no bar runs into."""
    tqdm.write(text, sys.stderr)


class _Lines(tqdm):
    """A bar for files: whole lines, none of them to be overwritten."""

    disable: bool
    _began = _written = 0.0

    def __init__(self, *args: Any, **options: Any) -> None:
        self._began = self._written = time.monotonic()
        # The total stands in every line in place of a bar; its width is nobody's business.
        total = "/{total_fmt}" if options.get("total") or (args and hasattr(args[0], "__len__")) else ""
        form = "{desc}: {n_fmt}" + total + " {unit} [{elapsed}{postfix}]"
        super().__init__(*args, bar_format=form, miniters=1, mininterval=0.5, **options)

    def display(self, msg: str | None = None, pos: int | None = None) -> None:
        """Write a line if the last one is long enough ago."""
        if time.monotonic() - self._written >= SECONDS_A_LINE:
            self._write_line()

    def clear(self, nolock: bool = False) -> None:
        """Nothing: what is written stays."""

    def close(self) -> None:
        """Write the last line of what took long."""
        if self.disable:
            return
        self.disable = True
        self._decr_instances(self)
        if time.monotonic() - self._began >= SECONDS_A_LINE:
            self._write_line()

    def _write_line(self) -> None:
        self._written = time.monotonic()
        self.fp.write(f"{self}\n")
        self.fp.flush()
