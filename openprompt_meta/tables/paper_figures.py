"""The figures that the paper prints, to stand beside what was run."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

__all__ = ["PaperFigure", "dataset_title", "paper_figure", "paper_millions"]


@dataclass(frozen=True)
class PaperFigure:
    """An accuracy as the paper prints it, in per cent."""

    mean: float
    spread: float | None
    """What stands after its ±: three seeds; not printed for every row."""

    def __str__(self) -> str:
        return f"{self.mean:.2f}" if self.spread is None else f"{self.mean:.2f} ± {self.spread:.2f}"


def paper_figure(table: str, row: str, dataset: str, shot: int) -> PaperFigure | None:
    """The paper's figure, or ``None`` where it prints none.

    Args:
        table: ``verbalizers``, ``main``, ``ablation-verbalizer`` or ``bmg``.
        row: the row's name.
        dataset: the data set's name.
        shot: support examples a class.
    """
    entry, datasets = _entry(table, row, shot), _content()["datasets"]
    if entry is None or dataset not in datasets:
        return None
    at = datasets.index(dataset)
    mean = entry["mean"][at]
    return None if mean is None else PaperFigure(mean, entry["spread"][at] if "spread" in entry else None)


def paper_millions(table: str, row: str, shot: int) -> float | None:
    """Millions of parameters as the paper prints them."""
    entry = _entry(table, row, shot)
    return None if entry is None else entry.get("millions")


def dataset_title(name: str) -> str:
    """The data set's name as the paper writes it; another's is its own."""
    datasets: list[str] = _content()["datasets"]
    return str(_content()["titles"][datasets.index(name)]) if name in datasets else name


def _entry(table: str, row: str, shot: int) -> dict[str, Any] | None:
    entry: dict[str, Any] | None = _content()["rows"].get(table, {}).get(str(shot), {}).get(row)
    return entry


@cache
def _content() -> dict[str, Any]:
    content: dict[str, Any] = json.loads(
        resources.files(__package__).joinpath("paper.json").read_text(encoding="utf-8")
    )
    return content
