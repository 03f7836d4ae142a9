"""Reports of methods that have neither a pool nor an inner loop."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from openprompt_meta.components import figures
from openprompt_meta.report.finished_run import open_runs
from openprompt_meta.report.numbers_cache import ReportOptions
from openprompt_meta.report.writing import write_report
from openprompt_meta.runs.run import Run
from tests.helpers.small_runs import small_config, write_data

MADE = {"training", "tasks", "classes", "confusion", "calibration", "baselines"}


@pytest.mark.parametrize(("method", "others"), [("ds", {"shots"}), ("mlada", {"shots"}), ("hatt", set())])
def test_what_fits_a_method_without_an_inner_loop_is_on_its_page(
    method: str, others: set[str], tiny_mlm_folder: Callable[[str], Path], tmp_path: Path
) -> None:
    config = small_config(tiny_mlm_folder("bert"), write_data(tmp_path / "data"), iterations=2)
    assert Run(config.with_values({"method": method}), tmp_path / method, show_progress=False).train() is not None
    options = ReportOptions(tasks=2, shots=(1, 2))
    page = write_report([tmp_path / method], tmp_path / "report", options, show_progress=False, slow=True)
    drawn = {file.stem for file in page.parent.rglob("*.png")}
    assert drawn == MADE | others
    text = page.read_text(encoding="utf-8")
    assert not figures()["inner-loop"].fits(open_runs([tmp_path / method]))
    assert "holds a pool of shapes" not in text
