"""The README's own code, executed as it stands there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from openprompt_meta.config.loading import load_config

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.real_encoder
def test_the_first_python_block_works_as_printed(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # it saves a classifier
    (block,) = re.findall(r"<!-- first block.*?```python\n(.*?)```", README, flags=re.DOTALL)
    exec(compile(block, "README.md", "exec"), {})  # noqa: S102 - our own page
    printed = capsys.readouterr().out
    assert "is it going to snow: weather" in printed
    assert "turn this track up: music" in printed


def test_the_first_yaml_is_a_valid_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (block,) = re.findall(r"```yaml\n(.*?)```", README, flags=re.DOTALL)
    (tmp_path / "my.yaml").write_text(block, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    overrides = re.search(r"openprompt-meta train my.yaml (.*?)\s+#", README)
    assert overrides is not None
    config = load_config("my.yaml", overrides[1].split())
    assert (config.meta.shot, config.run.seeds) == (1, [0, 1, 2])


def test_the_readme_opens_with_the_two_commands() -> None:
    opening = README[: README.index("## ")]
    assert re.search(r"^make run\b", opening, flags=re.MULTILINE)
    assert re.search(r"^make test\b", opening, flags=re.MULTILINE)


def test_every_page_the_readme_points_to_is_there() -> None:
    for target in re.findall(r"\]\((?!http)([^)#]+)", README):
        assert (ROOT / target).exists(), target
