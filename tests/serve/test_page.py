"""The page, in a real browser: what a person does with it, and what it must not do."""

from __future__ import annotations

import re
import shutil
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import BrowserContext, Page, expect, sync_playwright

from openprompt_meta.classifier.classifier import MetaPromptClassifier
from openprompt_meta.serve.guard import Access
from tests.helpers.services import UNLIMITED, running

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium here: apt-get install chromium")

ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
TOKEN = "a-token-of-enough-letters"  # noqa: S105
CLASSES = {"weather": "rain and storm\nthe sun in the sky", "sport": "the team win\na player score\ngood game"}


class Watched:
    """A browser's context that remembers what went wrong in it and whom it talked to."""

    def __init__(self, context: BrowserContext) -> None:
        self.context = context
        self.complaints: list[str] = []
        self.hosts: set[str] = set()
        context.on(
            "console", lambda message: self.complaints.append(message.text) if message.type == "error" else None
        )
        context.on("weberror", lambda error: self.complaints.append(str(error.error)))
        context.on("request", lambda request: self.hosts.add(urlsplit(request.url).netloc))

    def open(self, address: str) -> Page:
        page = self.context.new_page()
        page.goto(address)
        return page


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Watched]:
    with sync_playwright() as playwright:
        context = playwright.chromium.launch_persistent_context(
            tmp_path / "profile",
            executable_path=CHROMIUM,
            headless=True,
            args=ARGUMENTS,
            viewport={"width": 1200, "height": 900},
            reduced_motion="reduce",
        )
        context.set_default_timeout(60_000)
        try:
            yield Watched(context)
        finally:
            context.close()


def type_class(page: Page, number: int, name: str, examples: str) -> None:
    page.get_by_role("group", name=f"Class {number}").get_by_label("Name of the class").fill(name)
    page.get_by_role("group", name=f"Class {number}").get_by_label("Examples, one a line").fill(examples)


def percents(page: Page, title: str) -> list[float]:
    bars = page.get_by_role("list", name=title).get_by_role("listitem")
    return [float(re.sub(r"[\s%]", "", bar.locator(".value").inner_text())) for bar in bars.all()]


def bar_lengths(page: Page, bars: str) -> list[float]:
    """Lengths of the bars as drawn, in percent of their tracks."""
    script = """rows => rows.map(row => 100 * row.querySelector('.fill').getBoundingClientRect().width
                                / row.querySelector('.track').getBoundingClientRect().width)"""
    return list(page.locator(f"{bars} li").evaluate_all(script))


def test_a_person_teaches_classes_and_classifies_a_text(unfitted: MetaPromptClassifier, browser: Watched) -> None:
    with running(unfitted) as client:
        page = browser.open(str(client.base_url))
        expect(page.get_by_text("Language model: bert")).to_be_visible()
        page.get_by_label("Name of the task").fill("two topics")
        for number, (name, examples) in enumerate(CLASSES.items(), start=1):
            type_class(page, number, name, examples)
        page.get_by_role("button", name="Learn these classes").click()
        expect(page.get_by_role("alert")).to_contain_text("Learned 2 classes from 5 examples")
        assert page.get_by_label("Task", exact=True).input_value() == "two topics"
        expect(page.get_by_text("Classes: sport, weather")).to_be_visible()

        page.get_by_label("Text", exact=True).fill("a storm in the sky")
        page.get_by_role("button", name="Classify").click()
        expect(page.get_by_role("heading", name="Attention over the prompts")).to_be_visible()
        probabilities, attention = percents(page, "Probabilities"), percents(page, "Attention over the prompts")
        asked = {"text": "a storm in the sky", "task": "two topics"}
        answer = client.post("/explain", json=asked).json()
        assert probabilities == [round(100 * entry["probability"], 1) for entry in answer["classes"]]
        assert attention == [round(100 * weight, 1) for weight in answer["attention"]]
        expect(page.locator("#verdict")).to_contain_text(answer["label"])
        nearest = page.get_by_role("list", name="Nearest examples").get_by_role("listitem")
        expect(nearest).to_have_count(5)
        expect(nearest.first).to_contain_text(answer["nearest_examples"][0]["text"])
        assert bar_lengths(page, "#probabilities") == pytest.approx(probabilities, abs=1)
        assert bar_lengths(page, "#attention") == pytest.approx(attention, abs=1)

        page.get_by_role("button", name="Forget it").click()
        expect(page.get_by_label("Task", exact=True)).to_contain_text("none yet")
        assert client.get("/tasks").json() == {"tasks": []}
        assert browser.hosts == {client.base_url.netloc.decode()}
    assert browser.complaints == []


def test_one_class_alone_is_refused_in_words_beside_the_button(
    unfitted: MetaPromptClassifier, browser: Watched
) -> None:
    with running(unfitted) as client:
        page = browser.open(str(client.base_url))
        message, learn = page.locator("#fit-message"), page.get_by_role("button", name="Learn these classes")
        type_class(page, 1, "weather", "rain")
        learn.click()
        expect(message).to_have_text(
            "At least two classes are needed, and there is only one: add a class with a few examples."
        )
        assert message.get_attribute("role") == "alert"
        expect(learn).to_be_enabled()
        type_class(page, 2, "weather", "storm")
        learn.click()
        expect(message).to_contain_text("The class 'weather' is there twice")
        type_class(page, 2, "", "storm")
        learn.click()
        expect(message).to_contain_text("Class 2 has examples but no name")
        page.get_by_role("button", name="Classify").click()
        expect(page.locator("#classify-message")).to_contain_text("There is no task yet")
    # The browser itself notes the one answer that was a refusal.
    assert len(browser.complaints) == 1
    assert "422" in browser.complaints[0]


def test_a_csv_is_shown_as_a_table_learned_and_predictions_and_classifier_are_taken_away(
    tiny_mlm_folder: Callable[[str], Path], browser: Watched, tmp_path: Path
) -> None:
    base = str(tiny_mlm_folder("bert"))
    start = MetaPromptClassifier(base_model=base, inner_steps=0)
    file, texts = tmp_path / "few.csv", tmp_path / "texts.csv"
    file.write_text(
        'label;text\r\nweather;rain and storm\r\nweather;"the sun; the ""sky"""\r\nsport;a player score\r\n'
        "sport;good game\r\n",
        encoding="utf-8-sig",
    )
    texts.write_text("text\n=1+1\nrain\n", encoding="utf-8")
    with running(start) as client:
        page = browser.open(str(client.base_url))
        page.get_by_label("Examples from a CSV file").set_input_files(file)
        rows = page.get_by_role("table", name="What will be learned").get_by_role("row")
        expect(rows).to_have_count(3)
        assert rows.nth(1).inner_text().split("\t") == ["weather", "2", "rain and storm"]
        page.get_by_role("button", name="Learn these classes").click()
        expect(page.locator("#fit-message")).to_contain_text("Learned 2 classes from 4 examples")
        expect(page.locator("#fit-message")).to_contain_text(re.compile(r"by all the others: \d of 4 right"))
        page.get_by_label("Many texts").set_input_files(texts)
        page.get_by_role("button", name="Label the file").click()
        expect(page.locator("#many-message")).to_contain_text("2 texts labelled")
        with page.expect_download() as taken:
            page.get_by_role("link", name="Download the predictions").click()
        lines = Path(taken.value.path()).read_text("utf-8").splitlines()
        assert lines[0] == "text,predicted_label,predicted_probability"
        assert [line.split(",")[0] for line in lines[1:]] == ["'=1+1", "rain"]
        asked = client.post("/predict", json={"texts": ["=1+1", "rain"], "task": "my task"}).json()["predictions"]
        assert [line.split(",")[1] for line in lines[1:]] == [one["label"] for one in asked]
        with page.expect_download() as taken:
            page.get_by_role("link", name="Download this classifier").click()
        shutil.unpack_archive(taken.value.path(), tmp_path / "made", "zip")
        strange = tmp_path / "strange.csv"
        strange.write_text("words,label\nrain,a\n", encoding="utf-8")
        page.get_by_label("Examples from a CSV file").set_input_files(strange)
        expect(page.locator("#fit-message")).to_have_text(
            "strange.csv has no column 'text'; its columns are: words, label."
        )
    loaded = MetaPromptClassifier.from_pretrained(tmp_path / "made" / "classifier", base_model=base)
    assert loaded.predict(["=1+1", "rain"]).tolist() == [one["label"] for one in asked]
    assert loaded.task_.texts == ("rain and storm", 'the sun; the "sky"', "a player score", "good game")
    assert browser.complaints == []


def test_it_can_be_used_by_keyboard_alone(unfitted: MetaPromptClassifier, browser: Watched) -> None:
    with running(unfitted) as client:
        page = browser.open(str(client.base_url))
        expect(page.get_by_text("Language model: bert")).to_be_visible()
        page.get_by_role("link", name="Documentation").focus()

        def tab_and_type(text: str) -> None:
            page.keyboard.press("Tab")
            page.keyboard.insert_text(text)

        tab_and_type("keys")
        page.keyboard.press("Tab")  # past the file
        for name, examples in CLASSES.items():
            tab_and_type(name)
            tab_and_type(examples)
            page.keyboard.press("Tab")  # past "Remove"
        for _ in ("Add a class", "Fill in an example", "Learn these classes"):
            page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        expect(page.locator("#fit-message")).to_contain_text("Learned 2 classes")
        assert [task["name"] for task in client.get("/tasks").json()["tasks"]] == ["keys"]
        page.get_by_label("Text", exact=True).focus()
        page.keyboard.insert_text("rain")
        page.keyboard.press("Control+Enter")
        expect(page.locator("#verdict")).to_contain_text("with a probability of")
    assert browser.complaints == []


def test_classes_are_added_filled_in_and_removed(unfitted: MetaPromptClassifier, browser: Watched) -> None:
    with running(unfitted) as client:
        page = browser.open(str(client.base_url))
        groups = page.get_by_role("group")
        page.get_by_role("button", name="Add a class").click()
        expect(groups).to_have_count(3)
        expect(groups.nth(2).get_by_label("Name of the class")).to_be_focused()
        page.get_by_role("button", name="Fill in an example").click()
        names = [group.get_by_label("Name of the class").input_value() for group in groups.all()]
        assert len(set(names)) == len(names) == 3
        page.get_by_role("button", name="Remove class 1").click()
        expect(groups).to_have_count(2)
        assert groups.first.get_by_label("Name of the class").input_value() == names[1]
        page.get_by_role("button", name="Learn these classes").click()
        expect(page.locator("#fit-message")).to_contain_text("Learned 2 classes")
        # A second time under the same name replaces what this page has taught.
        page.get_by_role("button", name="Learn these classes").click()
        expect(page.get_by_role("button", name="Learn these classes")).to_be_enabled()
        expect(page.locator("#fit-message")).to_contain_text("Learned 2 classes")
    assert browser.complaints == []


def test_what_people_type_is_shown_as_text(unfitted: MetaPromptClassifier, browser: Watched) -> None:
    hostile = "<img src=x onerror=alert(1)>"
    with running(unfitted) as client:
        page = browser.open(str(client.base_url))
        type_class(page, 1, hostile, "<script>alert(1)</script> rain")
        type_class(page, 2, "__proto__", "the game")
        page.get_by_role("button", name="Learn these classes").click()
        expect(page.locator("#fit-message")).to_contain_text("Learned 2 classes")
        page.get_by_label("Text", exact=True).fill("<b>rain</b>")
        page.get_by_role("button", name="Classify").click()
        expect(page.get_by_role("list", name="Probabilities")).to_contain_text(hostile)
        expect(page.get_by_role("list", name="Nearest examples")).to_contain_text("<script>alert(1)</script>")
        assert page.locator("img, #result script, #result b").count() == 0
    assert browser.complaints == []


@pytest.mark.parametrize("width", [320, 390, 1200])
def test_nothing_is_cut_or_pushed_out_on_a_screen_of_any_width(
    fitted: MetaPromptClassifier, browser: Watched, width: int
) -> None:
    with running(fitted) as client:
        client.post("/fit", json={"name": "W" * 64, "classes": {"W" * 100: ["W" * 500], "b": ["a dish"]}})
        page = browser.open(str(client.base_url))
        page.set_viewport_size({"width": width, "height": 800})
        for task in ("served", "W" * 64):
            page.get_by_label("Task", exact=True).select_option(task)
            page.get_by_label("Text", exact=True).fill("rain " * 200)
            page.get_by_role("button", name="Classify").click()
            expect(page.locator("#result")).to_be_visible()
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            cut = page.evaluate(
                """() => [...document.querySelectorAll('#result *, h1, h2, p, label, button')]
                .filter(e => e.offsetParent && e.scrollWidth > e.clientWidth + 1 && e.clientWidth > 0)
                .map(e => e.outerHTML.slice(0, 80))"""
            )
            assert cut == []
            # A number and its sign stay on one line.
            heights = page.locator(".value").evaluate_all("all => all.map(e => e.getBoundingClientRect().height)")
            assert max(heights) < 1.5 * 1.5 * 16
        page.goto(str(client.base_url.join("/docs")))
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert browser.hosts == {client.base_url.netloc.decode()}
    assert browser.complaints == []


def test_every_control_has_a_name(fitted: MetaPromptClassifier, browser: Watched) -> None:
    with running(fitted) as client:
        page = browser.open(str(client.base_url))
        nameless = page.evaluate(
            """() => [...document.querySelectorAll('input, textarea, select, button')]
            .filter(e => !(e.labels?.length && e.labels[0].textContent.trim()) && !e.textContent.trim())
            .map(e => e.outerHTML)"""
        )
        assert nameless == []
        assert page.locator("html").get_attribute("lang") == "en"


def test_the_printed_address_signs_the_browser_in(fitted: MetaPromptClassifier, browser: Watched) -> None:
    with running(fitted, access=Access(token=TOKEN)) as client:
        page = browser.open(str(client.base_url.join(f"/?token={TOKEN}")))
        expect(page.get_by_text("Classes: food, sport, weather")).to_be_visible()
        assert page.url == str(client.base_url.join("/"))
        page.get_by_label("Text", exact=True).fill("rain")
        page.get_by_role("button", name="Classify").click()
        expect(page.locator("#verdict")).to_contain_text("with a probability of")
        assert page.evaluate("document.cookie") == ""
    assert browser.complaints == []


def test_a_service_that_has_stopped_is_reported_in_words(fitted: MetaPromptClassifier, browser: Watched) -> None:
    with running(fitted) as client:
        page = browser.open(str(client.base_url))
        expect(page.get_by_text("Classes: food, sport, weather")).to_be_visible()
    page.get_by_label("Text", exact=True).fill("rain")
    page.get_by_role("button", name="Classify").click()
    expect(page.locator("#classify-message")).to_contain_text("The service does not answer")


# -- a page of another site -------------------------------------------------------------------------------------------

ATTACK = """async (victim) => {
  const outcomes = [];
  const note = (name, promise) => promise.then(() => outcomes.push(`${name}: came through`), () => {});
  for (let i = 0; i < 20; i++) {
    await note("read", fetch(victim + "/tasks").then((answer) => answer.json()));
    await note("post", fetch(victim + "/predict", {method: "POST", headers: {"Content-Type": "application/json"},
                                                   body: '{"texts": ["x"]}'}).then((answer) => answer.json()));
    await fetch(victim + "/health", {mode: "no-cors"}).catch(() => {});
    await fetch(victim + "/predict", {mode: "no-cors", method: "POST", body: '{"texts": ["x"]}'}).catch(() => {});
    await note("image", new Promise((done, failed) => {
      const image = new Image();
      image.onload = done;
      image.onerror = failed;
      image.src = victim + "/icon.svg?" + i;
    }));
    await note("script", new Promise((done, failed) => {
      const script = document.createElement("script");
      script.onload = done;
      script.onerror = failed;
      script.src = victim + "/page.js?" + i;
      document.head.append(script);
    }));
  }
  const frame = document.createElement("iframe");
  frame.src = victim + "/";
  await new Promise((done) => { frame.onload = done; document.body.append(frame); setTimeout(done, 3000); });
  return outcomes;
}"""


@pytest.mark.parametrize("name", ["localhost", "127.0.0.1"])  # another site, and the same one on another port
def test_a_page_of_another_site_gets_nothing_and_locks_nobody_out(
    fitted: MetaPromptClassifier, browser: Watched, tmp_path: Path, name: str
) -> None:
    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            """Nothing on the screen."""

    (tmp_path / "evil").mkdir()
    (tmp_path / "evil" / "index.html").write_text("<!doctype html><title>evil</title><body></body>")
    evil = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(tmp_path / "evil")))
    thread = threading.Thread(target=evil.serve_forever, args=(0.01,))
    thread.start()
    try:
        with running(fitted, replace(UNLIMITED, requests_per_minute=8)) as client:
            victim = str(client.base_url).rstrip("/")
            page = browser.open(f"http://{name}:{evil.server_address[1]}/")
            assert page.evaluate(ATTACK, victim) == []
            (frame,) = page.frames[1:]
            assert "Language model" not in frame.content()
            # Whoever sits at the machine has all permits: the page takes a few of them.
            page.evaluate("(victim) => { location.href = victim + '/' }", victim)
            expect(page.get_by_text("Language model: bert")).to_be_visible()
    finally:
        evil.shutdown()
        thread.join()
        evil.server_close()
