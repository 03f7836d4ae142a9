"""A classifier as an ONNX graph: run without torch, it says what ours says; what a graph cannot say is refused."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from openprompt_meta import MetaPromptClassifier
from openprompt_meta.classifier.export import TOLERANCE
from openprompt_meta.cli import main
from openprompt_meta.config.schema import DatasetSection
from openprompt_meta.data.loading import open_dataset
from openprompt_meta.errors import ArtefactError
from tests.helpers.few_texts import LABELS, TEXTS

pytestmark = pytest.mark.real_encoder

pytest.importorskip("onnx", reason="an export needs the package onnx")
pytest.importorskip("onnxruntime", reason="an export is run by the package onnxruntime")

RUN = """
import json, sys
from pathlib import Path
import numpy as np
import onnxruntime
from tokenizers import Tokenizer

folder = Path(sys.argv[1])
texts = json.loads(sys.stdin.read())
tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
session = onnxruntime.InferenceSession(str(folder / "model.onnx"), providers=["CPUExecutionProvider"])
rows = []
for start in range(0, len(texts), 37):  # batches of any number and length
    encoded = tokenizer.encode_batch(texts[start : start + 37])
    inputs = {
        "input_ids": np.array([one.ids for one in encoded]),
        "attention_mask": np.array([one.attention_mask for one in encoded]),
    }
    rows += session.run(["probabilities"], inputs)[0].tolist()
assert "torch" not in sys.modules and "openprompt_meta" not in sys.modules
print(json.dumps(rows))
"""


def test_500_texts_have_the_same_probabilities_without_torch_or_this_package(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    split = open_dataset(DatasetSection()).test
    few = [i for name in split.classes for i in split.indices[name][:5]]
    classifier = MetaPromptClassifier().fit([split.texts[i] for i in few], [split.labels[i] for i in few])
    classifier.save_pretrained(tmp_path / "saved")
    assert main(["export", str(tmp_path / "saved"), "--to", "onnx"]) == 0
    assert "model.onnx" in capsys.readouterr().out

    texts = [split.texts[i % len(split)] for i in range(490)]
    texts += ["x", "?!", "Straße, 12,5 €", *(" ".join(split.texts[i : i + 40]) for i in range(7))]  # the last are cut
    done = subprocess.run(
        [sys.executable, "-I", "-c", RUN, str(tmp_path / "saved-onnx")],
        input=json.dumps(texts),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    found = np.array(json.loads(done.stdout))
    ours = classifier.predict_proba(texts)
    assert found.shape == (500, len(split.classes))
    assert np.abs(found - ours).max() < TOLERANCE
    assert found.max() > 0.9
    classes = json.loads((tmp_path / "saved-onnx" / "classes.json").read_text(encoding="utf-8"))["classes"]
    assert classes == list(classifier.classes_)


def test_a_pool_of_several_prompts_within_the_text_is_refused_with_the_reasons(tiny_run: Path, tmp_path: Path) -> None:
    classifier = MetaPromptClassifier(tiny_run).fit(TEXTS, LABELS)
    with pytest.raises(ArtefactError, match=r"takes a pass over the text before\. The pool that ships"):
        classifier.export_onnx(tmp_path / "onnx")
    assert not (tmp_path / "onnx").exists()
