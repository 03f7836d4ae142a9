"""Every shipped YAML, run for one iteration on a tiny model and made-up texts of its own classes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from openprompt_meta.config.loading import load_config
from openprompt_meta.data.facts import facts_of
from openprompt_meta.runs.run import Run
from tests.helpers.small_runs import write_data

YAMLS = Path(__file__).parents[2] / "yamls"
RUNS = sorted(file for file in YAMLS.rglob("*.yaml") if file.parent.name not in ("base", "mlm", "openprompt"))


@pytest.mark.parametrize("yaml", RUNS, ids=[str(file.relative_to(YAMLS)) for file in RUNS])
def test_a_shipped_yaml_runs(yaml: Path, tiny_mlm_folder: Callable[[str], Path], tmp_path: Path) -> None:
    config = load_config(yaml)
    meta = replace(
        config.meta,
        iterations=1,
        valid_tasks=1,
        test_tasks=1,
        query=1,
        inner_steps=1,
        inner_steps_eval=1,
        patience=None,
    )
    dataset = config.dataset
    if dataset.name != "demo":
        lists = facts_of(dataset.name).splits["authors"]
        topics = {"train": lists.train, "valid": lists.valid, "test": lists.test}
        dataset = replace(dataset, path=str(write_data(tmp_path / dataset.name, topics, each=6)))
    plm = replace(config.plm, model_path=str(tiny_mlm_folder("bert")))
    config = replace(config, plm=plm, dataset=replace(dataset, max_seq_length=64), meta=meta)
    results = Run(config, tmp_path / "run", show_progress=False).train()
    assert results is not None
    assert results["dataset"] == config.dataset.name
