"""The paper's figures, against values read from its tables by eye."""

from __future__ import annotations

import pytest

from openprompt_meta.config.schema import KNOWN_DATASETS
from openprompt_meta.tables.definitions import TABLES, dataset_title, paper_accuracy, paper_millions


@pytest.mark.parametrize(
    ("table", "row", "dataset", "shot", "printed"),
    [
        ("verbalizers", "warp", "20news", 5, "61.43 ± 0.15"),
        ("verbalizers", "protoverb", "reuters", 5, "80.93 ± 0.54"),
        ("verbalizers", "repverb", "hwu64", 5, "78.37 ± 0.49"),
        ("verbalizers", "repverb", "liu54", 1, "66.17 ± 0.40"),
        ("main", "hatt", "amazon", 5, "66.00"),
        ("main", "mlada", "reuters", 1, "82.30"),
        ("main", "contrastnet", "hwu64", 1, "86.56"),
        ("main", "metaprompting", "huffpost", 5, "72.85 ± 1.01"),
        ("main", "metaprompting+repverb", "huffpost", 1, "69.02 ± 0.51"),
        ("main", "metaprompter", "hwu64", 5, "95.30 ± 0.51"),
        ("main", "metaprompter", "huffpost", 1, "67.12 ± 0.23"),
        ("ablation-verbalizer", "hand-crafted", "liu54", 5, "90.32"),
        ("ablation-verbalizer", "repverb", "amazon", 5, "86.05"),
        ("bmg", "metaprompting+bmg", "20news", 5, "85.71"),
        ("bmg", "metaprompter+bmg", "reuters", 5, "98.01"),
    ],
)
def test_a_figure_is_the_papers(table: str, row: str, dataset: str, shot: int, printed: str) -> None:
    assert str(paper_accuracy(table, row, dataset, shot)) == printed


@pytest.mark.parametrize(
    ("row", "millions"),
    [("hatt", 0.07), ("ds", 1.73), ("mlada", 0.73), ("contrastnet", 109.52), ("metaprompter", 0.06)],
)
def test_parameters_are_the_papers(row: str, millions: float) -> None:
    assert paper_millions("main", row, 5) == paper_millions("main", row, 1) == millions


def test_what_the_paper_does_not_print_is_not_made_up() -> None:
    assert paper_accuracy("main", "ds", "hwu64", 5) is None
    assert paper_accuracy("bmg", "metaprompter+bmg", "hwu64", 1) is None
    assert paper_accuracy("verbalizers", "dart", "hwu64", 5) is None
    assert paper_accuracy("main", "metaprompter", "demo", 5) is None


def test_metaprompter_is_the_papers_best_but_on_huffpost_with_one_shot() -> None:
    rows = [row.name for row in TABLES["main-5shot"].rows if row.paper is not None]
    for shot in (5, 1):
        for dataset in KNOWN_DATASETS:
            figures = {row: figure.mean for row in rows if (figure := paper_accuracy("main", row, dataset, shot))}
            best = max(figures, key=figures.__getitem__)
            assert best == ("metaprompting+repverb" if (dataset, shot) == ("huffpost", 1) else "metaprompter")


def test_the_verbalizers_keep_the_papers_order() -> None:
    for shot in (5, 1):
        for dataset in KNOWN_DATASETS:
            figures = [paper_accuracy("verbalizers", row, dataset, shot) for row in ("warp", "protoverb", "repverb")]
            means = [figure.mean for figure in figures if figure is not None]
            assert len(means) == 3
            assert means == sorted(means)


def test_every_row_that_points_at_the_paper_finds_its_figures() -> None:
    for table in TABLES.values():
        for row in table.rows:
            if row.paper is not None:
                assert paper_accuracy(*row.paper, "reuters", table.shots[0]) is not None, (table.name, row.name)


def test_data_sets_are_called_as_in_the_paper() -> None:
    assert [dataset_title(name) for name in ("20news", "hwu64", "demo")] == ["20News", "HWU64", "demo"]
