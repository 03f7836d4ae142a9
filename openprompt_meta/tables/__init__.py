"""The paper's tables, run and printed: definitions, cells, comparison, rendering."""
