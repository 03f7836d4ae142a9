"""A made-up table, printed: what stands where, and how it is marked."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from openprompt_meta.errors import RunError
from openprompt_meta.files import without_formula
from openprompt_meta.tables.cells import Cell, CellOutcome, CellState, TableSettings, cells_of
from openprompt_meta.tables.definitions import TABLES, rows_of
from openprompt_meta.tables.rendering import (
    FIELDS,
    records,
    to_csv,
    to_json,
    to_latex,
    to_markdown,
    to_terminal,
    write_files,
)
from openprompt_meta.tables.results import TableResult, assemble

NAMES = ("hatt", "contrastnet", "metaprompting+warp", "metaprompting+repverb", "metaprompter", "mean-prototypes")


def made_up(kinds: dict[str, str] | None = None, plm: str = "minilm", **options: object) -> TableResult:
    table = TABLES["main-5shot"]
    rows = rows_of(table, NAMES)
    settings = TableSettings(
        datasets=("hwu64",), plm=plm, tasks=4, seeds=(0, 1), overrides=("plm.precision=bfloat16",)
    )
    hardness = np.array([0.0, 0.1, -0.1, 0.04])
    levels = {"contrastnet": 0.78, "metaprompting+repverb": 0.85, "metaprompter": 0.86, "mean-prototypes": 0.6}
    states = {}
    for cell in cells_of(rows, settings, Path("cells")):
        if cell.row.name in levels:
            values = levels[cell.row.name] + hardness + 0.02 * cell.seed
            kind = (kinds or {}).get(cell.row.name, "inductive")
            states[cell] = CellState(CellOutcome(tuple(values), kind, 27_648, 12.0))
        else:
            states[cell] = CellState(reason="no room_for 5 & more")
    return assemble(table, rows, settings, states, **options)  # type: ignore[arg-type]


MARKDOWN = """\
## Every method, 5-shot

| method | #param (M) | HWU64 5-shot | paper |
| --- | --- | --- | --- |
| HATT | – | failed | – |
| ContrastNet | 0.03 | 80.00 ± 5.44 (1.41) | 92.57 |
| MetaPrompting+WARP | – | failed | 93.99 ± 0.76 |
| MetaPrompting+RepVerb | 0.03 | _87.00 ± 5.44 (1.41)_ | 94.23 ± 0.67 |
| MetaPrompter | 0.03 | **88.00 ± 5.44 (1.41)** | 95.30 ± 0.51 |
| class means of mean-pooled features | 0.03 | 62.00 ± 5.44 (1.41) | – |
"""


def test_markdown_is_the_papers_table_with_ours_beside_it() -> None:
    text = to_markdown(made_up())
    assert text.startswith(MARKDOWN)
    assert "| class means of mean-pooled features | -26.00 | -26.00 to -26.00 | 0.0078 | 0.0234 | yes |" in text
    assert "- MetaPrompting+WARP (HWU64, 5-shot, seed 0, 1): no room\\_for 5 & more\n" in text


def test_the_terminal_marks_the_best_and_what_is_within_its_interval() -> None:
    lines = to_terminal(made_up()).splitlines()
    assert "MetaPrompting+RepVerb                0.03        87.00 ± 5.44 (1.41) ~  94.23 ± 0.67" in lines
    assert "MetaPrompter                         0.03        88.00 ± 5.44 (1.41) *  95.30 ± 0.51" in lines


def test_latex_has_no_sign_left_that_latex_would_read() -> None:
    text = to_latex(made_up())
    assert r"MetaPrompter & 0.03 & \textbf{88.00 $\pm$ 5.44 (1.41)} & 95.30 $\pm$ 0.51 \\" in text
    assert r"\underline{87.00 $\pm$ 5.44 (1.41)}" in text
    assert r"no room\_for 5 \& more" in text
    assert r"\#param (M)" in text
    bare = text.replace(r"\%", "").replace("% Needs", "").replace(r"\_", "").replace(r"\#", "").replace(r"\&", "")
    assert not set("%_#^~") & set(bare)
    assert text.count(r"\begin{tabular}") == text.count(r"\end{tabular}") == 2


def test_csv_and_json_hold_the_same_records() -> None:
    result = made_up()
    read = list(csv.DictReader(to_csv(result).splitlines()))
    assert tuple(read[0]) == FIELDS
    assert json.loads(to_json(result))["records"] == records(result)
    by_row = {record["row"]: record for record in read}
    assert by_row["metaprompter"]["mark"] == "best"
    assert by_row["metaprompting+repverb"]["mark"] == "within"
    assert (by_row["contrastnet"]["paper_mean"], by_row["hatt"]["mean"]) == ("92.57", "")
    assert float(by_row["contrastnet"]["mean"]) == pytest.approx(0.8)
    assert float(by_row["metaprompter"]["mean"]) == pytest.approx(0.88)


@pytest.mark.parametrize("name", ['=HYPERLINK("http://evil.example")', "@SUM(A1)", "-x", "x\r=1", "\t=1"])
def test_a_spreadsheet_has_nothing_to_run_in_csv(tmp_path: Path, name: str) -> None:
    result = made_up(plm=name)
    for raw in (False, True):
        (file,) = (file for file in write_files(result, tmp_path, raw_cells=raw) if file.suffix == ".csv")
        with file.open(encoding="utf-8", newline="") as stream:
            read = list(csv.DictReader(stream))
        assert len(read) == len(records(result))
        assert {row["model"] for row in read} == {name if raw else without_formula(name)}
        formulas = [cell for row in read for cell in row.values() if without_formula(cell) != cell]
        assert bool(formulas) is (raw and name != "x\r=1")
        assert json.loads(file.with_suffix(".json").read_text("utf-8"))["records"] == records(result)


def test_the_two_kinds_of_figures_never_meet() -> None:
    result = made_up({"metaprompter": "transductive"})
    header = next(line for line in to_markdown(result).splitlines() if line.startswith("| method"))
    assert header == "| method | #param (M) | HWU64 5-shot | HWU64 5-shot, transductive | paper |"
    by_kind = {(record["row"], record["kind"]): record for record in records(result)}
    assert by_kind["metaprompter", "inductive"]["mean"] is None
    assert by_kind["metaprompter", "transductive"]["mark"] == "best"
    assert by_kind["metaprompting+repverb", "inductive"]["mark"] == "best"
    assert by_kind["metaprompting+repverb", "inductive"]["against"] is None
    assert by_kind["mean-prototypes", "inductive"]["against"] == "metaprompting+repverb"


def test_rows_are_compared_with_the_chosen_one() -> None:
    by_row = {record["row"]: record for record in records(made_up(against="mean-prototypes"))}
    assert by_row["metaprompter"]["against"] == "mean-prototypes"
    assert by_row["metaprompter"]["difference"] == pytest.approx(0.26)
    assert by_row["mean-prototypes"]["difference"] is None


def test_a_seed_that_failed_is_left_out_of_both_sides() -> None:
    table = TABLES["main-5shot"]
    rows = rows_of(table, ("metaprompter", "mean-prototypes"))
    settings = TableSettings(seeds=(0, 1), tasks=2)

    def state(cell: Cell) -> CellState:
        if cell.row.name == "metaprompter" and cell.seed == 1:
            return CellState(reason="killed")
        base = 0.5 if cell.row.name == "metaprompter" else 0.1 * (1 + 7 * cell.seed)
        return CellState(CellOutcome((base, base + 0.1), "inductive", 1, None))

    states = {cell: state(cell) for cell in cells_of(rows, settings, Path("cells"))}
    result = assemble(table, rows, settings, states, "metaprompter")
    by_row = {record["row"]: record for record in records(result)}
    assert by_row["metaprompter"]["seeds"] == 1
    assert by_row["mean-prototypes"]["difference"] == pytest.approx(0.1 - 0.5)
    assert result.failures == ("MetaPrompter (demo, 5-shot, seed 1): killed",)


def test_the_notes_say_what_differs_from_what_was_asked_for() -> None:
    notes = " ".join(made_up().notes)
    assert "Keys for every cell: plm.precision=bfloat16." in notes
    assert "minilm has no vocabulary head: MetaPrompter runs with RepVerb alone" in notes
    assert "4 test tasks for each seed (0, 1)" in notes
    assert "4 of 12 cells have no figure" in notes
    assert notes.count("who divide the classes of 20News, Amazon and HuffPost in two ways") == 1


def test_files_are_written_whole_or_not_at_all(tmp_path: Path) -> None:
    files = write_files(made_up(), tmp_path / "out")
    assert [file.suffix for file in files] == [".md", ".tex", ".csv", ".json"]
    assert len({file.stem for file in files}) == 1
    assert files[0].stem.startswith("main-5shot-hwu64-minilm-")
    assert files[0].read_text(encoding="utf-8") == to_markdown(made_up())
    (tmp_path / "in the way").write_text("")
    with pytest.raises(RunError, match="Choose another --folder"):
        write_files(made_up(), tmp_path / "in the way")
