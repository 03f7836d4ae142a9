"""Make `minilm-mlm`: bring the packaged encoder back to predicting words, and keep what that took.

Run again, it goes on where it was interrupted.
"""

from __future__ import annotations

import argparse
import logging
import sys
from pathlib import Path

from openprompt_meta.errors import OpenPromptMetaError


def main(arguments: list[str] | None = None) -> int:
    """Fit, judge, write; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("yaml", type=Path, help="settings, e.g. tools/minilm_mlm/minilm.yaml")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="e.g. steps=100 rank=8")
    parser.add_argument("--folder", type=Path, default=Path("runs/minilm-mlm"), help="checkpoints and the result")
    parser.add_argument("--corpus", type=Path, default=Path("runs/corpus"), help="where the text is kept")
    parser.add_argument("--tensorboard", action="store_true", help="write TensorBoard events too")
    parser.add_argument("--quiet", action="store_true", help="no progress bars")
    given = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(message)s")

    from tools.minilm_mlm.fit import fit
    from tools.minilm_mlm.settings import load_settings

    try:
        settings = load_settings(given.yaml, given.overrides)
        finished = fit(settings, given.folder, given.corpus, given.tensorboard, not given.quiet)
    except OpenPromptMetaError as error:
        print(error, file=sys.stderr)
        return 2
    return 0 if finished else 130


if __name__ == "__main__":
    sys.exit(main())
