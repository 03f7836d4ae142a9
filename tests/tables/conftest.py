from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.helpers.small_runs import write_data
from tests.helpers.small_tables import SmallTables


@pytest.fixture(scope="session")
def small_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("data")
    write_data(root / "small")
    return root


@pytest.fixture
def tables(tiny_mlm_folder: Callable[[str], Path], small_data: Path, tmp_path: Path) -> SmallTables:
    return SmallTables(tiny_mlm_folder("bert"), small_data, tmp_path / "tables")
