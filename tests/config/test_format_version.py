"""Files of the first release are still read."""

from __future__ import annotations

from pathlib import Path

import pytest

from openprompt_meta.config.loading import load_config
from openprompt_meta.config.validation import config_from_mapping
from openprompt_meta.errors import ConfigError

OLD = "plm:\n  model_path: minilm\nmeta:\n  method: metaprompter\n  way: 3\n"


def test_the_method_of_a_first_run_folder_is_found(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(OLD.replace("metaprompter", "mean_prototypes"), encoding="utf-8")
    config = load_config(path)
    assert (config.method, config.meta.way) == ("mean_prototypes", 3)
    assert config_from_mapping({"meta": {"method": "mean_prototypes"}}).method == "mean_prototypes"


@pytest.mark.parametrize("line", ["version: 1", "method: metaprompter"])
def test_in_a_present_file_it_stands_at_the_top_only(tmp_path: Path, line: str) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(f"{line}\n{OLD}", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"meta\.method: unknown key"):
        load_config(path)
