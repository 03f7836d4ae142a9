"""Tiny runs to look at, made once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from openprompt_meta.config.schema import RunConfig
from openprompt_meta.report.finished_run import FinishedRun
from openprompt_meta.report.numbers_cache import NumbersCache, ReportOptions
from openprompt_meta.runs.run import Run
from tests.helpers.small_runs import small_config, write_data


@pytest.fixture(scope="session")
def runs_folder(tmp_path_factory: pytest.TempPathFactory, tiny_mlm_folder: Callable[[str], Path]) -> Path:
    """Three finished runs: ``plain``, ``warp`` (another verbalizer, two seeds) and ``pool`` (K = 2, L_p = 4)."""
    folder = tmp_path_factory.mktemp("finished")
    plain = small_config(tiny_mlm_folder("bert"), write_data(folder / "data"))
    for name, config in {
        "plain": plain,
        "warp": plain.with_values({"verbalizer": "warp_verbalizer", "run.seeds": [0, 1]}),
        "pool": _with_pool(plain, 2, 4),
    }.items():
        assert Run(config, folder / name, show_progress=False).train() is not None
    return folder


def _with_pool(config: RunConfig, num_prompts: int, length: int) -> RunConfig:
    section = config.prompt_pool_template.model_copy(update={"num_prompts": num_prompts, "prompt_length": length})
    return config.model_copy(update={"prompt_pool_template": section})


@pytest.fixture(scope="session")
def plain(runs_folder: Path) -> FinishedRun:
    return FinishedRun(runs_folder / "plain")


@pytest.fixture
def cache(tmp_path: Path) -> NumbersCache:
    return NumbersCache(tmp_path / "figures", ReportOptions(tasks=3, shots=(1, 2)), show_progress=False)
