"""``python -m openprompt_meta`` is the ``openprompt-meta`` command."""

from openprompt_meta.cli import program

raise SystemExit(program())
