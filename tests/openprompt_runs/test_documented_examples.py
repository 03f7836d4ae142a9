"""The examples of docs/openprompt.md, executed as they stand there."""

from __future__ import annotations

import importlib.util
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
PAGE = (REPOSITORY / "docs" / "openprompt.md").read_text(encoding="utf-8")


def _found(pattern: str) -> list[str]:
    found = re.findall(pattern, PAGE, flags=re.DOTALL)
    assert found, f"docs/openprompt.md has nothing like {pattern!r}"
    return found


(SCRIPT,) = _found(r"<!-- script -->\n```python\n(.*?)```")
COMMANDS = _found(r"<!-- commands -->\n```bash\n(.*?)```")[0].splitlines()
OUTPUTS = [
    (int(correct), learned)
    for correct, learned in _found(r"(\d) of 9 correct, ([\d,]+) numbers learned \|")  # type: ignore[misc]
]
RUNS = [(), ("template",), ("verbalizer",), ("template", "verbalizer")]


def changed(script: str, name: str) -> str:
    """The script with the one line changed that the page shows under this name."""
    ((old, new),) = _found(rf"<!-- change: {name} -->\n```diff\n-([^\n]*)\n\+([^\n]*)\n```")
    lines = script.splitlines(keepends=True)
    assert lines.count(f"{old}\n") == 1
    return "".join(f"{new}\n" if line == f"{old}\n" else line for line in lines)


@pytest.mark.real_encoder
@pytest.mark.parametrize(("changes", "output"), zip(RUNS, OUTPUTS, strict=True))
def test_the_script_runs_with_only_these_lines_changed(
    changes: tuple[str, ...], output: tuple[int, str], capsys: pytest.CaptureFixture[str]
) -> None:
    script = SCRIPT
    for name in changes:
        script = changed(script, name)
    exec(compile(script, "docs/openprompt.md", "exec"), {})  # noqa: S102
    (printed,) = re.findall(r"(\d) of 9 correct, ([\d,]+) numbers learned", capsys.readouterr().out)
    assert printed[1] == output[1]
    # One text of nine may fall to the other side on another machine's floating point.
    assert abs(int(printed[0]) - output[0]) <= 1


@pytest.mark.real_encoder
def test_words_classify_without_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    (script,) = _found(r"<!-- names -->\n```python\n(.*?)```")
    exec(compile(script, "docs/openprompt.md", "exec"), {})  # noqa: S102
    assert capsys.readouterr().out.splitlines()[-1] == "['weather', 'music']"


@pytest.mark.prompts
@pytest.mark.parametrize("changes", RUNS)
@pytest.mark.parametrize("stock", ["soft", "manual"])
def test_the_same_changes_suit_openprompts_own_verbalizers(
    stock: str,
    changes: tuple[str, ...],
    tiny_mlm_folder: Callable[[str], Path],
    capsys: pytest.CaptureFixture[str],
) -> None:
    # A model with a vocabulary head, and in the script's place for a verbalizer one of OpenPrompt's.
    stocks = {
        "soft": "prompts.SoftVerbalizer(tokenizer, plm, num_classes=3)",
        "manual": "prompts.ManualVerbalizer(tokenizer, label_words=['rain', 'time', 'song'], num_classes=3)",
    }
    script = SCRIPT
    for name in changes:
        script = changed(script, name)
    script = script.replace('"minilm"', repr(str(tiny_mlm_folder("bert")))).replace("range(8)", "range(1)")
    script = script.replace("openprompt_meta.WarpVerbalizer(tokenizer, plm, classes=classes)", stocks[stock])
    exec(compile(f"from openprompt import prompts\n{script}", "docs/openprompt.md", "exec"), {})  # noqa: S102
    assert " of 9 correct" in capsys.readouterr().out


# -- the command line -------------------------------------------------------------------------------------------------


@pytest.fixture
def runner(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    """runners/run_openprompt.py as a module; logs go to a folder of the test."""
    (tmp_path / "yamls").symlink_to(REPOSITORY / "yamls")
    monkeypatch.chdir(tmp_path)
    spec = importlib.util.spec_from_file_location("run_openprompt", REPOSITORY / "runners" / "run_openprompt.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.real_encoder
@pytest.mark.parametrize("command", COMMANDS)
def test_the_commands_run_from_training_to_the_printed_metric_and_test_again(
    command: str, runner: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    python, script, *arguments = shlex.split(command)
    assert (python, script) == ("python", "runners/run_openprompt.py")
    # Fewer classes, and one epoch, so that it takes seconds.
    assert runner.main([*arguments, "--train.num_epochs", "1", "--dataset.num_classes", "3"]) == 0
    printed = capsys.readouterr().out
    metrics = re.findall(r"^test (accuracy|macro-f1): (\d\.\d{4})$", printed, flags=re.MULTILINE)
    assert [name for name, _ in metrics] == ["accuracy", "macro-f1"]
    folder = printed.split("folder: ")[1].strip()
    assert runner.main(["--test", folder]) == 0
    again = capsys.readouterr().out
    assert re.findall(r"^test (accuracy|macro-f1): (\d\.\d{4})$", again, flags=re.MULTILINE) == metrics


@pytest.mark.prompts
@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--config_yaml", "yamls/openprompt/demo_intents.yaml", "--train.epochs", "1"], "train.epochs is not a key"),
        (
            ["--config_yaml", "yamls/openprompt/demo_intents.yaml", "--verbalizer", "rep_verbaliser"],
            "Did you mean 'rep_verbalizer'",
        ),
        (["--config_yaml", "nowhere.yaml"], "There is no file nowhere.yaml"),
        (["--test", "nowhere"], "config.yaml"),
        ([], "Give --config_yaml"),
    ],
)
def test_a_refusal_is_one_message_and_exit_code_2(
    arguments: list[str], reason: str, runner: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    assert runner.main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("run_openprompt: ")
    assert reason in captured.err
    assert "Traceback" not in captured.err
