"""A fitted classifier as one ONNX graph with its tokenizer beside it, to be run without torch or this package.

The graph is the one that predicts here: the encoder's layers, which attend to the prompt's keys and values besides the
text's own, the mean over the text's tokens, and the classes. As the prompt is the same for every text, and attends to
itself alone, its keys and values are constants. What cannot be said so exactly is refused.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from openprompt_meta.classifier.adaptation import wrapped
from openprompt_meta.classifier.prediction import Predictor
from openprompt_meta.encoder.packed import PackedClassifier, PackedEncoder, Prefix
from openprompt_meta.errors import ArtefactError, CompatibilityError
from openprompt_meta.files import write_atomic
from openprompt_meta.verbalizers.rep import RepVerbalizer

MODEL, TOKENIZER, CLASSES = "model.onnx", "tokenizer.json", "classes.json"
TOLERANCE = 1e-4
"""How far probabilities may be from ours."""

_OPSET, _IR_VERSION = 17, 8  # the first that normalise layers in one operation
_NOBODY = -1e9  # added to the scores of padding
_PROBES = ("rain", "play the next song, please", "what does 12,5 mean? " * 100)


def export_onnx(predictor: Predictor, folder: Path) -> None:
    """Write ``model.onnx``, ``tokenizer.json`` and ``classes.json`` to a folder, which is made if need be.

    The model takes ``input_ids`` and ``attention_mask``, ``[texts, tokens]`` of any number and length, as the
    tokenizer gives them, and answers with ``probabilities``, ``[texts, classes]`` in the order of ``classes.json``.
    Where onnxruntime is installed, it is compared with the predictor before it is kept.

    Raises:
        ArtefactError: the classifier cannot be said exactly in a graph, or the folder cannot be written to.
        CompatibilityError: onnx is not installed.
    """
    try:
        import onnx  # noqa: F401
    except ImportError:
        raise CompatibilityError(
            "A classifier is exported by the package onnx, which is not installed here. Install it with: pip install "
            '"openprompt_meta[onnx]".'
        ) from None
    classifier = _exportable(predictor)
    tokenizer = _tokenizer(predictor)
    model = _Graph(classifier).model()
    _require_agreement(predictor, tokenizer, model)
    classes = {"classes": list(predictor.task.classes), "inputs": ["input_ids", "attention_mask"]}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_atomic(folder / TOKENIZER, tokenizer.to_str(pretty=True))
        write_atomic(folder / CLASSES, json.dumps(classes, indent=2, ensure_ascii=False) + "\n")
        write_atomic(folder / MODEL, model)
    except OSError as error:
        raise ArtefactError(f"The export cannot be written to {folder}: {error}. Choose another --out.") from None


# -- What can be exported ---------------------------------------------------------------------------------------------


def _exportable(predictor: Predictor) -> PackedClassifier:
    """The predictor's classifier, if a graph can do just what it does; an ArtefactError says why it cannot."""
    classifier = predictor.classifier
    template, verbalizer = classifier.template, classifier.verbalizer
    problems = []
    if not isinstance(classifier, PackedClassifier):
        problems.append("its language model is not built as BERT is, or it is run by the plain engine")
    elif hasattr(classifier.plm.base_model, "embeddings_project"):
        problems.append("the embeddings of its language model are narrower than its layers")
    elif not all(
        _is_gelu(layer.intermediate.intermediate_act_fn) for layer in classifier.plm.base_model.encoder.layer
    ):
        problems.append("the activation of its language model is another than GELU")
    elif classifier.plm.dtype != torch.float32:
        problems.append(f"its language model is in {classifier.plm.dtype}; plm.precision: float32 is exported")
    if template.pool.num_prompts > 1:
        problems.append("every text has a prompt of its own, by a query that takes a pass over the text before")
    elif not template.as_prefix or template.features != "mean":
        problems.append("its prompt stands within the text, not before it as with as_prefix: true and mean features")
    if not isinstance(verbalizer, RepVerbalizer):
        problems.append(f"{type(verbalizer).__name__} compares a text with more than one embedding for each class")
    elif verbalizer.similarity != "cosine" or verbalizer.centring != "none" or verbalizer.assignment_rounds:
        problems.append("its verbalizer compares otherwise than by the cosine, or looks at several texts together")
    elif verbalizer.hand_crafted is not None:
        problems.append("its verbalizer mixes in label words (mix_lambda below 1)")
    if problems:
        raise ArtefactError(
            f"The classifier cannot be exported as one exact graph: {'; '.join(problems)}. The pool that ships, and "
            "runs with preset: recommended, can."
        )
    assert isinstance(classifier, PackedClassifier)  # noqa: S101 - for the type checker
    return classifier


def _is_gelu(activation: Any) -> bool:
    """Whether it is GELU itself, and none of its approximations."""
    some = torch.linspace(-3, 3, 13)
    return torch.allclose(activation(some), F.gelu(some), atol=1e-6)


def _tokenizer(predictor: Predictor) -> Any:
    """A tokenizer of its own that gives what the template makes of a text, cut and padded."""
    import tokenizers

    loaded = predictor.base.loaded
    backend = getattr(loaded.tokenizer, "backend_tokenizer", None)
    if backend is None:
        raise ArtefactError("The classifier's tokenizer is none of the library tokenizers, and cannot be exported.")
    tokenizer = tokenizers.Tokenizer.from_str(backend.to_str())
    tokenizer.no_truncation()
    expected = _token_ids(predictor, _PROBES)
    tokenizer.enable_truncation(max(map(len, expected)))
    tokenizer.enable_padding(pad_id=loaded.tokenizer.pad_token_id, pad_token=loaded.tokenizer.pad_token)
    found = [tokenizer.encode(text).ids for text in _PROBES]
    if found != expected:
        raise ArtefactError(
            "The classifier cannot be exported: its template has words of its own around the text, which a tokenizer "
            "by itself does not add."
        )
    return tokenizer


def _token_ids(predictor: Predictor, texts: Sequence[str]) -> list[list[int]]:
    """What the encoder is shown of texts: neither prompt nor [MASK]."""
    rows = wrapped(predictor.base, predictor.task.meta.config, predictor.classifier.template, texts)
    shown = rows.without("soft_token_ids").without("loss_ids")
    return [part.tolist() for part in shown.columns["input_ids"].long().split(shown.lengths.tolist())]


def _require_agreement(predictor: Predictor, tokenizer: Any, model: bytes) -> None:
    """Compare the graph with the predictor on a few texts, if there is something here to run it."""
    try:
        import onnxruntime
    except ImportError:
        return
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    encoded = tokenizer.encode_batch(list(_PROBES))
    inputs = {
        "input_ids": np.array([one.ids for one in encoded], dtype=np.int64),
        "attention_mask": np.array([one.attention_mask for one in encoded], dtype=np.int64),
    }
    (found,) = session.run(["probabilities"], inputs)
    ours, _ = predictor.probabilities(_PROBES, batch_tokens=2048)
    away = float(np.abs(found - ours.numpy()).max())
    if not away <= TOLERANCE:
        raise ArtefactError(f"The exported graph gives probabilities that are {away:.1e} from ours: it is not kept.")


# -- The graph --------------------------------------------------------------------------------------------------------


class _Graph:
    """An ONNX graph, put together operation by operation."""

    def __init__(self, classifier: PackedClassifier) -> None:
        self._classifier = classifier
        self._nodes: list[Any] = []
        self._constants: list[Any] = []
        self._shared: dict[str, str] = {}

    @torch.no_grad()
    def model(self) -> bytes:
        """The whole model as the bytes of a file."""
        from onnx import TensorProto, checker, helper

        encoder = self._classifier.plm.base_model
        packed = self._classifier.packed_encoder
        hidden = self._embedded(encoder, packed)
        prefix = self._classifier.prompt_alone()
        scores = self._scores_beside(prefix)
        heads = encoder.config.num_attention_heads
        for layer, prompt in zip(encoder.encoder.layer, packed.keys_and_values(prefix), strict=True):
            hidden = self._layer(layer, hidden, prompt.keys, prompt.values, scores, heads)
        probabilities = self._op("Softmax", self._scores(self._mean(hidden)), axis=-1)
        self._nodes.append(helper.make_node("Identity", [probabilities], ["probabilities"]))
        graph = helper.make_graph(
            self._nodes,
            "openprompt_meta",
            [
                helper.make_tensor_value_info(name, TensorProto.INT64, ["texts", "tokens"])
                for name in ("input_ids", "attention_mask")
            ],
            [helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, ["texts", None])],
            self._constants,
        )
        model = helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", _OPSET)], producer_name="openprompt_meta"
        )
        model.ir_version = _IR_VERSION
        checker.check_model(model)
        content: bytes = model.SerializeToString()
        return content

    # -- parts --------------------------------------------------------------------------------------------------------

    def _embedded(self, encoder: Any, packed: PackedEncoder) -> str:
        """What enters the first layer, ``[B, L, d]``."""
        embeddings = encoder.embeddings
        words = self._op("Gather", self._constant(encoder.get_input_embeddings().weight), "input_ids")
        length = self._op("Squeeze", self._op("Shape", "input_ids", start=1, end=2), self._integers(0))
        columns = self._op("Range", self._scalar(0), length, self._scalar(1))
        table = embeddings.position_embeddings.weight[packed.first_position :]
        # Of which kind a token is makes no difference: all are of the first.
        types = getattr(embeddings, "token_type_embeddings", None)
        if types is not None:
            table = table + types.weight[0]
        return self._normalised(
            self._op("Add", words, self._op("Gather", self._constant(table), columns)), embeddings.LayerNorm
        )

    def _scores_beside(self, prefix: Prefix) -> str:
        """What is added to attention scores, ``[B, 1, 1, L_p + L]``: what the prompt counts, and nothing at tokens."""
        mask = self._op("Cast", "attention_mask", to=1)
        scores = self._op("Mul", self._op("Sub", mask, self._number(1.0)), self._number(-_NOBODY))
        length, counts = prefix.embedded.shape[1], math.log(prefix.strength)
        padded = self._op("Pad", scores, self._integers(0, length, 0, 0), self._number(counts))
        return self._op("Unsqueeze", padded, self._integers(1, 2))

    def _layer(self, layer: Any, hidden: str, keys: Tensor, values: Tensor, beside: str, heads: int) -> str:
        attention, joined = layer.attention.self, layer.attention.output
        queries = self._heads(self._linear(hidden, attention.query), heads)
        own_keys = self._heads(self._linear(hidden, attention.key), heads)
        own_values = self._heads(self._linear(hidden, attention.value), heads)
        all_keys = self._op("Concat", self._for_each_text(keys), own_keys, axis=2)
        all_values = self._op("Concat", self._for_each_text(values), own_values, axis=2)
        scaled = self._op("Mul", queries, self._number(keys.shape[-1] ** -0.5))
        scores = self._op("MatMul", scaled, self._op("Transpose", all_keys, perm=[0, 1, 3, 2]))
        shares = self._op("Softmax", self._op("Add", scores, beside), axis=-1)
        context = self._op("Transpose", self._op("MatMul", shares, all_values), perm=[0, 2, 1, 3])
        context = self._op("Reshape", context, self._integers(0, 0, -1))
        middle = self._normalised(self._op("Add", self._linear(context, joined.dense), hidden), joined.LayerNorm)
        wide = self._gelu(self._linear(middle, layer.intermediate.dense))
        return self._normalised(
            self._op("Add", self._linear(wide, layer.output.dense), middle), layer.output.LayerNorm
        )

    def _mean(self, hidden: str) -> str:
        """Over the tokens of each text, ``[B, d]``."""
        mask = self._op("Unsqueeze", self._op("Cast", "attention_mask", to=1), self._integers(2))
        total = self._op("ReduceSum", self._op("Mul", hidden, mask), self._integers(1), keepdims=0)
        return self._op("Div", total, self._op("ReduceSum", mask, self._integers(1), keepdims=0))

    def _scores(self, features: str) -> str:
        """``t · (ρ cos + W ĥ + b)``, which is linear in ĥ."""
        verbalizer: Any = self._classifier.verbalizer
        weight = float(verbalizer.temperature) * F.normalize(verbalizer.label_embeddings, dim=-1)
        bias = weight.new_zeros(len(weight))
        if getattr(verbalizer, "weight", None) is not None:
            weight, bias = weight + verbalizer.weight, bias + verbalizer.bias
        if getattr(verbalizer, "sharpness", None) is not None:
            weight, bias = verbalizer.sharpness * weight, verbalizer.sharpness * bias
        directions = self._op("LpNormalization", features, axis=-1, p=2)
        return self._op("Add", self._op("MatMul", directions, self._constant(weight.T)), self._constant(bias))

    # -- operations ---------------------------------------------------------------------------------------------------

    def _heads(self, part: str, heads: int) -> str:
        """``[B, heads, L, size]`` of ``[B, L, d]``."""
        size = self._classifier.plm.config.hidden_size // heads
        return self._op("Transpose", self._op("Reshape", part, self._integers(0, 0, heads, size)), perm=[0, 2, 1, 3])

    def _for_each_text(self, part: Tensor) -> str:
        """``[1, heads, L_p, size]`` as often as there are texts."""
        if "texts" not in self._shared:
            texts = self._op("Shape", "input_ids", start=0, end=1)
            self._shared["texts"] = self._op("Concat", texts, self._integers(1, 1, 1), axis=0)
        return self._op("Tile", self._constant(part), self._shared["texts"])

    def _linear(self, hidden: str, layer: Any) -> str:
        return self._op("Add", self._op("MatMul", hidden, self._constant(layer.weight.T)), self._constant(layer.bias))

    def _normalised(self, hidden: str, layer: Any) -> str:
        weights = self._constant(layer.weight), self._constant(layer.bias)
        return self._op("LayerNormalization", hidden, *weights, axis=-1, epsilon=layer.eps)

    def _gelu(self, hidden: str) -> str:
        raised = self._op("Add", self._op("Erf", self._op("Mul", hidden, self._number(2**-0.5))), self._number(1.0))
        return self._op("Mul", self._op("Mul", hidden, raised), self._number(0.5))

    def _op(self, kind: str, *inputs: str, **attributes: Any) -> str:
        from onnx import helper

        name = f"{kind}_{len(self._nodes)}"
        self._nodes.append(helper.make_node(kind, list(inputs), [name], **attributes))
        return name

    def _constant(self, value: Tensor | np.ndarray[Any, Any]) -> str:
        from onnx import numpy_helper

        array = value.detach().cpu().contiguous().numpy() if isinstance(value, Tensor) else value
        name = f"constant_{len(self._constants)}"
        self._constants.append(numpy_helper.from_array(array, name))
        return name

    def _number(self, value: float) -> str:
        return self._once(f"number {value}", np.array(value, dtype=np.float32))

    def _scalar(self, value: int) -> str:
        return self._once(f"scalar {value}", np.array(value, dtype=np.int64))

    def _integers(self, *values: int) -> str:
        return self._once(f"integers {values}", np.array(values, dtype=np.int64))

    def _once(self, what: str, array: np.ndarray[Any, Any]) -> str:
        if what not in self._shared:
            self._shared[what] = self._constant(array)
        return self._shared[what]
