"""A tiny run, trained once a session, and classifiers made from it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.helpers.few_texts import LABELS, TEXTS

if TYPE_CHECKING:
    from openprompt_meta import MetaPromptClassifier


@pytest.fixture(scope="session")
def tiny_run(tiny_mlm_folder: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished run on a tiny BERT; do not write to it."""
    from openprompt_meta.runs.run import Run
    from tests.helpers.small_runs import small_config, write_data

    folder = tmp_path_factory.mktemp("tiny_run")
    config = small_config(tiny_mlm_folder("bert"), write_data(folder / "data"), inner_steps_eval=3)
    assert Run(config, folder / "run", show_progress=False).train() is not None
    return folder / "run"


@pytest.fixture
def unfitted(tiny_run: Path) -> MetaPromptClassifier:
    """A classifier on the run's pool."""
    from openprompt_meta import MetaPromptClassifier

    return MetaPromptClassifier.from_run(tiny_run)


@pytest.fixture
def fitted(unfitted: MetaPromptClassifier) -> MetaPromptClassifier:
    """The same, fitted to TEXTS and LABELS."""
    return unfitted.fit(TEXTS, LABELS)
