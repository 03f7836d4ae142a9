"""Every shipped YAML, run for one iteration on a tiny model and made-up texts of its own classes."""

from __future__ import annotations

from collections.abc import Callable
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
    small = ("iterations", "valid_tasks", "test_tasks", "query", "inner_steps", "inner_steps_eval")
    config = config.with_values({f"meta.{name}": 1 for name in small} | {"meta.patience": None})
    name = config.dataset.name
    if config.dataset.mixture:
        config = config.with_values({"dataset.mixture": ["demo"], "meta.train_shots": [0, 2], "meta.train_texts": 8})
        name = "demo"
        config = config.with_values({"dataset.max_samples": 20, "plm.precision": "float32"})
    if name != "demo":
        lists = facts_of(name).splits["authors"]
        topics = {"train": lists.train, "valid": lists.valid, "test": lists.test}
        config = config.with_values({"dataset.path": str(write_data(tmp_path / name, topics, each=6))})
    if config.prompt_pool_template.init == "general":  # it is of the packaged encoder's size
        config = config.with_values({"prompt_pool_template.init": "random"})
    config = config.with_values({"plm.model_path": str(tiny_mlm_folder("bert")), "dataset.max_seq_length": 64})
    results = Run(config, tmp_path / "run", show_progress=False).train()
    assert results is not None
    assert results["dataset"] == config.dataset.name
