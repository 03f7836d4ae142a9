"""The paper's tables, run and printed: definitions, cells, comparison, rendering."""

from openprompt_meta.tables.cells import Cell, cells_of
from openprompt_meta.tables.definitions import TABLES, Row, Table, rows_of, table_named
from openprompt_meta.tables.execution import CellState, Stopped, look_up, run_missing
from openprompt_meta.tables.results import TableResult, assemble
from openprompt_meta.tables.settings import Setting, check_overrides

__all__ = [
    "TABLES",
    "Cell",
    "CellState",
    "Row",
    "Setting",
    "Stopped",
    "Table",
    "TableResult",
    "assemble",
    "cells_of",
    "check_overrides",
    "look_up",
    "rows_of",
    "run_missing",
    "table_named",
]
