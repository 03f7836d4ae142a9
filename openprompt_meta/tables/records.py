"""A table for programs: one record for each row and column, as CSV or JSON."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import asdict
from typing import Any

from openprompt_meta.tables.results import Column, Line, TableResult

__all__ = ["FIELDS", "as_mapping", "records", "to_csv", "to_json"]

FIELDS = (
    "table",
    "row",
    "label",
    "published",
    "dataset",
    "shot",
    "kind",
    "model",
    "parameters",
    "mean",
    "interval",
    "deviation",
    "seeds",
    "tasks",
    "mark",
    "paper_mean",
    "paper_spread",
    "paper_millions",
    "against",
    "difference",
    "difference_interval",
    "p",
    "holm_p",
    "significant",
    "missing",
)
"""Accuracies run here are proportions, the paper's are per cent as printed."""


def records(result: TableResult) -> list[dict[str, Any]]:
    """Every row in every column, empty fields as ``None``."""
    return [_record(line, column, result) for line in result.lines for column in result.columns]


def to_csv(result: TableResult) -> str:
    """A line for each record, with a header."""
    text = io.StringIO()
    writer = csv.DictWriter(text, FIELDS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(records(result))
    return text.getvalue()


def to_json(result: TableResult) -> str:
    """Records, setting, notes and failures."""
    return json.dumps(as_mapping(result), indent=2, ensure_ascii=False) + "\n"


def as_mapping(result: TableResult) -> dict[str, Any]:
    """What :func:`to_json` writes."""
    return {
        "table": result.table.name,
        "setting": asdict(result.setting),
        "records": records(result),
        "notes": list(result.notes),
        "failures": list(result.failures),
    }


def _record(line: Line, column: Column, result: TableResult) -> dict[str, Any]:
    entry = line.entries[column]
    summary, comparison = entry.summary, entry.comparison
    paper = line.paper.get((column.dataset, column.shot))
    record: dict[str, Any] = dict.fromkeys(FIELDS)
    record |= {
        "table": result.table.name,
        "row": line.row.name,
        "label": line.row.label,
        "published": line.row.published,
        "dataset": column.dataset,
        "shot": column.shot,
        "kind": column.kind,
        "model": None if line.row.published else result.setting.plm,
        "parameters": line.parameters,
        "mark": entry.mark or None,
        "paper_millions": line.paper_millions,
        "missing": entry.missing or None,
    }
    if summary is not None:
        record |= {name: getattr(summary, name) for name in ("mean", "interval", "deviation", "seeds", "tasks")}
    if paper is not None:
        record |= {"paper_mean": paper.mean, "paper_spread": paper.spread}
    if comparison is not None:
        record |= {
            "against": comparison.against,
            "difference": comparison.difference.mean,
            "difference_interval": comparison.difference.interval,
            "p": comparison.difference.p,
            "holm_p": comparison.holm_p,
            "significant": comparison.is_significant,
        }
    return record
