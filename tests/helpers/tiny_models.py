"""Tiny masked language models with real tokenizers, made on the spot: no hub, no download.

``tiny_mlm("roberta", folder)`` writes a folder as ``save_pretrained`` would and reads it with ``load_mlm``: two
layers, 32 wide, random weights from a seed, a vocabulary of a few hundred tokens.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import transformers
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from openprompt_meta.encoder.loading import LoadedMLM, load_mlm

__all__ = ["FAMILIES", "LABEL_WORDS", "WORDS", "tiny_mlm"]

# Words that are one token each (BERT-like vocabularies know them by construction, the others by training on them).
_TEXT = """
a about an and are at bad bank bill book cheap city cloud coin cook day dish do doctor drive eat fast flight food for
game goal good great hotel i in is it king law like market me medicine money movie music my news night of on pay phone
plane play player price rain sad score science she ship sing sky song soup space sport star storm sun tax team tell
that the they ticket time to topic trade train travel trip vote want was we weather what where win wind with work you
"""
WORDS = tuple(_TEXT.split())
LABEL_WORDS = {
    "weather": ["rain", "storm"],
    "sport": ["game", "player", "goal"],
    "food": ["soup"],
    "travel": ["flight", "hotel"],
}
_LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"
_PUNCTUATION = ".,!?:;'\"-()[]{}<>/_"
_SIZES = {"num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 37, "max_position_embeddings": 512}
_WIDTH = 32
# Larger than the usual 0.02, or two layers would hardly tell one text from another.
_RANGE = {"initializer_range": 0.2}


def tiny_mlm(family: str, folder: Path, seed: int = 0) -> LoadedMLM:
    """A tiny masked language model of one of :data:`FAMILIES`, written to ``folder`` and loaded from it."""
    make_tokenizer, make_config = _RECIPES[family]
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer, special, tokenizer_class = make_tokenizer()
    tokenizer.save(str(folder / "tokenizer.json"))
    described = {
        "tokenizer_class": tokenizer_class,
        "model_max_length": 512,
        **{name: _with_stripping(token) for name, token in special.items()},
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(described), encoding="utf-8")
    ids = {f"{name}_id": tokenizer.token_to_id(special[name]) for name in ("pad_token", "cls_token", "sep_token")}
    config = make_config(
        vocab_size=tokenizer.get_vocab_size(),
        pad_token_id=ids["pad_token_id"],
        bos_token_id=ids["cls_token_id"],
        eos_token_id=ids["sep_token_id"],
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = transformers.AutoModelForMaskedLM.from_config(config)
    model.eval().save_pretrained(folder)
    return load_mlm(folder)


# -- tokenizers ---------------------------------------------------------------------------------------------------


def _wordpiece(special: dict[str, str], tokenizer_class: str) -> tuple[Tokenizer, dict[str, str], str]:
    pieces = [*_LETTERS, *(f"##{c}" for c in _LETTERS), *_PUNCTUATION]
    tokens = dict.fromkeys([*special.values(), *WORDS, *pieces])
    vocabulary = {token: i for i, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token=special["unk_token"]))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    return _framed(tokenizer, special), special, tokenizer_class


def _byte_level_bpe() -> tuple[Tokenizer, dict[str, str], str]:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=900,
        special_tokens=list(_ROBERTA_SPECIAL.values()),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator([f" {word}" for word in WORDS for _ in range(3)], trainer)
    return _framed(tokenizer, _ROBERTA_SPECIAL), _ROBERTA_SPECIAL, "RobertaTokenizerFast"


def _unigram(tokenizer_class: str) -> tuple[Tokenizer, dict[str, str], str]:
    special = _BERT_SPECIAL
    pieces: list[tuple[str, float]] = [(token, 0.0) for token in special.values()]
    pieces += [(f"▁{word}", -2.0) for word in WORDS if len(word) > 1]
    pieces += [("▁", -4.0), *((c, -6.0) for c in (*_LETTERS, *_PUNCTUATION))]
    unknown = [token for token, _ in pieces].index(special["unk_token"])
    tokenizer = Tokenizer(models.Unigram(pieces, unk_id=unknown))
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    return _framed(tokenizer, special), special, tokenizer_class


def _framed(tokenizer: Tokenizer, special: dict[str, str]) -> Tokenizer:
    """The tokenizer with its special tokens known as such, and put around a text."""
    tokenizer.add_special_tokens(
        [AddedToken(token, lstrip=token == "<mask>", special=True) for token in special.values()]  # noqa: S105
    )
    first, last = special["cls_token"], special["sep_token"]
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{first} $A {last}",
        pair=f"{first} $A {last} $B {last}",
        special_tokens=[(token, tokenizer.token_to_id(token)) for token in (first, last)],
    )
    return tokenizer


def _with_stripping(token: str) -> Any:
    # RoBERTa's and MPNet's mask swallows the space before it; BERT's does not.
    if token != "<mask>":  # noqa: S105
        return token
    return {"__type": "AddedToken", "content": token, "lstrip": True, "rstrip": False, "normalized": False}


_BERT_SPECIAL = {
    "pad_token": "[PAD]",
    "unk_token": "[UNK]",
    "cls_token": "[CLS]",
    "sep_token": "[SEP]",
    "mask_token": "[MASK]",
}
_ROBERTA_SPECIAL = {
    "cls_token": "<s>",
    "pad_token": "<pad>",
    "sep_token": "</s>",
    "unk_token": "<unk>",
    "mask_token": "<mask>",
}
_MPNET_SPECIAL = {**_ROBERTA_SPECIAL, "unk_token": "[UNK]"}

# -- models -------------------------------------------------------------------------------------------------------


def _bert(**of_tokenizer: int) -> Any:
    return transformers.BertConfig(hidden_size=_WIDTH, **_SIZES, **_RANGE, **of_tokenizer)


def _roberta(**of_tokenizer: int) -> Any:
    sizes = {**_SIZES, "max_position_embeddings": 514}  # positions are counted from pad_token_id + 1
    return transformers.RobertaConfig(hidden_size=_WIDTH, type_vocab_size=1, **sizes, **_RANGE, **of_tokenizer)


def _mpnet(**of_tokenizer: int) -> Any:
    sizes = {**_SIZES, "max_position_embeddings": 514}
    return transformers.MPNetConfig(hidden_size=_WIDTH, **sizes, **_RANGE, **of_tokenizer)


def _distilbert(**of_tokenizer: int) -> Any:
    return transformers.DistilBertConfig(
        dim=_WIDTH, n_layers=2, n_heads=4, hidden_dim=37, max_position_embeddings=512, **_RANGE, **of_tokenizer
    )


def _albert(**of_tokenizer: int) -> Any:
    return transformers.AlbertConfig(hidden_size=_WIDTH, embedding_size=16, **_SIZES, **_RANGE, **of_tokenizer)


def _electra(**of_tokenizer: int) -> Any:
    return transformers.ElectraConfig(hidden_size=_WIDTH, embedding_size=16, **_SIZES, **_RANGE, **of_tokenizer)


def _deberta_v2(**of_tokenizer: int) -> Any:
    return transformers.DebertaV2Config(
        hidden_size=_WIDTH,
        type_vocab_size=0,
        relative_attention=True,
        position_biased_input=False,
        pos_att_type=["p2c", "c2p"],
        **_SIZES,
        **_RANGE,
        **of_tokenizer,
    )


_RECIPES: dict[str, tuple[Callable[[], tuple[Tokenizer, dict[str, str], str]], Callable[..., Any]]] = {
    "bert": (lambda: _wordpiece(_BERT_SPECIAL, "BertTokenizerFast"), _bert),
    "roberta": (_byte_level_bpe, _roberta),
    "mpnet": (lambda: _wordpiece(_MPNET_SPECIAL, "MPNetTokenizerFast"), _mpnet),
    "distilbert": (lambda: _wordpiece(_BERT_SPECIAL, "DistilBertTokenizerFast"), _distilbert),
    "albert": (lambda: _unigram("AlbertTokenizerFast"), _albert),
    "electra": (lambda: _wordpiece(_BERT_SPECIAL, "ElectraTokenizerFast"), _electra),
    "deberta-v2": (lambda: _unigram("DebertaV2TokenizerFast"), _deberta_v2),
}
FAMILIES = tuple(_RECIPES)
