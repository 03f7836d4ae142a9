"""The page and the pictures: that they are made, whole, and in need of nothing else."""

from __future__ import annotations

import base64
import json
import re
import shlex
import shutil
import sys
import xml.etree.ElementTree as ElementTree
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from openprompt_meta import progress
from openprompt_meta.cli import main
from openprompt_meta.compat.versions import command_for_extra
from openprompt_meta.components import figures
from openprompt_meta.errors import CompatibilityError, RunError
from openprompt_meta.report.figures import predictions
from openprompt_meta.report.finished_run import FinishedRun
from openprompt_meta.report.numbers_cache import NumbersCache, ReportOptions
from openprompt_meta.report.page import FigureSection, Picture, RunSummary, render_page
from openprompt_meta.report.writing import plot, write_report
from openprompt_meta.runs.evaluation import evaluate_tasks

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
QUICK = ReportOptions(tasks=2, shots=(1, 2))
COMPARISONS = {"tuning", "paired", "num-prompts", "prompt-length"}


class Page(HTMLParser):
    """What a page refers to, and what is written on it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.references: list[str] = []
        self.elements: list[str] = []
        self.ids: list[str] = []
        self.words = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append(tag)
        for name, value in attrs:
            if name in ("src", "href", "srcset", "action", "data", "poster", "background", "xlink:href"):
                self.references.append(value or "")
            if name == "id":
                self.ids.append(value or "")

    def handle_data(self, data: str) -> None:
        self.words += data


@pytest.fixture(scope="session")
def report(runs_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_report(
        [runs_folder / "plain"], tmp_path_factory.mktemp("report"), QUICK, show_progress=False, slow=True
    )


@pytest.fixture(scope="session")
def comparison(runs_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    paths = [runs_folder / name for name in ("plain", "warp", "pool")]
    only = [*sorted(COMPARISONS), "training"]
    return write_report(paths, tmp_path_factory.mktemp("comparison"), QUICK, show_progress=False, only=only)


def test_every_figure_of_one_run_is_made_as_png_svg_and_json(report: Path) -> None:
    for name in figures().keys() - COMPARISONS:
        stem = report.parent / "figures" / name
        assert stem.with_suffix(".png").read_bytes().startswith(b"\x89PNG"), name
        assert ElementTree.parse(stem.with_suffix(".svg")).getroot().tag.endswith("svg"), name  # noqa: S314 - our own
        assert json.loads(stem.with_suffix(".json").read_text(encoding="utf-8"))["numbers"], name


def test_what_takes_long_is_made_when_it_is_asked_for(
    runs_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = write_report([runs_folder / "plain"], tmp_path, QUICK, show_progress=False)
    made = {file.stem for file in (tmp_path / "figures").glob("*.svg")}
    slow = {name for name, kind in figures().items() if kind.slow}
    assert slow == {"inner-loop", "shots"}
    assert made == figures().keys() - COMPARISONS - slow
    for name in slow:
        command = f"plot {name} {runs_folder / 'plain'} --tasks 2 --shots 1,2"
        assert command in page.read_text(encoding="utf-8")
        assert main([*shlex.split(command), "--out", str(tmp_path / "figures"), "--quiet"]) == 0
        assert f"{name}.png" in capsys.readouterr().out


def test_a_report_evaluates_the_tasks_once(runs_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    evaluated = []

    def counted(learner: Any, source: Any, tasks: int, *others: Any) -> Any:
        evaluated.append(tasks)
        return evaluate_tasks(learner, source, tasks, *others)

    monkeypatch.setattr(predictions, "evaluate_tasks", counted)
    only = ["classes", "confusion", "calibration", "tasks"]
    write_report([runs_folder / "plain"], tmp_path, QUICK, show_progress=False, only=only)
    assert evaluated == [QUICK.tasks]


def test_the_bar_says_which_figure_is_being_made(
    runs_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "SECONDS_A_LINE", 0.0)
    write_report([runs_folder / "plain"], tmp_path, QUICK, only=["training", "cosine"])
    shown = capsys.readouterr().err
    assert "report, training: 0/2 figure" in shown
    assert "report, cosine: 1/2 figure" in shown


def test_comparisons_are_made_of_several_runs(comparison: Path) -> None:
    made = {file.stem for file in (comparison.parent / "figures").glob("*.svg")}
    assert made >= COMPARISONS
    assert {"training-plain", "training-warp", "training-pool"} <= made


def test_the_page_refers_to_nothing_outside_itself(report: Path, comparison: Path) -> None:
    for file in (report, comparison):
        page = Page(file.read_text(encoding="utf-8"))
        assert page.references
        for reference in page.references:
            assert reference.startswith(("data:", "#")), reference
            assert not reference.startswith("#") or reference[1:] in page.ids
        assert not {"script", "iframe", "object", "embed"} & set(page.elements)
        assert "@import" not in page.words
        assert "url(" not in page.words


def test_embedded_pictures_refer_to_nothing_outside_themselves(report: Path) -> None:
    page = Page(report.read_text(encoding="utf-8"))
    pictures = [one for one in page.references if one.startswith("data:image/svg+xml;base64,")]
    assert len(pictures) == len(figures().keys() - COMPARISONS)
    for picture in pictures:
        root = ElementTree.fromstring(base64.b64decode(picture.partition(",")[2]))  # noqa: S314 - our own
        for element in root.iter():
            for name, value in element.attrib.items():
                if name.endswith("href"):
                    assert value.startswith(("#", "data:")), value


def test_the_page_opens_with_the_result_and_ends_with_how_to_reproduce_it(report: Path, plain: FinishedRun) -> None:
    words = Page(report.read_text(encoding="utf-8")).words
    result = f"{100 * plain.accuracy.mean:.2f} ±"
    places = [
        words.index(part)
        for part in (
            "How good is it?",
            result,
            "Against what",
            "What is set otherwise",
            "Training and validation",
            "Reproduce it",
        )
    ]
    assert "Not made" not in words
    assert places[0] < places[1] < places[2] < places[3]
    assert words.rindex("Training and validation") < words.rindex("Reproduce it")
    assert f"openprompt-meta report {plain.folder.path} --all --tasks 2 --shots 1,2" in words


def test_a_picture_has_the_command_that_makes_it_at_its_foot(report: Path, plain: FinishedRun) -> None:
    text = (report.parent / "figures" / "attention.svg").read_text(encoding="utf-8")
    drawn = " ".join(line.strip() for line in re.findall(r"<!-- (.*?) -->", text, re.DOTALL))  # words drawn as paths
    drawn = drawn.replace("- -", "--")  # which no comment may have
    assert f"openprompt-meta plot attention {plain.folder.path} --tasks 2 --shots 1,2" in drawn


def test_names_from_data_cannot_break_the_page(plain: FinishedRun) -> None:
    nasty = '<script>alert("x")</script>&'
    summary = RunSummary(nasty, nasty, nasty, nasty, nasty, nasty)
    sections = [FigureSection("one", nasty, nasty, [Picture(nasty, b"<svg/>", nasty, [["a"], [nasty]])], nasty)]
    page = Page(render_page([plain], [summary, summary], sections, nasty))
    assert "script" not in page.elements
    assert page.words.count(nasty) >= 10


@pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium here: apt-get install chromium")
def test_a_browser_shows_every_picture_without_a_complaint(report: Path, comparison: Path, tmp_path: Path) -> None:
    from playwright.sync_api import sync_playwright

    complaints: list[str] = []
    asked: list[str] = []
    with sync_playwright() as playwright:
        context = playwright.chromium.launch_persistent_context(
            tmp_path / "profile",
            executable_path=CHROMIUM,
            headless=True,
            args=[
                "--no-sandbox",
                "--disable-gpu",
                "--disable-quic",
                "--no-first-run",
                "--disable-background-networking",
                "--disable-component-update",
                "--disable-sync",
            ],
            viewport={"width": 1200, "height": 900},
        )
        context.set_default_timeout(60_000)
        context.on("console", lambda message: complaints.append(message.text))
        context.on("weberror", lambda error: complaints.append(str(error.error)))
        context.on("request", lambda request: asked.append(request.url))
        try:
            for file in (report, comparison):
                page = context.new_page()
                page.goto(file.as_uri(), wait_until="load")
                sizes = page.evaluate(
                    "Promise.all([...document.images].map(i => i.decode().then(() => [i.naturalWidth, i.width])))"
                )
                assert len(sizes) >= len(COMPARISONS) + 3
                assert all(natural > 0 and shown > 0 for natural, shown in sizes)
                for width in (1200, 360):
                    page.set_viewport_size({"width": width, "height": 800})
                    assert page.evaluate("document.documentElement.scrollWidth") <= width
                page.set_viewport_size({"width": 1200, "height": 900})
                assert page.pdf().startswith(b"%PDF")
        finally:
            context.close()
    assert complaints == []
    assert all(url.startswith(("file:", "data:")) for url in asked)


# -- kept numbers and refusals ---------------------------------------------------------------------------------------


def test_numbers_are_computed_once_and_again_when_the_run_has_changed(plain: FinishedRun, cache: NumbersCache) -> None:
    kind = figures()["calibration"]
    calls = []

    def compute() -> object:
        calls.append(1)
        return kind.measure([plain], cache)

    first = cache.get_or_compute("x", kind.numbers, [plain], compute)
    assert cache.get_or_compute("x", kind.numbers, [plain], compute) == first
    assert len(calls) == 1
    other = NumbersCache(cache.folder, ReportOptions(tasks=1), show_progress=False)
    other.get_or_compute("x", kind.numbers, [plain], compute)
    assert len(calls) == 2
    (cache.folder / "x.json").write_text("{broken", encoding="utf-8")
    cache.get_or_compute("x", kind.numbers, [plain], compute)
    assert len(calls) == 3


def test_kept_numbers_of_another_shape_are_not_taken(plain: FinishedRun, cache: NumbersCache) -> None:
    kind = figures()["calibration"]
    right = kind.from_runs([plain], cache)
    file = cache.folder / "calibration.json"
    content = json.loads(file.read_text(encoding="utf-8"))
    numbers = content["numbers"]
    without_error = {name: value for name, value in numbers.items() if name != "error"}
    for wrong in ({}, [], without_error, {**numbers, "more": 1}, {**numbers, "seed": "0"}, {**numbers, "seed": 0.0}):
        file.write_text(json.dumps({**content, "numbers": wrong}), encoding="utf-8")
        assert kind.from_runs([plain], cache) == right
        assert json.loads(file.read_text(encoding="utf-8")) == content


def test_plot_makes_one_figure(runs_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plot", "training", str(runs_folder / "plain"), "--out", str(tmp_path), "--quiet"]) == 0
    assert capsys.readouterr().out.split() == [str(tmp_path / "training.png"), str(tmp_path / "training.svg")]
    assert {file.name for file in tmp_path.iterdir()} == {"training.png", "training.svg", "training.json"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["plot", "attentoin", "{run}"], "Did you mean 'attention'?"),
        (["plot", "paired", "{run}"], "name two run folders or more"),
        (["report", "{run}/nothing"], "is not a run folder"),
        (["report", "{run}", "{run}"], "given twice"),
        (["report", "{run}", "--shots", "one"], "expected whole numbers"),
        (["report", "{run}", "--tasks", "0"], "at least one task"),
        (["report", "{run}", "--only", "tasks,clases"], "Did you mean 'classes'?"),
    ],
)
def test_what_cannot_be_done_is_refused_with_its_remedy(
    runs_folder: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert main([argument.replace("{run}", str(runs_folder / "plain")) for argument in arguments]) == 2
    assert message in capsys.readouterr().err


def test_an_unfinished_run_is_refused_with_the_command_that_goes_on(runs_folder: Path, tmp_path: Path) -> None:
    shutil.copytree(runs_folder / "plain", tmp_path / "run")
    (tmp_path / "run" / "seed-0" / "test.json").unlink()
    with pytest.raises(RunError, match="openprompt-meta resume"):
        plot("training", [tmp_path / "run"])


def test_without_matplotlib_the_remedy_is_named(
    runs_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(CompatibilityError, match=re.escape(command_for_extra("report"))):
        write_report([runs_folder / "plain"], tmp_path, QUICK, show_progress=False)
    assert not list(tmp_path.iterdir())
