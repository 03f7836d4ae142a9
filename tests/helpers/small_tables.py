"""What the tests of tables share: the command on a tiny model, small data, short runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from openprompt_meta.cli import main

KEYS = [
    "dataset.max_seq_length=48",
    "prompt_pool_template.prompt_length=2",
    "meta.way=3",
    "meta.query=2",
    "meta.iterations=2",
    "meta.validate_every=1",
    "meta.valid_tasks=2",
    "meta.inner_steps=1",
    "meta.inner_steps_eval=1",
]


@dataclass(frozen=True)
class SmallTables:
    """``tables("ablation-K", "--rows", "K-1")``: the command on small data, in one folder; its exit code."""

    model: Path
    root: Path
    folder: Path

    def __call__(self, table: str, *options: str, keys: Sequence[str] = KEYS) -> int:
        return main(self.command(table, *options, keys=keys))

    def command(self, table: str, *options: str, keys: Sequence[str] = KEYS) -> list[str]:
        """The same as the words of a command line."""
        given = ["--dataset", "small", "--root", str(self.root), "--plm", str(self.model), "--tasks", "6", "--quiet"]
        return ["table", table, *given, "--folder", str(self.folder), *options, *keys]

    def cells(self) -> set[Path]:
        return set((self.folder / "cells").glob("*"))
