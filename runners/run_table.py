"""Run and print one of the paper's tables: `openprompt-meta table`, as a script."""

from __future__ import annotations

import sys

from openprompt_meta.cli import main

if __name__ == "__main__":
    sys.exit(main(["table", *sys.argv[1:]]))
