"""The model card of `minilm-mlm`, from what is known of how it was made: ``python -m openprompt_meta.mlm.card > FILE``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from openprompt_meta.model.minilm_mlm import MADE, SHIPPED

__all__ = ["model_card"]


def model_card(made: Mapping[str, Any], size: int) -> str:
    """Markdown.

    Args:
        made: the content of ``made.json``.
        size: of the difference, in bytes.
    """
    settings = made["settings"]
    parts = [
        "# `minilm-mlm`",
        "A small masked language model for machines that reach no model hub: all-MiniLM-L6-v2, a sentence encoder, brought "
        "back to predicting words. `plm.model_path: minilm-mlm` gives a genuine `BertForMaskedLM` of 6 layers, 384 wide, with "
        "BERT's uncased vocabulary.",
        "## What it is not",
        "It is not BERT, nor a substitute for it in comparisons with the paper. It has a tenth of BERT's layers' weights, has "
        f"read {made['tokens_read'] / 1e6:.1f} million tokens of one encyclopaedia as it was in 2006, where BERT read "
        "thousands of millions, and knows little of facts and less of anything after that year. What it predicts is for "
        "telling topics apart. It has the biases of its encoder and of its text.",
        "## How good it is",
        f"On {made['masked_words']} hidden words of articles that were never trained on (15 % hidden, texts of 128 tokens): "
        f"**{100 * made['masked_accuracy']:.1f} %** are its first guess, the loss is {made['masked_loss']:.2f} nats. How its "
        "label words and its [MASK] do in few-shot tasks: [results.md](results.md).",
        "\n".join(
            ["| sentence | likeliest words |", "|---|---|"]
            + [f"| {sentence} | {', '.join(words)} |" for sentence, words in made["predictions"].items()]
        ),
        "## How it was made",
        f"- Start: {made['base']}. Text: {made['text']}; {made['tokens']['train'] / 1e6:.1f} million tokens to learn from, "
        f"{made['tokens']['held_out'] / 1e3:.0f} thousand held out.\n"
        f"- Learned: an update of rank {settings['rank']} of every linear layer of the encoder, its biases and LayerNorms, "
        "and the vocabulary head (dense, LayerNorm, bias; the decoder is the input embeddings, which stay as they are).\n"
        f"- {settings['steps']} steps of AdamW on {settings['tokens_per_step']} tokens, at most "
        f"{settings['learning_rate']}, {100 * settings['mask_rate']:.0f} % of the words hidden anew in each, texts of "
        f"{' and '.join(map(str, settings['lengths']))} tokens in turn, products in {settings['precision']}.\n"
        f"- Kept: the difference in half precision, {size / 1e6:.2f} MB "
        f"(`openprompt_meta/model/minilm_mlm_files/`), added to the encoder at load; the same bits every time.\n"
        f"- With torch {made['versions']['torch']}, transformers {made['versions']['transformers']}.",
        "```console\npython runners/fit_mlm.py yamls/mlm/minilm.yaml   # hours on two cores; goes on where it was stopped\n```",
        "The encoder is sentence-transformers' (Apache-2.0), the text Wikipedia's (its authors', under the licences of "
        "Wikipedia); the difference is published under this package's licence.",
    ]
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    print(model_card(json.loads(MADE.read_text(encoding="utf-8")), SHIPPED.stat().st_size), end="")
