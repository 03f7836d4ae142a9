"""Query vectors: computed in batches, kept on disk, and never wrong for being old or damaged."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch

from openprompt_meta.encoder import queries as module
from openprompt_meta.encoder.loading import LoadedMLM
from openprompt_meta.encoder.queries import query_vectors
from openprompt_meta.encoder.wrapping import TokenRows, wrap_texts
from openprompt_meta.files import default_cache_folder
from openprompt_meta.prompts.pool_template import PromptPoolTemplate

pytestmark = pytest.mark.meta

TEXT = '{"placeholder": "text_a"} {"pool"} topic is {"mask"}.'
TEXTS = ["rain", "a storm at night " * 20, "the player", "", "we want soup", "a good game " * 9]


def template_of(mlm: LoadedMLM, text: str = TEXT, prompt_length: int = 3) -> PromptPoolTemplate:
    return PromptPoolTemplate(mlm.model, mlm.tokenizer, text, num_prompts=2, prompt_length=prompt_length, seed=0)


def rows_of(mlm: LoadedMLM, template: PromptPoolTemplate, length: int = 60, texts: Sequence[str] = TEXTS) -> TokenRows:
    return wrap_texts(texts, template, mlm.wrapper(tokenizer=mlm.tokenizer, max_seq_length=length))


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Grows by one whenever queries are computed."""
    calls: list[int] = []
    real = module._compute

    def compute(*args: Any) -> torch.Tensor:
        calls.append(1)
        return real(*args)

    monkeypatch.setattr(module, "_compute", compute)
    return calls


@pytest.mark.parametrize("family", ["bert", "roberta", "mpnet", "deberta-v2"])
def test_they_are_what_the_query_function_says_to_each_text_alone(
    family: str, tiny: Callable[[str], LoadedMLM], monkeypatch: pytest.MonkeyPatch
) -> None:
    mlm = tiny(family)
    mlm.model.double().requires_grad_(False)
    template = template_of(mlm)
    rows = rows_of(mlm, template)
    monkeypatch.setattr(module, "_TOKENS_AT_ONCE", 70)  # several batches
    found = query_vectors(rows, template.query_function)
    for index in range(len(TEXTS)):
        alone = rows.batch([index])
        inputs, is_mask = template.without_pool(alone)
        assert torch.allclose(found[index], template.query_function(inputs, is_mask)[0], rtol=1e-8, atol=1e-10)


def test_each_kind_of_query_makes_a_file_of_its_own(
    tiny: Callable[[str], LoadedMLM], tmp_path: Path, counted: list[int]
) -> None:
    mlm = tiny("bert")
    found = []
    for _ in range(2):
        for kind in ("features", "embeddings", "first_layer"):
            template = PromptPoolTemplate(mlm.model, mlm.tokenizer, TEXT, num_prompts=2, seed=0, query=kind)
            found.append(query_vectors(rows_of(mlm, template), template.query_function, tmp_path))
    assert len(counted) == len(list(tmp_path.iterdir())) == 3
    assert all(torch.equal(one, two) for one, two in zip(found[:3], found[3:], strict=True))
    assert not any(torch.allclose(one, two) for one, two in ((found[0], found[1]), (found[1], found[2])))


def test_a_second_call_reads_them_from_disk_bit_by_bit(
    tiny: Callable[[str], LoadedMLM], tmp_path: Path, counted: list[int]
) -> None:
    mlm = tiny("bert")
    template = template_of(mlm)
    rows = rows_of(mlm, template)
    first = query_vectors(rows, template.query_function, tmp_path)
    again = query_vectors(rows, template.query_function, tmp_path)
    assert len(counted) == 1
    assert torch.equal(first, again)
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("what", ["weights", "precision", "template", "length", "texts"])
def test_whatever_they_depend_on_makes_another_file(
    what: str, tiny: Callable[[str], LoadedMLM], tmp_path: Path, counted: list[int]
) -> None:
    mlm = tiny("bert")
    template = template_of(mlm)
    query_vectors(rows_of(mlm, template), template.query_function, tmp_path)
    length, texts, text = 60, list(TEXTS), TEXT
    if what == "weights":
        with torch.no_grad():
            mlm.model.bert.encoder.layer[1].output.dense.weight[0, 0] += 0.5
    elif what == "precision":
        mlm.model.to(torch.bfloat16)
    elif what == "template":
        text = TEXT.replace("topic is", "it is")
    elif what == "length":
        length = 30
    else:
        texts[0] = "sun"
    template = template_of(mlm, text)
    rows = rows_of(mlm, template, length, texts)
    found = query_vectors(rows, template.query_function, tmp_path)
    assert len(counted) == 2
    assert torch.equal(found, query_vectors(rows, template.query_function))
    assert len(list(tmp_path.iterdir())) == 2


def test_another_pool_shares_the_file_since_queries_do_not_see_it(
    tiny: Callable[[str], LoadedMLM], tmp_path: Path, counted: list[int]
) -> None:
    mlm = tiny("bert")
    for prompt_length in (3, 5):
        template = template_of(mlm, prompt_length=prompt_length)
        query_vectors(rows_of(mlm, template, length=200), template.query_function, tmp_path)
    assert len(counted) == 1


def _flip(content: bytes) -> bytes:
    return content[:-5] + bytes([content[-5] ^ 1]) + content[-4:]


def _foreign(content: bytes) -> bytes:
    return safetensors.torch.save({"queries": safetensors.torch.load(content)["queries"]}, {"format": "another"})


@pytest.mark.parametrize(
    "damage",
    [_flip, _foreign, lambda content: content[: len(content) // 2], lambda content: b"", lambda content: b"\x80"],
)
def test_a_damaged_file_is_noticed_and_made_anew(
    damage: Callable[[bytes], bytes],
    tiny: Callable[[str], LoadedMLM],
    tmp_path: Path,
    counted: list[int],
    caplog: pytest.LogCaptureFixture,
) -> None:
    mlm = tiny("bert")
    template = template_of(mlm)
    rows = rows_of(mlm, template)
    first = query_vectors(rows, template.query_function, tmp_path).clone()
    (file,) = tmp_path.iterdir()
    content = file.read_bytes()
    file.unlink()  # the first answer may be mapped onto it
    file.write_bytes(damage(content))
    with caplog.at_level(logging.WARNING):
        again = query_vectors(rows, template.query_function, tmp_path)
    assert "cannot be used" in caplog.text
    assert len(counted) == 2
    assert torch.equal(first, again)
    assert torch.equal(first, query_vectors(rows, template.query_function, tmp_path))
    assert len(counted) == 2


def test_a_folder_that_cannot_be_written_costs_a_warning_and_nothing_else(
    tiny: Callable[[str], LoadedMLM], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    mlm = tiny("bert")
    template = template_of(mlm)
    rows = rows_of(mlm, template)
    (tmp_path / "file").write_text("in the way")
    with caplog.at_level(logging.WARNING):
        found = query_vectors(rows, template.query_function, tmp_path / "file")
    assert "computed anew next time" in caplog.text
    assert torch.equal(found, query_vectors(rows, template.query_function))


SCRIPT = """
import sys
from pathlib import Path
import openprompt_meta
from openprompt_meta.encoder.loading import load_mlm
from openprompt_meta.encoder.queries import query_vectors
from openprompt_meta.encoder.wrapping import wrap_texts
from openprompt_meta.prompts.pool_template import PromptPoolTemplate
mlm = load_mlm(sys.argv[1])
template = PromptPoolTemplate(mlm.model, mlm.tokenizer, sys.argv[3], num_prompts=2, prompt_length=3, seed=0)
rows = wrap_texts([f"rain {i}" for i in range(50)], template, mlm.wrapper(tokenizer=mlm.tokenizer, max_seq_length=60))
print("ready", flush=True)
sys.stdin.readline()
for _ in range(20):
    for file in Path(sys.argv[2]).glob("queries-*"):
        file.unlink(missing_ok=True)  # so that both make it, again and again
    print(query_vectors(rows, template.query_function, Path(sys.argv[2])).sum().item())
"""


@pytest.mark.slow
def test_two_processes_may_make_the_same_file_at_once(tiny_mlm_folder: Callable[[str], Path], tmp_path: Path) -> None:
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", SCRIPT, str(tiny_mlm_folder("bert")), str(tmp_path), TEXT],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    outputs = [process.communicate("go\n", timeout=120) for process in processes]
    assert [process.returncode for process in processes] == [0, 0], outputs
    values = {line for out, _ in outputs for line in out.split()}
    assert len(values) == 1
    assert all("cannot be used" not in err for _, err in outputs)
    assert [file.suffix for file in tmp_path.iterdir()] == [".safetensors"]


def test_the_cache_folder_is_the_users_unless_another_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("OPENPROMPT_META_CACHE", str(tmp_path / "own"))
    assert default_cache_folder() == tmp_path / "own"
    monkeypatch.delenv("OPENPROMPT_META_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert default_cache_folder() == tmp_path / "openprompt_meta"
