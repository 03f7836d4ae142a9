"""``docs/minilm-mlm.md``, the model card, from how it was made: ``python -m tools.minilm_mlm.card > FILE``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from openprompt_meta.encoder.minilm import MADE, SHIPPED


def model_card(made: Mapping[str, Any], size: int) -> str:
    """Markdown.

    Args:
        made: the content of ``made.json``.
        size: of the difference, in bytes.
    """
    settings = made["settings"]
    tokens, thousand = made["tokens"], 1e3
    words = ["| sentence | likeliest words |", "|---|---|"]
    words += [f"| {sentence} | {', '.join(found)} |" for sentence, found in made["predictions"].items()]
    parts = [
        "# `minilm-mlm`",
        "A small masked language model for machines that reach no model hub: all-MiniLM-L6-v2, a sentence encoder, "
        "brought back to predicting words.\n`plm.model_path: minilm-mlm` gives a genuine `BertForMaskedLM` of 6 "
        "layers, 384 wide, with BERT's uncased vocabulary.",
        "## What it is not",
        "It is not BERT, nor a substitute for it in comparisons with the paper. Its layers have an eighth of the "
        f"weights of BERT-base's.\nIt has read {made['tokens_read'] / 1e6:.1f} million tokens of one encyclopaedia as "
        "it was in 2006, where BERT read thousands of millions; it knows\nlittle of facts, and nothing of the years "
        "since.\nAsked for a topic it answers with words that fit the grammar before words that fit the text (below); "
        "what is of use is which of given\nlabel words it finds likelier. It has the biases of its encoder and of its "
        "text.",
        "## How good it is",
        f"On {made['masked_words']} hidden words of articles that were never trained on (15 % hidden, texts of 128 "
        f"tokens): **{100 * made['masked_accuracy']:.1f} %** are its first\nguess, the loss is "
        f"{made['masked_loss']:.2f} nats. How its label words and its [MASK] do in few-shot tasks: "
        "[results.md](results.md).",
        "\n".join(words),
        "## How it was made",
        f"- Start: {made['base']}.\n- Text: {made['text']}; {tokens['train'] / 1e6:.1f} million tokens to learn from, "
        f"{tokens['held_out'] / thousand:.0f} thousand held out.\n"
        f"- Learned: an update of rank {settings['rank']} of every linear layer of the encoder, its biases and "
        "LayerNorms, and the vocabulary head\n  (dense, LayerNorm, bias; the decoder is the input embeddings, which "
        "stay as they are).\n"
        f"- {settings['steps']} steps of AdamW on {settings['tokens_per_step']} tokens, at most "
        f"{settings['learning_rate']}, {100 * settings['mask_rate']:.0f} % of the words hidden anew in each, texts of "
        f"{' and '.join(map(str, settings['lengths']))}\n  tokens in turn, products in {settings['precision']}.\n"
        f"- Kept: the difference in half precision, {size / 1e6:.2f} MB, added to the encoder at load; the same bits "
        "every time.\n"
        f"- With torch {made['versions']['torch']}, transformers {made['versions']['transformers']}.",
        "```console\npython -m tools.minilm_mlm tools/minilm_mlm/minilm.yaml   # an hour and more on two cores; "
        "resumes where it was stopped\n```",
        "The encoder is sentence-transformers' (Apache-2.0), the text Wikipedia's, under its licence; the difference "
        "is published under this\npackage's licence.",
    ]
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    print(model_card(json.loads(MADE.read_text(encoding="utf-8")), SHIPPED.stat().st_size), end="")
