"""Making `minilm-mlm`: the packaged encoder brought back to predicting words, kept as a small difference.

`tools/minilm_mlm` runs it. Text is prepared (``wiki_text``, ``corpus``), words are hidden (``masking``), the model
learns a low-rank update and a vocabulary head (``low_rank``, ``training``), is judged on text it never saw
(``judging``), and what it learned is written as a difference (``difference``), which
:mod:`openprompt_meta.encoder.minilm` adds to the encoder at load.
"""
