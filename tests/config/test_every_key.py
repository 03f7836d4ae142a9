"""Every key, at a value other than its default, is found again in what is written."""

from __future__ import annotations

from pathlib import Path

from openprompt_meta.config.loading import load_config
from openprompt_meta.config.schema import RunConfig, describe
from openprompt_meta.config.writing import to_yaml
from tests.helpers.other_values import another_value, configs_with_each_key_changed

# On data and a model that go with every key: named by hand, with a vocabulary head.
BASE = RunConfig().with_values({"dataset.name": "mine", "dataset.path": "data", "plm.model_path": "bert-base-uncased"})


def test_a_written_configuration_keeps_every_key(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    changed = list(configs_with_each_key_changed(BASE))
    assert [key for key, _ in changed] == list(describe())
    for key, config in changed:
        file.write_text(to_yaml(config), encoding="utf-8")
        assert load_config(file).value_at(key.path) == another_value(key) != key.default, key.path
        assert load_config(file) == config
