from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from openprompt_meta.config.loading import load_config
from openprompt_meta.config.schema import RunConfig
from openprompt_meta.errors import ConfigError

WriteYaml = Callable[..., Path]


@pytest.fixture
def write_yaml(tmp_path: Path) -> WriteYaml:
    """Write a YAML file (``run.yaml`` unless named) and give its path."""

    def write(text: str, name: str = "run.yaml") -> Path:
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(textwrap.dedent(text), encoding="utf-8")
        return file

    return write


@pytest.fixture
def load(write_yaml: WriteYaml) -> Callable[..., RunConfig]:
    """Load a YAML given as text, with overrides."""

    def load_text(text: str, *overrides: str) -> RunConfig:
        return load_config(write_yaml(text), overrides)

    return load_text


@pytest.fixture
def refusal(write_yaml: WriteYaml) -> Callable[..., str]:
    """The message with which a YAML given as text is refused."""

    def refuse(text: str, *overrides: str) -> str:
        with pytest.raises(ConfigError) as caught:
            load_config(write_yaml(text), overrides)
        return str(caught.value)

    return refuse
