"""What the pages say, held to the program: commands are known, marked blocks run, pages are on the site."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest
import yaml

from openprompt_meta.cli import build_parser
from openprompt_meta.cli.writing import reference
from openprompt_meta.config.loading import find_yaml, load_config

ROOT = Path(__file__).parents[1]
PAGES = sorted(path for path in (ROOT / "docs").rglob("*.md"))
TEXTS = {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in [*PAGES, ROOT / "README.md"]}
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))
# Letters that stand for something of the reader's.
_STANDS_FOR = re.compile(r"\b(?:RUN|DIR|FILE|FOLDER|NAME|METHOD|DATASET|YAML)\b|…")


def commands(text: str) -> list[list[str]]:
    found = []
    for block in re.findall(r"```(?:console|bash)\n(.*?)```", text, flags=re.DOTALL):
        for line in re.sub(r"\\\n\s*", "", block).splitlines():
            if line.startswith("openprompt-meta "):
                found.append(shlex.split(line, comments=True)[1:])
    return found


@pytest.mark.parametrize("page", [name for name, text in TEXTS.items() if commands(text)])
def test_every_command_on_a_page_is_one(page: str) -> None:
    parser = build_parser()
    for words in commands(TEXTS[page]):
        options, rest = parser.parse_known_args(words)
        assert all("=" in word and not word.startswith("-") for word in rest), words
        assert not rest or hasattr(options, "overrides"), words


@pytest.mark.parametrize("page", [name for name, text in TEXTS.items() if "<!-- config -->" in text])
def test_every_configuration_on_a_page_is_one(page: str, tmp_path: Path) -> None:
    for block in re.findall(r"<!-- config -->\n```yaml\n(.*?)```", TEXTS[page], flags=re.DOTALL):
        file = tmp_path / "my.yaml"
        file.write_text(block, encoding="utf-8")
        load_config(file)


@pytest.mark.real_encoder
@pytest.mark.parametrize("page", [name for name, text in TEXTS.items() if "<!-- run -->" in text])
def test_every_block_to_run_runs(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for block in re.findall(r"<!-- run -->\n```python\n(.*?)```", TEXTS[page], flags=re.DOTALL):
        exec(compile(block, page, "exec"), names)  # noqa: S102 - our own page


def test_yamls_that_pages_name_ship() -> None:
    for text in TEXTS.values():
        for words in commands(text):
            shipped = words[0] == "train" and not words[1].endswith(".yaml") and not _STANDS_FOR.search(words[1])
            if shipped:
                assert find_yaml(words[1]).is_file(), words


def test_every_page_is_on_the_site() -> None:
    listed: list[str] = []

    def take(entry: object) -> None:
        if isinstance(entry, str):
            listed.append(entry)
        for part in entry.values() if isinstance(entry, dict) else entry if isinstance(entry, list) else ():
            take(part)

    take(yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"])
    assert sorted(listed) == sorted(str(path.relative_to(ROOT / "docs")) for path in PAGES)


def test_the_reference_of_commands_is_generated() -> None:
    assert TEXTS["docs/reference/cli.md"] == reference()


def test_the_readme_is_short_and_shows_a_picture() -> None:
    readme = TEXTS["README.md"]
    assert len(readme.splitlines()) <= 120
    (picture,) = re.findall(r"!\[[^\]]+\]\((docs/images/[^)]+)\)", readme)
    assert (ROOT / picture).is_file()


@pytest.mark.real_encoder
@pytest.mark.slow
@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.name)
def test_a_notebook_runs_and_prints_what_it_shows(notebook: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, object] = {}
    for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"]:
        if cell["cell_type"] != "code":
            continue
        exec(compile("".join(cell["source"]), notebook.name, "exec"), names)  # noqa: S102 - our own page
        printed = capsys.readouterr().out.replace(str(names["folder"]), "few-texts")
        shown = "".join("".join(output["text"]) for output in cell["outputs"])
        assert _words(printed) == _words(shown)


def _words(printed: str) -> list[str]:
    """Without probabilities and cosines, which may differ in their last digits on another machine."""
    return [word for word in printed.split() if not re.search(r"%|\d\.\d", word)]
