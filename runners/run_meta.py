"""Meta-train and test what a YAML describes: `openprompt-meta train`, as a script."""

from __future__ import annotations

import sys

from openprompt_meta.cli import main

if __name__ == "__main__":
    sys.exit(main(["train", *sys.argv[1:]]))
